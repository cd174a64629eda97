"""Whole reviews: the policy that applies, charges, and what each half may return."""

import base64
from typing import Any

import msgspec
import pytest

from tests.core.reviewing import ALICE, NOW_US, REPLICA_SETS, Gate, pod, policy_of
from tests.core.strategies import Json
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedPolicy
from webhook.core.admission.decision import Half, Verdict
from webhook.core.findings import Code
from webhook.core.policy.model import LoadedPolicy
from webhook.errors import NoPolicyError
from webhook.observers import Observers
from webhook.ports import Review

POLICY = """
- name: web
  failureMode: Closed
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement:
    schedulerName: podgate-scheduler
    topology: [{level: Zone, in: [b, g]}]
  quota: {windows: [{window: 1m, hard: {pods: 2, cpu: "4"}}]}
  breaker: {quotaExceeded: {count: 2, within: 1m, countBy: Request}, openFor: 60s, halfOpen: {probes: 1}}
- name: other
  match: {namespaces: [elsewhere]}
  quota: {windows: [{window: 1m, hard: {cpu: "4"}}]}
"""
WEB = policy_of(POLICY)
LABEL, ANNOTATION = "podgate.io/service", "podgate.io/policy-hash"
ZONE = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}
TERMS = {"nodeSelectorTerms": [{"matchExpressions": [ZONE]}]}
PLACED: Json = {
    "schedulerName": "podgate-scheduler",
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": TERMS}},
}


def asking(cpu: str, **more: Any) -> Json:
    return {**PLACED, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **more}


@pytest.fixture
def gate() -> Gate:
    return Gate(WEB)


async def test_a_dry_run_is_judged_and_charges_nothing(gate: Gate) -> None:
    for number in range(5):
        decision = await gate.validate(object=gate.owned(f"u{number}", **PLACED), dryRun=True)
        assert (decision.verdict, decision.dry_run) == (Verdict.ADMIT, True)
        assert decision.steps[-1].found == "not charged (dry run)"
    assert (await gate.used())["pods"] == 0
    for number in range(2):
        assert (await gate.validate(object=gate.owned(f"u{number}", **PLACED))).allowed
    refused = await gate.validate(object=gate.owned("u9", **PLACED), dryRun=True)
    assert refused.status.code == 429, "a dry run shows the denial that would come"


async def test_a_uid_is_charged_once_however_often_it_is_asked(gate: Gate) -> None:
    for number in range(4):
        decision = await gate.validate(uid=f"review-{number}", object=gate.owned("u1", **PLACED))
        assert decision.allowed
    assert (await gate.used())["pods"] == 1


async def test_a_pod_denied_for_its_fields_is_not_charged(gate: Gate) -> None:
    decision = await gate.validate(object=gate.owned("u1", schedulerName="theirs"))
    assert (decision.verdict, decision.status.code, decision.status.reason) == (Verdict.DENY, 403, "Forbidden")
    assert decision.status.message.startswith("PlacementConflict: service web: spec.schedulerName is 'theirs'")
    assert gate.store.asked == []


async def test_a_pod_denied_by_quota_is_not_charged_in_part(gate: Gate) -> None:
    assert (await gate.validate(object=gate.owned("u1", **asking("3")))).allowed
    refused = await gate.validate(object=gate.owned("u2", **asking("2")))
    assert (refused.verdict, refused.status.code) == (Verdict.DENY, 429)
    assert await gate.used() == {"pods": 1, "cpu": 3000}
    assert refused.status.retry_after_seconds is None


