"""Hundreds of invalid tokens, each with one fault, rejected for that fault."""

import json
from collections import Counter
from pathlib import Path

import pytest

from certs.files import write_key_pair
from tests.authentication.hostile_tokens import HOSTILE
from tests.authentication.hostile_tokens.token_builder import (
    CLUSTER,
    IDENTITIES,
    LIMITS,
    MINE,
    SHARED,
    AuthenticatorSetup,
    Draft,
    Hostile,
    authority,
    client,
    good,
    key,
    own_keys,
    unusable_keys,
)
from tests.harness.identity import Pki
from tests.harness.server_process import Files, run_server
from webhook.authentication.reasons import AuthFailure

GROUPS = ("algorithm", "key", "header", "encoding", "signature", "claims", "binding", "replay", "size")
BARE = {401: "unauthorized\n", 403: "forbidden\n"}
QUOTE_LENGTH = 12
"""Length of a part of a token that does not occur in a log by chance."""


def test_the_table_is_large_has_every_group_and_no_case_twice() -> None:
    assert len(HOSTILE) >= 150
    counts = Counter(case.group for case in HOSTILE)
    assert set(counts) == set(GROUPS)
    assert min(counts.values()) >= 10, counts
    assert [name for name, count in Counter((case.group, case.name) for case in HOSTILE).items() if count > 1] == []


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: f"{case.group}: {case.name}")
def test_a_hostile_token_is_refused_for_its_one_fault(case: Hostile) -> None:
    setup = AuthenticatorSetup(case.limits)
    good = case.make_good()
    assert setup.refusal(good) is None, "the token is good without its fault"
    bad = case.fault(good)
    if case.event is None:
        assert (bad.token, bad.certificate) != (good.token, good.certificate)
    else:
        case.event(setup)
    refused = setup.refusal(bad)
    assert refused is not None
    assert (refused.reason, refused.status) == (case.reason, case.status), refused
    assert not find_quoted(bad.token, refused.detail)
    assert len(refused.detail) < 2000, "a sender must not fill the log"
    assert setup.refusal(bad) is not None, "the token is not cached"


def find_quoted(token: str, output: str) -> list[str]:
    """Return the parts of the token that the output contains."""
    pieces = [token[place : place + QUOTE_LENGTH] for place in range(0, len(token), QUOTE_LENGTH // 2)]
    return [piece for piece in pieces if len(piece) == QUOTE_LENGTH and piece in output]


def sent_over_the_wire(case: Hostile) -> bool:
    """Return whether a header can carry the token, and a server with one key file accepts its good form."""
    token = case.fault(case.make_good()).token
    if case.event is not None or not (token.isascii() and token.isprintable()) or token.strip() != token:
        return False
    names_differ = case.make_good().header["kid"] != key(SHARED).kid and case.fault(case.make_good()).signer is not key(
        SHARED
    )
    # A token that is not yet valid may become valid during the test.
    return (
        names_differ and case.limits == LIMITS and case.reason not in {AuthFailure.NOT_YET_VALID, AuthFailure.LIFETIME}
    )


def files_of(folder: Path) -> Files:
    """Return the files of a server with the same keys in one file, the cluster's bound to its issuer."""
    pki = Pki(folder, authority())
    write_key_pair(authority().key_pair, folder / "ca.crt", folder / "ca.key")
    pki.renew_server()
    unusable = {jwk["kid"] for jwk in unusable_keys().values()}
    own = [jwk for jwk in own_keys() if jwk["kid"] not in unusable]
    cluster = {**key("ES256 cluster").jwk(), "iss": CLUSTER}
    (folder / "jwks.json").write_text(json.dumps({"keys": [*own, cluster]}))
    (folder / "identities.yaml").write_text(IDENTITIES)
    files = Files(folder, pki, key("ES256"), key("ES256"), client(MINE))
    files.policy.write_text("apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices: []\n")
    return files


def read(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("server-*.log"))


async def test_over_the_wire_a_hostile_token_gets_a_bare_401_or_403_and_is_not_quoted_in_the_log(
    tmp_path: Path,
) -> None:
    cases = [case for case in HOSTILE if sent_over_the_wire(case)]
    assert {case.group for case in cases} == set(GROUPS) - {"replay"}
    assert len(cases) >= 150
    files = files_of(tmp_path)
    contexts = {name: files.pki.context(client(name)) for name in ("mine", "other", "prober")}
    async with run_server(files) as server:

        async def call(draft: Draft) -> tuple[int, str]:
            return await server.post("/nowhere", token=draft.token, context=contexts[draft.certificate])

        assert await call(good()) == (404, "not found\n"), "a known caller passes authentication"
        for case in cases:
            assert await call(case.fault(case.make_good())) == (case.status, BARE[case.status]), (case.group, case.name)
        for reason, count in Counter(case.reason for case in cases).items():
            line = f'podgate_refused_calls_total{{reason="authentication_{reason}"}}'
            assert await server.metric(line) == count, reason
    log = read(tmp_path)
    assert "call refused" in log
    assert [case.name for case in cases if find_quoted(case.fault(case.make_good()).token, log)] == []
