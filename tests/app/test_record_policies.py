"""Policies that rewrote Pods: of servers, else the last good one, else why they cannot be told."""

import pytest

from webhook.commands.clients.record_sources import RecordSource, ServerRecords
from webhook.core.document import Purpose, load
from webhook.core.document.configmap import KEY, LAST_GOOD, NAME, ROLLOUT_STATE, ROLLOUT_STATE_KEY, ConfigMap
from webhook.errors import NoSuchPageError, UserError
from webhook.operations.record_policies import RecordPolicies

HEAD = "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n"
FORMER, NOW = (f"{HEAD}- {{name: {name}, match: {{namespaces: [shop]}}}}\n" for name in ("former", "now"))
BAD = f"{HEAD}- {{name: 3}}\n"
HASH = load(FORMER.encode(), Purpose.SERVE).policy.hash


class Reader:
    """The ConfigMaps of a cluster."""

    def __init__(self, **documents: str) -> None:
        self._documents = documents

    async def policy(self, name: str = NAME) -> ConfigMap | None:
        found = self._documents.get({NAME: "policy", LAST_GOOD: "last_good", ROLLOUT_STATE: "state"}[name])
        key = ROLLOUT_STATE_KEY if name == ROLLOUT_STATE else KEY
        return None if found is None else ConfigMap(data={key: found})


def source(error: UserError | None) -> ServerRecords:
    async def get(path: str) -> bytes:
        assert path == f"/api/v1/policies/{HASH}"
        if error is not None:
            raise error
        return FORMER.encode()

    return ServerRecords(get, "a server")


async def unread(asked: RecordSource | None, reader: Reader) -> str:
    """Read the former policy; return why it cannot be told, "" if it is known."""
    reasons: dict[str, str] = {}
    policies = RecordPolicies(None, reasons)
    await policies.find_in_force(reader)  # type: ignore[arg-type]  # has the fields that are used
    await policies.read([HASH], asked, reader)  # type: ignore[arg-type]  # as above
    assert (HASH in policies.by_hash) is (f"policy {HASH}" not in reasons)
    return reasons.get(f"policy {HASH}", "")


async def test_a_former_policy_is_that_of_a_server_or_else_the_last_good_one() -> None:
    assert await unread(source(None), Reader(policy=NOW)) == ""
    for asked in (None, source(NoSuchPageError("HTTP 404")), source(UserError("HTTP 503"))):
        assert await unread(asked, Reader(policy=NOW, last_good=FORMER)) == ""


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (None, "no server could be asked for it"),
        (source(NoSuchPageError("HTTP 404")), "the server that was asked does not keep it any more"),
        (source(UserError("a: HTTP 503", "see b")), "a: HTTP 503: see b"),
    ],
)
async def test_why_a_former_policy_cannot_be_told_is_what_happened(asked: RecordSource | None, reason: str) -> None:
    assert await unread(asked, Reader(policy=NOW, last_good=NOW)) == f"{reason}; what its rules wrote is not shown"


async def test_the_last_good_policy_is_in_force_while_the_other_is_not_valid() -> None:
    reasons: dict[str, str] = {}
    policies = RecordPolicies(None, reasons)
    found = await policies.find_in_force(Reader(policy=BAD, last_good=FORMER))  # type: ignore[arg-type]  # as above
    assert found is not None
    assert found.hash == HASH
    assert "services[0].name" in reasons["policy"]


async def test_the_policy_that_a_rollout_keeps_in_force_is_not_the_wished_one() -> None:
    pinned = f'{{"stable": "{HASH}", "pinned": {{"reason": "INC-1"}}}}'
    reasons: dict[str, str] = {}
    policies = RecordPolicies(None, reasons)
    reader = Reader(policy=NOW, last_good=FORMER, state=pinned)
    found = await policies.find_in_force(reader)  # type: ignore[arg-type]  # as above
    assert (found is not None and found.hash, reasons) == (HASH, {})
    other = RecordPolicies(None, reasons)
    assert await other.find_in_force(Reader(policy=NOW, last_good=NOW, state=pinned)) is None  # type: ignore[arg-type]
    assert f"{HASH} is in force" in reasons["policy"]
    bad = RecordPolicies(None, reasons := {})
    assert await bad.find_in_force(Reader(policy=NOW, state="{}")) is not None  # type: ignore[arg-type]  # as above
    assert "stable" in reasons[f"configmap {ROLLOUT_STATE}"]