@pytest.mark.parametrize(
    "spoilt",
    [
        pod({"app": "web"}, schedulerName="theirs"),
        pod({"app": "web", LABEL: "forged"}),
        pod({"app": "web"}, containers=[{"name": "c", "resources": {"requests": {"cpu": "nonsense"}}}]),
        pod({"app": "nobody"}),
    ],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
async def test_the_mutating_half_never_denies(spoilt: Json, operation: str) -> None:
    gate = Gate(policy_of(POLICY, "unmatched: Deny"))
    decision = await gate.mutate(object=spoilt, oldObject=gate.owned("u"), operation=operation)
    assert decision.allowed
    assert gate.store.asked == []
    assert operation == "CREATE" or decision.patch == ()


async def test_the_validating_half_needs_no_patch_after_the_mutating_one(gate: Gate) -> None:
    answer = await gate.ask(Half.MUTATE, object=pod({"app": "web"}))
    response = msgspec.json.decode(answer.body)["response"]
    paths = [one["path"] for one in msgspec.json.decode(base64.b64decode(response["patch"]))]
    assert paths == [
        "/metadata/labels/podgate.io~1service",
        "/metadata/annotations",
        "/spec/schedulerName",
        "/spec/affinity",
    ]
    validated = msgspec.json.decode((await gate.ask(Half.VALIDATE, object=gate.owned("u", **PLACED))).body)["response"]
    assert validated == {
        "uid": "review-1",
        "allowed": True,
        "auditAnnotations": {"decision": "Admit", "policy-hash": WEB.hash, "client-id": "", "service": "web"},
    }


async def test_an_unknown_resource_is_let_through(gate: Gate) -> None:
    sent = {"kind": "Deployment"}
    resource = {"group": "apps", "version": "v1", "resource": "deployments"}
    assert (await gate.validate(resource=resource, object=sent)).verdict is Verdict.UNMATCHED


# UPDATE


async def update(gate: Gate, old: Json, new: Json, **request: Any) -> Any:
    return await gate.validate(operation="UPDATE", object=new, oldObject=old, **request)


@pytest.mark.parametrize(
    ("labels", "annotations"),
    [
        ({LABEL: "other"}, None),
        ({}, None),
        ({LABEL: "web"}, {ANNOTATION: "f" * 16}),
    ],
)
async def test_an_update_that_touches_what_is_ours_is_refused(
    gate: Gate, labels: Json, annotations: Json | None
) -> None:
    new = pod({"app": "web", **labels}, annotations or {ANNOTATION: WEB.hash}, "u", **PLACED)
    decision = await update(gate, gate.owned("u", **PLACED), new)
    assert (decision.verdict, decision.status.code) == (Verdict.DENY, 403)
    assert decision.findings[0].code is Code.IMMUTABLE


async def test_writing_the_label_on_a_pod_without_one_is_refused(gate: Gate) -> None:
    decision = await update(gate, pod({"app": "x"}, uid="u"), pod({"app": "x", LABEL: "web"}, uid="u"))
    assert decision.verdict is Verdict.DENY


async def test_the_label_of_a_service_that_is_gone_cannot_become_anothers(gate: Gate) -> None:
    old, new = pod({LABEL: "gone"}, uid="u"), pod({LABEL: "web"}, uid="u")
    assert (await update(gate, old, new)).verdict is Verdict.DENY
    assert (await update(gate, old, pod(uid="u"))).allowed, "on its own it is inert"


async def test_an_ordinary_update_is_admitted_uncharged(gate: Gate) -> None:
    new = gate.owned("u", **PLACED)
    new["metadata"]["labels"]["version"] = "2"
    decision = await update(gate, gate.owned("u", **PLACED), new)
    assert decision.verdict is Verdict.ADMIT
    assert gate.store.asked == []


async def test_a_pod_being_deleted_is_always_admitted(gate: Gate) -> None:
    new = pod({"app": "web"}, uid="u")
    new["metadata"] |= {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": []}
    assert (await update(gate, gate.owned("u", **PLACED), new)).verdict is Verdict.ADMIT
    resize = await update(gate, gate.owned("u", **asking("1")), {**new, "spec": asking("100")}, subResource="resize")
    assert (resize.verdict, gate.store.asked) == (Verdict.ADMIT, [])


async def test_a_deletion_timestamp_buys_nothing_at_creation(gate: Gate) -> None:
    sent = gate.owned("u", schedulerName="theirs")
    sent["metadata"]["deletionTimestamp"] = "2027-01-15T08:00:00Z"
    assert (await gate.validate(object=sent)).verdict is Verdict.DENY


@pytest.mark.parametrize(
    ("new", "allowed"),
    [
        (PLACED, True),
        ({**PLACED, "schedulingGates": [{"name": "g"}], "nodeSelector": {"more": "x"}}, True),
        ({"schedulerName": "podgate-scheduler", "schedulingGates": [{"name": "g"}]}, False),
        ({"schedulerName": "podgate-scheduler"}, False),
    ],
    ids=["gate_removed", "tightened", "loosened", "loosened_with_the_gate"],
)
async def test_while_gated_placement_may_not_be_loosened(gate: Gate, new: Json, allowed: bool) -> None:  # noqa: FBT001
    old = gate.owned("u", **PLACED, schedulingGates=[{"name": "g"}])
    decision = await update(gate, old, gate.owned("u", **new))
    assert decision.allowed is allowed
    assert gate.store.asked == []


# resize


async def test_a_resize_is_charged_above_the_high_water_mark_only(gate: Gate) -> None:
    async def resize(before: str, after: str) -> Any:
        old, new = gate.owned("u", **asking(before)), gate.owned("u", **asking(after))
        return await update(gate, old, new, subResource="resize")

    assert (await gate.validate(object=gate.owned("u", **asking("1")))).allowed
    for before, after, used in [("1", "3", 3000), ("3", "1", 3000), ("1", "3", 3000), ("3", "4", 4000)]:
        assert (await resize(before, after)).allowed
        assert await gate.used() == {"pods": 1, "cpu": used}
    refused = await resize("4", "5")
    assert refused.status.code == 429
    assert (await gate.used())["cpu"] == 4000


async def test_a_resize_in_a_dry_run_charges_nothing(gate: Gate) -> None:
    old, new = gate.owned("u", **asking("1")), gate.owned("u", **asking("3"))
    assert (await update(gate, old, new, subResource="resize", dryRun=True)).allowed
    assert (await gate.used())["cpu"] == 0


async def test_a_forged_label_cannot_charge_a_service_of_another_namespace(gate: Gate) -> None:
    """A Pod that no service owns keeps what its tenant wrote; a resize must not spend a neighbour's quota by it."""
    old = pod({"app": "mine", LABEL: "other"}, uid="u", **asking("1"))
    new = pod({"app": "mine", LABEL: "other"}, uid="u", **asking("5"))
    decision = await update(gate, old, new, subResource="resize")
    assert (decision.verdict, decision.service) == (Verdict.UNMATCHED, None)
    assert gate.store.asked == []


async def test_a_resize_of_an_unlabelled_pod_counts_for_the_service_that_would_own_it(gate: Gate) -> None:
    old, new = pod({"app": "web"}, uid="u", **asking("1")), pod({"app": "web"}, uid="u", **asking("2"))
    assert (await update(gate, old, new, subResource="resize")).service == "web"
    assert (await gate.used())["cpu"] == 1000


# one Pod sees one policy


class Sources(FixedPolicy):
    """Knows of a newer document only after it was asked to read again."""

    def __init__(self, loaded: LoadedPolicy, newer: LoadedPolicy | None = None) -> None:
        super().__init__(loaded, VirtualClock(NOW_US))
        self.newer, self.refreshed = newer, 0

    async def refresh(self) -> None:
        self.refreshed += 1
        if self.newer is not None:
            self.set(self.newer)


NEWER = policy_of(POLICY.replace("podgate-scheduler", "newer-scheduler"))


async def test_a_pod_that_carries_the_former_policy_is_judged_by_it_in_both_halves() -> None:
    sources = Sources(WEB)
    sources.set(NEWER)
    gate = Gate(WEB, sources)
    old = gate.owned("u", **PLACED)
    assert (await gate.mutate(object=old)).patch == ()
    decision = await gate.validate(object=old)
    assert (decision.allowed, decision.policy_hash, sources.refreshed) == (True, WEB.hash, 0)


async def test_an_unknown_hash_is_overwritten_by_the_mutating_half_without_reading_again() -> None:
    sources = Sources(WEB)
    decision = await Gate(WEB, sources).mutate(object=pod({"app": "web"}, {ANNOTATION: "f" * 16}))
    assert (ANNOTATION.replace("/", "~1") in decision.patch[1].path, decision.patch[1].value) == (True, WEB.hash)
    assert sources.refreshed == 0


async def test_the_validating_half_reads_once_for_a_hash_that_it_does_not_know() -> None:
    sources = Sources(WEB, NEWER)
    gate = Gate(NEWER, sources)
    sent = gate.owned("u", **{**PLACED, "schedulerName": "newer-scheduler"})
    decision = await gate.validate(object=sent)
    assert (decision.allowed, decision.policy_hash, sources.refreshed) == (True, NEWER.hash, 1)


async def test_a_hash_that_nobody_knows_is_judged_by_our_policy_and_never_called_missing() -> None:
    sources = Sources(WEB)
    gate = Gate(WEB, sources)
    sent = pod({"app": "web"}, {ANNOTATION: "f" * 16}, "u")
    decision = await gate.validate(object=sent)
    assert {finding.code for finding in decision.findings} == {Code.PLACEMENT_UNFULFILLED}
    assert (decision.policy_hash, sources.refreshed) == (WEB.hash, 1)


async def test_without_any_policy_nothing_is_judged(gate: Gate) -> None:
    class Nothing(Sources):
        def current(self) -> LoadedPolicy | None:
            return None

        def by_hash(self, policy_hash: str) -> LoadedPolicy | None:  # noqa: ARG002  the port's signature
            return None

    for sent in (pod(), gate.owned("u")):
        with pytest.raises(NoPolicyError):
            await Gate(WEB, Nothing(WEB)).validate(object=sent)


# unmatched, warnings, the breaker


@pytest.mark.parametrize(
    ("head", "verdict", "warnings"),
    [("", Verdict.UNMATCHED, 0), ("unmatched: Warn", Verdict.UNMATCHED, 1), ("unmatched: Deny", Verdict.DENY, 0)],
)
async def test_a_pod_of_no_service_in_a_namespace_that_one_names(head: str, verdict: Verdict, warnings: int) -> None:
    gate = Gate(policy_of(POLICY, head))
    decision = await gate.validate(object=pod({"app": "nobody"}, uid="u"))
    assert (decision.verdict, len(decision.warnings)) == (verdict, warnings)
    assert (await gate.validate(namespace="free", object=pod(uid="u"))).verdict is Verdict.UNMATCHED
    assert (await gate.validate(namespace="kube-system", object=pod(uid="u"))).verdict is Verdict.EXEMPT
    assert gate.store.asked == []


@pytest.mark.parametrize(("mode", "warned"), [("Warn", 2), ("Audit", 0)])
async def test_modes_that_do_not_enforce_admit_and_charge(mode: str, warned: int) -> None:
    modes = f"  modes: {{placement: {mode}, quota: {mode}, breaker: {mode}}}\n"
    gate = Gate(policy_of(POLICY.replace("  failureMode: Closed\n", modes)))
    decision = await gate.validate(object=gate.owned("u", **asking("5", schedulerName="theirs", affinity=None)))
    assert decision.verdict is Verdict.ADMIT
    assert {finding.code for finding in decision.findings} == {Code.PLACEMENT_CONFLICT, Code.QUOTA_EXCEEDED}
    assert len(decision.warnings) == warned
    assert decision.audit["findings"] == f"PlacementConflict/{mode},QuotaExceeded/{mode}"
    assert (await gate.used())["cpu"] == 5000


async def test_an_open_breaker_refuses_before_the_store_is_asked(gate: Gate) -> None:
    for number in range(2):
        assert (await gate.validate(object=gate.owned(f"u{number}", **PLACED))).allowed
    for number in range(2):
        assert (await gate.validate(object=gate.owned(f"v{number}", **PLACED))).status.code == 429
    asked = len(gate.store.asked)
    gate.clock.set(NOW_US + 20_000_001)
    decision = await gate.validate(object=gate.owned("w", **PLACED))
    assert (decision.status.code, decision.findings[0].code) == (503, Code.BREAKER_OPEN)
    assert "is open until 2027-01-15T08:01:00.000Z" in decision.status.message
    assert len(gate.store.asked) == asked
    update_of_old = await update(gate, gate.owned("u0", **PLACED), gate.owned("u0", **PLACED))
    assert update_of_old.allowed, "an existing Pod is none of the breaker's business"


async def test_past_its_time_an_open_breaker_lets_a_probe_in_and_a_charged_probe_closes_it() -> None:
    gate = Gate(policy_of(POLICY.replace("pods: 2, ", "")))
    for number in range(2):
        await gate.validate(object=gate.owned(f"v{number}", **asking("5")))
    gate.clock.set(NOW_US + 59_999_999)
    assert (await gate.validate(object=gate.owned("w", **asking("1")))).status.code == 503
    gate.clock.set(NOW_US + 60_000_000)
    decision = await gate.validate(object=gate.owned("w", **asking("1")))
    assert decision.allowed
    assert decision.receipt is not None
    assert [str(transition.new) for transition in decision.receipt.transitions] == ["HALF_OPEN", "CLOSED"]


@pytest.mark.parametrize(
    ("user", "references", "source"),
    [
        (ALICE, [{"controller": True, "uid": "r", "kind": "ReplicaSet"}], "user:alice"),
        (REPLICA_SETS, [{"uid": "x"}, {"controller": True, "uid": "r"}], "controller:r"),
        (REPLICA_SETS, [], f"user:{REPLICA_SETS}"),
        (REPLICA_SETS.replace("kube-system", "shop"), [{"controller": True, "uid": "r"}], None),
    ],
)
async def test_only_a_kube_controller_is_accepted_about_its_owner(
    gate: Gate, user: str, references: list[Json], source: str | None
) -> None:
    sent = gate.owned("u", **PLACED)
    sent["metadata"]["ownerReferences"] = references
    await gate.validate(object=sent, userInfo={"username": user})
    assert gate.store.asked[0].event_source == (source or f"user:{user}")


DAEMON_SETS = "system:serviceaccount:kube-system:daemon-set-controller"
OWNED_BY_DAEMON_SET = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]}
FORGED: dict[str, Json] = {
    "owner": OWNED_BY_DAEMON_SET,
    "mirror": {"annotations": {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}},
    "namespace": {"namespace": "kube-system"},
    "manager": {"managedFields": [{"manager": "kube-controller-manager", "operation": "Update"}]},
}


