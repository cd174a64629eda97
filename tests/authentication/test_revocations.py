"""Token revocations: parsed strictly, in force at once, the last good list kept."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.harness.server_process import Files, run_server
from tests.timeouts import HANG_SECONDS
from webhook.authentication.revocations import RevocationFile, parse_revocations
from webhook.errors import UserError

FOREVER = float("inf")
UNTIL = 1_900_000_000
UNTIL_TEXT = "2030-03-17T17:46:40Z"


def parse(text: str) -> dict[tuple[str, str], float]:
    return dict(parse_revocations(text.encode(), "denied.yaml"))


@pytest.mark.parametrize(
    ("text", "denied"),
    [
        ("[]", {}),
        ("- {iss: a, jti: b}", {("a", "b"): FOREVER}),
        ('[{"iss": "a", "jti": "b"}]', {("a", "b"): FOREVER}),
        ("- {iss: a, jti: b, reason: lost on a train}", {("a", "b"): FOREVER}),
        (f"- {{iss: a, jti: b, until: {UNTIL_TEXT}}}", {("a", "b"): UNTIL * 1e6}),
        (f'- {{iss: a, jti: b, until: "{UNTIL_TEXT}"}}', {("a", "b"): UNTIL * 1e6}),
        ("- {iss: a, jti: b, until: 2030-03-17T18:46:40+01:00}", {("a", "b"): UNTIL * 1e6}),
        (f'[{{"iss": "a", "jti": "b", "until": "{UNTIL_TEXT}"}}]', {("a", "b"): UNTIL * 1e6}),
        ("- {iss: a, jti: b}\n- {iss: a, jti: c}", {("a", "b"): FOREVER, ("a", "c"): FOREVER}),
        (f"- {{iss: a, jti: b, until: {UNTIL_TEXT}}}\n- {{iss: a, jti: b}}", {("a", "b"): FOREVER}),
    ],
)
def test_a_list_is_read_as_written(text: str, denied: dict[tuple[str, str], float]) -> None:
    assert parse(text) == denied


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "(document): (empty): there is no document"),
        ("iss: a\njti: b", "not a list"),
        ("- {iss: a, jti: [", "2:1: (document): (end): a value or a closing bracket is missing"),
        ("- {iss: a, jti: b}\n- a", "2:3: [1]: a: not a mapping: write {iss: ISSUER, jti: TOKEN ID}"),
        ("- a", "does not look like a list of tokens: it lacks iss or jti"),
        ("- {iss: a, jti: b}\n- {jti: b}", "[1].iss: (absent): required: add iss"),
        ("- {iss: a, jti: b}\n- {iss: a}", "[1].jti: (absent): required: add jti"),
        ("- {iss: a, jti: 7}", '[0].jti: 7: 7 without quotes is a number, where text belongs: quote it: "7"'),
        ("- {iss: a, jti: ''}", '[0].jti: "": empty'),
        ("- {iss: [a], jti: b}", "[0].iss: [...]: a list, where text belongs"),
        (f"- {{iss: a, jti: {'x' * 513}}}", '[0].jti: "xxx'),
        ("- {iss: a, jti: b, sha256: c}", "[0].sha256: c: unknown field: other fields here: until, reason"),
        ("- {iss: a, jti: b, jti: c}", "[0].jti: c: written twice, first in line 1"),
        ('[{"iss": "a", "jti": "b", "jti": "c"}]', '[0].jti: "c": written twice, first in line 1'),
        ("- {iss: a, jti: b, until: tomorrow}", "[0].until: tomorrow: not a time: write one such as"),
        ("- {iss: a, jti: b, until: 2030-01-31}", "[0].until: 2030-01-31: not a time: write one such as"),
        ("- {iss: a, jti: b, until: 2030-13-45T00:00:00Z}", "2030-13-45T00:00:00Z"),
        ("- {iss: a, jti: b, until: 7}", "[0].until: 7: not a time: write one such as"),
        (json.dumps([{"iss": "a", "jti": "b"}] * 4097), "4097 entries: write at most 4096"),
    ],
)
def test_a_mistake_is_reported_with_its_place_value_and_remedy(text: str, message: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(text)
    assert message in str(refused.value)
    assert re.match(r"denied\.yaml:\d+:\d+: ", str(refused.value))


def test_a_token_is_denied_until_its_entry_ends(tmp_path: Path) -> None:
    path = tmp_path / "denied.yaml"
    path.write_text(f"- {{iss: a, jti: b, until: {UNTIL_TEXT}}}\n- {{iss: a, jti: c}}")
    denied = RevocationFile(path)
    assert denied.is_revoked("a", "b", UNTIL * 1_000_000 - 1)
    assert not denied.is_revoked("a", "b", UNTIL * 1_000_000)
    assert denied.is_revoked("a", "c", UNTIL * 1_000_000)
    assert not denied.is_revoked("b", "c", 0)


def test_a_bad_list_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "denied.yaml"
    path.write_text("- {iss: a, jti: b}")
    denied = RevocationFile(path)
    for text in ("", "- {iss: a}", "- {iss: c, jti: d}\n- {iss: a}"):
        path.write_text(text)
        denied.reload()
        assert denied.is_revoked("a", "b", 0), text
        assert denied.error is not None
    path.write_text("[]")
    denied.reload()
    assert not denied.is_revoked("a", "b", 0)


def test_a_list_as_large_as_allowed_is_read(tmp_path: Path) -> None:
    path = tmp_path / "denied.yaml"
    path.write_text(json.dumps([{"iss": "https://issuer.example", "jti": f"{number:036}"} for number in range(4096)]))
    assert len(RevocationFile(path).value) == 4096


async def test_cached_token_is_rejected_soon_after_its_revocation(tmp_path: Path) -> None:
    files, denied = Files.create(tmp_path), tmp_path / "denied.yaml"
    denied.write_text("[]")
    token, other = files.signer.token(jti="one"), files.signer.token(jti="other")
    async with run_server(files, "--denied-tokens", str(denied)) as server:
        assert (await server.post("/nowhere", token=token))[0] == 404
        denied.write_text("- {iss: kube-apiserver, jti: one}")
        async with asyncio.timeout(HANG_SECONDS):
            while (await server.post("/nowhere", token=token))[0] == 404:  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.2)
        assert (await server.post("/nowhere", token=token)) == (401, "unauthorized\n")
        assert (await server.post("/nowhere", token=other))[0] == 404
        assert await server.metric('podgate_refused_calls_total{reason="authentication_denied_token"}') >= 2
        denied.write_text("")
        await server.wait_for_metric('podgate_file_reloads_total{file="denied tokens",result="failure"}', 1)
        assert (await server.post("/nowhere", token=token))[0] == 401
