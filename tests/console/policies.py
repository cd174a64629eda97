"""Prepared policies of a console; `tests/cluster/test_rollout_commands.py` holds the real ones to the same."""

from dataclasses import dataclass, field, replace

from tests.harness.console import PreparedPort, make_ports, service
from webhook.console.interface.console_policies import PlannedRollout
from webhook.console.interface.document_reader import ConsolePorts
from webhook.core.document.loading import compute_hash
from webhook.core.policy_fields.rollout import Canary, CanaryStep, RollbackRules, Rollout
from webhook.core.reporting.candidate_document import RolloutDocument, StoredRollout
from webhook.core.reporting.rollout_reports import HistorySource, list_history
from webhook.core.rollout.state import InForce, Phase, Rejection, RolloutState
from webhook.errors import UserError
from webhook.replay.impact import Comparison, ImpactReport

FIRST = b"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- {name: web, match: {namespaces: [web]}}
"""
SECOND = FIRST.replace(b"match", b"slaClass: gold, match")
THIRD = FIRST.replace(b"[web]", b"[web, shop]")
HASHES = tuple(map(compute_hash, (FIRST, SECOND, THIRD)))
STANZA = Rollout(
    canary=Canary((CanaryStep(percent=1), CanaryStep(percent=25), CanaryStep(percent=50))), rollback=RollbackRules()
)
METRICS = b"""\
podgate_rollout_symptom_ratio{symptom="pending"} 0.02
podgate_rollout_symptom_ratio{symptom="pendingAlert"} 0.02
podgate_rollout_symptom_ratio{symptom="denied"} 0.071
"""


def make_stored() -> StoredRollout:
    """Return a history of three policies: the first in force, the second the candidate of a canary, the third bad."""
    first, second, third = HASHES
    made = RolloutState(
        first,
        governed=True,
        phase=Phase.CANARY,
        candidate=second,
        step=1,
        since="2026-12-01T03:55:00Z",
        rejected=(Rejection(third, "<b>Pending</b>", "9 % > 8 %", by="ann", at="2026-12-01T03:00:00Z"),),
        above_since={"denied": "2026-12-01T03:59:10Z"},
        waits_for="more Pods of the candidate: 12 of 20",
    )
    in_force = InForce(first, second)
    kept = tuple((number, HASHES[number - 1], f"2026-12-01T0{number}:00:00Z", number == 1) for number in (3, 2, 1))
    entries = list_history(HistorySource(kept, second, in_force, made))
    return StoredRollout(entries, RolloutDocument.build(second, in_force, made, STANZA))


def make_policy_ports(policies: "PreparedPolicies | None") -> ConsolePorts:
    ports = make_ports(service("web"))
    assert isinstance(ports.plain, PreparedPort)
    ports.plain.answers["/metrics"] = METRICS
    return replace(ports, policies=policies)


@dataclass
class PreparedPolicies:
    """Answers what it is given; an error is raised."""

    stored: StoredRollout | UserError = field(default_factory=lambda: StoredRollout((), None))
    documents: dict[str, bytes] = field(default_factory=lambda: dict(zip(HASHES, (FIRST, SECOND, THIRD), strict=True)))
    report: ImpactReport | UserError = field(default_factory=lambda: ImpactReport("", "", 0, {}, ()))
    planned: PlannedRollout | UserError = field(default_factory=lambda: PlannedRollout(()))
    judged: list[tuple[bytes, bytes]] = field(default_factory=list)

    async def read_rollout(self) -> StoredRollout:
        if isinstance(self.stored, UserError):
            raise self.stored
        return self.stored

    async def read_document(self, name: str) -> bytes:
        if name not in self.documents:
            raise UserError(f"{name}: not kept any more", "choose another one")
        return self.documents[name]

    async def judge(self, before: bytes, candidate: bytes) -> Comparison:
        self.judged.append((before, candidate))
        if isinstance(self.report, UserError):
            raise self.report
        return Comparison(self.report)

    async def plan(self, candidate: bytes) -> PlannedRollout:
        assert candidate
        if isinstance(self.planned, UserError):
            raise self.planned
        return self.planned
