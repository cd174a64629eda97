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
    Draft,
    Hostile,
    World,
    authority,
    client,
    good,
    key,
    own_keys,
    useless_keys,
)
from tests.harness.identity import Pki
from tests.harness.server_process import Files, serving
from webhook.authentication.reasons import AuthFailure

GROUPS = ("algorithm", "key", "header", "encoding", "signature", "claims", "binding", "replay", "size")
BARE = {401: "unauthorized\n", 403: "forbidden\n"}
TELLING_LENGTH = 12
"""So many letters of a token in a row do not come into a log by chance."""


def test_the_table_is_large_has_every_group_and_no_case_twice() -> None:
    assert len(HOSTILE) >= 150
    counts = Counter(case.group for case in HOSTILE)
    assert set(counts) == set(GROUPS)
    assert min(counts.values()) >= 10, counts
    assert [name for name, count in Counter((case.group, case.name) for case in HOSTILE).items() if count > 1] == []


@pytest.mark.parametrize("case", HOSTILE, ids=lambda case: f"{case.group}: {case.name}")
def test_a_hostile_token_is_refused_for_its_one_fault(case: Hostile) -> None:
    world = World(case.limits)
    good = case.of()
    assert world.refusal(good) is None, "without its fault it is good"
    bad = case.fault(good)
    if case.then is None:
        assert (bad.token, bad.certificate) != (good.token, good.certificate)
    else:
        case.then(world)
    refused = world.refusal(bad)
    assert refused is not None
    assert (refused.reason, refused.status) == (case.reason, case.status), refused
    assert not quoted(bad.token, refused.detail)
    assert len(refused.detail) < 2000, "no sender fills our log"
    assert world.refusal(bad) is not None, "nor is it remembered"


def quoted(token: str, told: str) -> list[str]:
    """Return what of the token's own text is told to somebody."""
    pieces = [token[place : place + TELLING_LENGTH] for place in range(0, len(token), TELLING_LENGTH // 2)]
    return [piece for piece in pieces if len(piece) == TELLING_LENGTH and piece in told]


def sent_over_the_wire(case: Hostile) -> bool:
    """Return whether a header can hold it, and a server that reads its keys from one file knows its twin."""
    token = case.fault(case.of()).token
    if case.then is not None or not (token.isascii() and token.isprintable()) or token.strip() != token:
        return False
    names_differ = case.of().header["kid"] != key(SHARED).kid and case.fault(case.of()).by is not key(SHARED)
    # What is too early now need not be so a minute later.
    return (
        names_differ and case.limits == LIMITS and case.reason not in {AuthFailure.NOT_YET_VALID, AuthFailure.LIFETIME}
    )


def files_of(folder: Path) -> Files:
    """Return what a server of the same world is started with: all keys in one file, the cluster's bound to it."""
    pki = Pki(folder, authority())
    write_key_pair(authority().key_pair, folder / "ca.crt", folder / "ca.key")
    pki.renew_server()
    useless = {jwk["kid"] for jwk in useless_keys().values()}
    own = [jwk for jwk in own_keys() if jwk["kid"] not in useless]
    cluster = {**key("ES256 cluster").jwk(), "iss": CLUSTER}
    (folder / "jwks.json").write_text(json.dumps({"keys": [*own, cluster]}))
    (folder / "identities.yaml").write_text(IDENTITIES)
    files = Files(folder, pki, key("ES256"), key("ES256"), client(MINE))
    files.policy.write_text("apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices: []\n")
    return files


def read(folder: Path) -> str:
    return "".join(path.read_text() for path in folder.glob("server-*.log"))


async def test_over_the_wire_a_hostile_token_gets_a_bare_401_or_403_and_leaves_no_trace(tmp_path: Path) -> None:
    cases = [case for case in HOSTILE if sent_over_the_wire(case)]
    assert {case.group for case in cases} == set(GROUPS) - {"replay"}
    assert len(cases) >= 150
    files = files_of(tmp_path)
    contexts = {name: files.pki.context(client(name)) for name in ("mine", "other", "prober")}
    async with serving(files) as server:

        async def asked(draft: Draft) -> tuple[int, str]:
            return await server.post("/nowhere", token=draft.token, context=contexts[draft.certificate])

        assert await asked(good()) == (404, "not found\n"), "a known caller gets beyond authentication"
        for case in cases:
            assert await asked(case.fault(case.of())) == (case.status, BARE[case.status]), (case.group, case.name)
        for reason, count in Counter(case.reason for case in cases).items():
            line = f'podgate_refused_calls_total{{reason="authentication_{reason}"}}'
            assert await server.metric(line) == count, reason
    log = read(tmp_path)
    assert "call refused" in log
    assert [case.name for case in cases if quoted(case.fault(case.of()).token, log)] == []