@pytest.mark.parametrize("metadata", FORGED.values(), ids=FORGED)
async def test_whatever_a_tenant_writes_of_a_pods_origin_it_is_rewritten_and_judged(gate: Gate, metadata: Json) -> None:
    sent = pod({"app": "web"}, schedulerName="theirs")
    sent["metadata"] |= metadata
    assert (await gate.mutate(object=sent)).patch
    sent["metadata"] |= {"uid": "u", "name": "web-u"}
    decision = await gate.validate(object=sent)
    assert (decision.verdict, decision.exemption, decision.service) == (Verdict.DENY, "", "web")


@pytest.mark.parametrize(
    ("head", "verdict", "exemption"),
    [("", Verdict.EXEMPT, "daemonSet"), ("exemptions: {daemonSets: false}", Verdict.DENY, "")],
    ids=["by_default", "switched_off"],
)
async def test_pods_of_the_daemon_set_controller_are_exempt_unless_the_policy_says_otherwise(
    head: str, verdict: Verdict, exemption: str
) -> None:
    gate = Gate(policy_of(POLICY, head))
    sent = gate.owned("u", **{**PLACED, "schedulerName": "theirs"})
    sent["metadata"] |= OWNED_BY_DAEMON_SET
    decision = await gate.validate(object=sent, userInfo={"username": DAEMON_SETS})
    assert (decision.verdict, decision.exemption) == (verdict, exemption)
    assert decision.audit.get("exemption", "") == exemption


async def test_observers_count_of_the_finished_review_and_of_transitions() -> None:
    class Hears(Observers):
        def __init__(self) -> None:
            super().__init__()
            self.heard: list[Any] = []

        def reviewed(self, review: Review) -> None:
            self.heard.append(review.decision.verdict)

        def transitioned(self, transition: Any) -> None:
            self.heard.append(str(transition.new))

    hears = Hears()
    gate = Gate(WEB, observers=[hears])
    for number in range(4):
        await gate.validate(object=gate.owned(f"u{number}", **PLACED))
    assert hears.heard == [Verdict.ADMIT, Verdict.ADMIT, Verdict.DENY, "OPEN", Verdict.DENY]
