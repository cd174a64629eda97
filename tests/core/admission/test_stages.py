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


def build_spec(cpu: str, **more: Any) -> Json:
    return {**PLACED, "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}], **more}


@pytest.fixture
def gate() -> Gate:
    return Gate(WEB)


async def test_dry_run_is_validated_and_not_charged(gate: Gate) -> None:
    for number in range(5):
        decision = await gate.validate(object=gate.build_owned_pod(f"u{number}", **PLACED), dryRun=True)
        assert (decision.verdict, decision.call.dry_run) == (Verdict.ADMIT, True)
        assert decision.steps[-1].found == "not charged (dry run)"
    assert (await gate.read_usage())["pods"] == 0
    for number in range(2):
        assert (await gate.validate(object=gate.build_owned_pod(f"u{number}", **PLACED))).allowed
    refused = await gate.validate(object=gate.build_owned_pod("u9", **PLACED), dryRun=True)
    assert refused.status.code == 429, "a dry run shows the denial that would come"


async def test_uid_is_charged_once_in_repeated_reviews(gate: Gate) -> None:
    for number in range(4):
        decision = await gate.validate(uid=f"review-{number}", object=gate.build_owned_pod("u1", **PLACED))
        assert decision.allowed
    assert (await gate.read_usage())["pods"] == 1


async def test_a_pod_denied_for_its_fields_is_not_charged(gate: Gate) -> None:
    decision = await gate.validate(object=gate.build_owned_pod("u1", schedulerName="theirs"))
    assert (decision.verdict, decision.status.code, decision.status.reason) == (Verdict.DENY, 403, "Forbidden")
    assert decision.status.message.startswith("PlacementConflict: service web: spec.schedulerName is 'theirs'")
    assert gate.store.requests == []


async def test_a_pod_denied_by_quota_is_not_charged_in_part(gate: Gate) -> None:
    assert (await gate.validate(object=gate.build_owned_pod("u1", **build_spec("3")))).allowed
    refused = await gate.validate(object=gate.build_owned_pod("u2", **build_spec("2")))
    assert (refused.verdict, refused.status.code) == (Verdict.DENY, 429)
    assert await gate.read_usage() == {"pods": 1, "cpu": 3000}
    assert refused.status.retry_after_seconds is None


@pytest.mark.parametrize(
    "invalid",
    [
        pod({"app": "web"}, schedulerName="theirs"),
        pod({"app": "web", LABEL: "forged"}),
        pod({"app": "web"}, containers=[{"name": "c", "resources": {"requests": {"cpu": "nonsense"}}}]),
        pod({"app": "nobody"}),
    ],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
async def test_the_mutating_half_never_denies(invalid: Json, operation: str) -> None:
    gate = Gate(policy_of(POLICY, "unmatched: Deny"))
    decision = await gate.mutate(object=invalid, oldObject=gate.build_owned_pod("u"), operation=operation)
    assert decision.allowed
    assert gate.store.requests == []
    assert operation == "CREATE" or decision.patch == ()


async def test_validating_half_admits_a_rewritten_pod_without_a_patch(gate: Gate) -> None:
    answer = await gate.ask(Half.MUTATE, object=pod({"app": "web"}))
    response = msgspec.json.decode(answer.body)["response"]
    paths = [operation["path"] for operation in msgspec.json.decode(base64.b64decode(response["patch"]))]
    assert paths == [
        "/metadata/labels/podgate.io~1service",
        "/metadata/annotations",
        "/spec/schedulerName",
        "/spec/affinity",
    ]
    validated = msgspec.json.decode((await gate.ask(Half.VALIDATE, object=gate.build_owned_pod("u", **PLACED))).body)[
        "response"
    ]
    assert validated == {
        "uid": "review-1",
        "allowed": True,
        "auditAnnotations": {"decision": "Admit", "policy-hash": WEB.hash, "client-id": "", "service": "web"},
    }


async def test_unknown_resource_is_unmatched(gate: Gate) -> None:
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
async def test_update_of_podgates_label_or_annotation_is_refused(
    gate: Gate, labels: Json, annotations: Json | None
) -> None:
    new = pod({"app": "web", **labels}, annotations or {ANNOTATION: WEB.hash}, "u", **PLACED)
    decision = await update(gate, gate.build_owned_pod("u", **PLACED), new)
    assert (decision.verdict, decision.status.code) == (Verdict.DENY, 403)
    assert decision.findings[0].code is Code.IMMUTABLE


async def test_writing_the_label_on_a_pod_without_one_is_refused(gate: Gate) -> None:
    decision = await update(gate, pod({"app": "x"}, uid="u"), pod({"app": "x", LABEL: "web"}, uid="u"))
    assert decision.verdict is Verdict.DENY


async def test_label_of_a_removed_service_may_not_change_to_another_service(gate: Gate) -> None:
    old, new = pod({LABEL: "gone"}, uid="u"), pod({LABEL: "web"}, uid="u")
    assert (await update(gate, old, new)).verdict is Verdict.DENY
    assert (await update(gate, old, pod(uid="u"))).allowed, "the label of an unknown service has no effect"


async def test_an_ordinary_update_is_admitted_uncharged(gate: Gate) -> None:
    new = gate.build_owned_pod("u", **PLACED)
    new["metadata"]["labels"]["version"] = "2"
    decision = await update(gate, gate.build_owned_pod("u", **PLACED), new)
    assert decision.verdict is Verdict.ADMIT
    assert gate.store.requests == []


async def test_an_update_of_a_pod_being_deleted_is_judged_as_any_other(gate: Gate) -> None:
    deleted = {"deletionTimestamp": "2027-01-15T08:00:00Z", "finalizers": []}

    def build_terminating_pod(labels: Json, **spec: Any) -> Json:
        document = gate.build_owned_pod("u", **spec)
        document["metadata"] = {
            **document["metadata"],
            **deleted,
            "labels": {**document["metadata"]["labels"], **labels},
        }
        return document

    assert (
        await update(gate, gate.build_owned_pod("u", **PLACED), build_terminating_pod({"role": "x"}, **PLACED))
    ).verdict is Verdict.ADMIT
    relabelled = pod({"app": "other"}, uid="u", **PLACED)
    relabelled["metadata"] |= deleted
    decision = await update(gate, gate.build_owned_pod("u", **PLACED), relabelled)
    assert decision.verdict is Verdict.DENY
    assert "metadata.labels[podgate.io/service] is Podgate's and cannot be changed" in decision.status.message
    gated = gate.build_owned_pod("u", **PLACED, schedulingGates=[{"name": "g"}])
    assert (await update(gate, gated, build_terminating_pod({}))).verdict is Verdict.DENY, "its placement is loosened"
    old, new = gate.build_owned_pod("u", **build_spec("1")), build_terminating_pod({}, **build_spec("100"))
    assert (await update(gate, old, new, subResource="resize")).verdict is Verdict.DENY


async def test_deletion_timestamp_is_ignored_on_create(gate: Gate) -> None:
    sent = gate.build_owned_pod("u", schedulerName="theirs")
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
async def test_placement_of_a_gated_pod_may_not_be_loosened(gate: Gate, new: Json, allowed: bool) -> None:  # noqa: FBT001
    old = gate.build_owned_pod("u", **PLACED, schedulingGates=[{"name": "g"}])
    decision = await update(gate, old, gate.build_owned_pod("u", **new))
    assert decision.allowed is allowed
    assert gate.store.requests == []


# resize


async def test_a_resize_is_charged_above_the_high_water_mark_only(gate: Gate) -> None:
    async def resize(before: str, after: str) -> Any:
        old, new = gate.build_owned_pod("u", **build_spec(before)), gate.build_owned_pod("u", **build_spec(after))
        return await update(gate, old, new, subResource="resize")

    assert (await gate.validate(object=gate.build_owned_pod("u", **build_spec("1")))).allowed
    for before, after, used in [("1", "3", 3000), ("3", "1", 3000), ("1", "3", 3000), ("3", "4", 4000)]:
        assert (await resize(before, after)).allowed
        assert await gate.read_usage() == {"pods": 1, "cpu": used}
    refused = await resize("4", "5")
    assert refused.status.code == 429
    assert (await gate.read_usage())["cpu"] == 4000


async def test_a_resize_in_a_dry_run_charges_nothing(gate: Gate) -> None:
    old, new = gate.build_owned_pod("u", **build_spec("1")), gate.build_owned_pod("u", **build_spec("3"))
    assert (await update(gate, old, new, subResource="resize", dryRun=True)).allowed
    assert (await gate.read_usage())["cpu"] == 0


async def test_a_forged_label_cannot_charge_a_service_of_another_namespace(gate: Gate) -> None:
    """An unowned Pod keeps the label that its tenant wrote: a resize must not charge the service of another tenant."""
    old = pod({"app": "mine", LABEL: "other"}, uid="u", **build_spec("1"))
    new = pod({"app": "mine", LABEL: "other"}, uid="u", **build_spec("5"))
    decision = await update(gate, old, new, subResource="resize")
    assert (decision.verdict, decision.service) == (Verdict.UNMATCHED, None)
    assert gate.store.requests == []


async def test_resize_of_an_unlabelled_pod_is_charged_to_its_owner(gate: Gate) -> None:
    old, new = pod({"app": "web"}, uid="u", **build_spec("1")), pod({"app": "web"}, uid="u", **build_spec("2"))
    assert (await update(gate, old, new, subResource="resize")).service == "web"
    assert (await gate.read_usage())["cpu"] == 1000


# one Pod sees one policy


class RefreshableSource(FixedPolicy):
    """A source that has a newer document only after a refresh."""

    def __init__(self, loaded: LoadedPolicy, newer: LoadedPolicy | None = None) -> None:
        super().__init__(loaded, VirtualClock(NOW_US))
        self.newer, self.refreshed = newer, 0

    async def refresh(self) -> None:
        self.refreshed += 1
        if self.newer is not None:
            self.set(self.newer)


def add_managed_fields(document: Json, *annotations: str) -> Json:
    """Return a Pod as the API server sends it if its creator wrote these annotations."""
    fields = {f"f:{key}": {} for key in annotations}
    managers = [{"manager": "kubectl-create", "fieldsV1": {"f:metadata": {"f:annotations": fields}}}]
    return {**document, "metadata": {**document["metadata"], "managedFields": managers}}


NEWER = policy_of(POLICY.replace("podgate-scheduler", "newer-scheduler"))


async def test_pod_with_the_former_policy_hash_is_reviewed_by_that_policy_in_both_halves() -> None:
    policies = RefreshableSource(WEB)
    policies.set(NEWER)
    gate = Gate(WEB, policies)
    old = add_managed_fields(gate.build_owned_pod("u", **PLACED), "app")
    assert (await gate.mutate(object=old)).patch == ()
    decision = await gate.validate(object=old)
    assert (decision.allowed, decision.policy_hash, policies.refreshed) == (True, WEB.hash, 0)


@pytest.mark.parametrize("keys", [(), (ANNOTATION,)], ids=["without managed fields", "with the hash among them"])
async def test_creator_of_a_pod_cannot_choose_a_former_policy(keys: tuple[str, ...]) -> None:
    policies = RefreshableSource(WEB)
    policies.set(NEWER)
    gate = Gate(WEB, policies)
    copied = (
        add_managed_fields(gate.build_owned_pod("u", **PLACED), *keys) if keys else gate.build_owned_pod("u", **PLACED)
    )
    decision = await gate.mutate(object=copied)
    assert decision.policy_hash == NEWER.hash
    assert NEWER.hash in [operation.value for operation in decision.patch]
    skipped = await gate.validate(object=copied)
    assert skipped.policy_hash == NEWER.hash, "also where the mutating webhook was not called"


async def test_mutating_half_overwrites_an_unknown_hash_without_a_refresh() -> None:
    policies = RefreshableSource(WEB)
    decision = await Gate(WEB, policies).mutate(object=pod({"app": "web"}, {ANNOTATION: "f" * 16}))
    assert (ANNOTATION.replace("/", "~1") in decision.patch[1].path, decision.patch[1].value) == (True, WEB.hash)
    assert policies.refreshed == 0


async def test_validating_half_refreshes_once_for_an_unknown_hash() -> None:
    policies = RefreshableSource(WEB, NEWER)
    gate = Gate(NEWER, policies)
    sent = gate.build_owned_pod("u", **{**PLACED, "schedulerName": "newer-scheduler"})
    decision = await gate.validate(object=sent)
    assert (decision.allowed, decision.policy_hash, policies.refreshed) == (True, NEWER.hash, 1)


async def test_pod_with_an_unknown_hash_is_checked_without_mutation_missing() -> None:
    policies = RefreshableSource(WEB)
    gate = Gate(WEB, policies)
    sent = pod({"app": "web"}, {ANNOTATION: "f" * 16}, "u")
    decision = await gate.validate(object=sent)
    assert {finding.code for finding in decision.findings} == {Code.PLACEMENT_UNFULFILLED}
    assert (decision.policy_hash, policies.refreshed) == (WEB.hash, 1)


async def test_validation_without_a_policy_raises_an_error(gate: Gate) -> None:
    class NoPolicy(RefreshableSource):
        def get_current(self) -> LoadedPolicy | None:
            return None

        def find_by_hash(self, policy_hash: str) -> LoadedPolicy | None:  # noqa: ARG002  the port's signature
            return None

    for sent in (pod(), gate.build_owned_pod("u")):
        with pytest.raises(NoPolicyError):
            await Gate(WEB, NoPolicy(WEB)).validate(object=sent)


# unmatched, warnings, the breaker


@pytest.mark.parametrize(
    ("head", "verdict", "warnings"),
    [("", Verdict.UNMATCHED, 0), ("unmatched: Warn", Verdict.UNMATCHED, 1), ("unmatched: Deny", Verdict.DENY, 0)],
)
async def test_unmatched_decides_on_an_unowned_pod_in_the_namespace_of_a_service(
    head: str, verdict: Verdict, warnings: int
) -> None:
    gate = Gate(policy_of(POLICY, head))
    decision = await gate.validate(object=pod({"app": "nobody"}, uid="u"))
    assert (decision.verdict, len(decision.warnings)) == (verdict, warnings)
    assert (await gate.validate(namespace="free", object=pod(uid="u"))).verdict is Verdict.UNMATCHED
    assert (await gate.validate(namespace="kube-system", object=pod(uid="u"))).verdict is Verdict.EXEMPT
    assert gate.store.requests == []


@pytest.mark.parametrize(("mode", "warnings"), [("Warn", 2), ("Audit", 0)])
async def test_modes_that_do_not_enforce_admit_and_charge(mode: str, warnings: int) -> None:
    modes = f"  modes: {{placement: {mode}, quota: {mode}, breaker: {mode}}}\n"
    gate = Gate(policy_of(POLICY.replace("  failureMode: Closed\n", modes)))
    decision = await gate.validate(
        object=gate.build_owned_pod("u", **build_spec("5", schedulerName="theirs", affinity=None))
    )
    assert decision.verdict is Verdict.ADMIT
    assert {finding.code for finding in decision.findings} == {Code.PLACEMENT_CONFLICT, Code.QUOTA_EXCEEDED}
    assert len(decision.warnings) == warnings
    assert decision.audit["findings"] == f"PlacementConflict/{mode},QuotaExceeded/{mode}"
    assert (await gate.read_usage())["cpu"] == 5000


async def test_open_breaker_denies_without_a_call_to_the_store(gate: Gate) -> None:
    for number in range(2):
        assert (await gate.validate(object=gate.build_owned_pod(f"u{number}", **PLACED))).allowed
    for number in range(2):
        assert (await gate.validate(object=gate.build_owned_pod(f"v{number}", **PLACED))).status.code == 429
    calls_before = len(gate.store.requests)
    gate.clock.set(NOW_US + 20_000_001)
    decision = await gate.validate(object=gate.build_owned_pod("w", **PLACED))
    assert (decision.status.code, decision.findings[0].code) == (503, Code.BREAKER_OPEN)
    assert "is open until 2027-01-15T08:01:00.000Z" in decision.status.message
    assert len(gate.store.requests) == calls_before
    update_of_old = await update(gate, gate.build_owned_pod("u0", **PLACED), gate.build_owned_pod("u0", **PLACED))
    assert update_of_old.allowed, "the breaker does not apply to existing Pods"


async def test_open_breaker_admits_a_probe_after_its_end_and_a_charged_probe_closes_it() -> None:
    gate = Gate(policy_of(POLICY.replace("pods: 2, ", "")))
    for number in range(2):
        await gate.validate(object=gate.build_owned_pod(f"v{number}", **build_spec("5")))
    gate.clock.set(NOW_US + 59_999_999)
    assert (await gate.validate(object=gate.build_owned_pod("w", **build_spec("1")))).status.code == 503
    gate.clock.set(NOW_US + 60_000_000)
    decision = await gate.validate(object=gate.build_owned_pod("w", **build_spec("1")))
    assert decision.allowed
    assert decision.charge.receipt is not None
    assert [str(transition.new) for transition in decision.charge.receipt.transitions] == ["HALF_OPEN", "CLOSED"]


@pytest.mark.parametrize(
    ("user", "references", "source"),
    [
        (ALICE, [{"controller": True, "uid": "r", "kind": "ReplicaSet"}], "user:alice"),
        (REPLICA_SETS, [{"uid": "x"}, {"controller": True, "uid": "r"}], "controller:r"),
        (REPLICA_SETS, [], f"user:{REPLICA_SETS}"),
        (REPLICA_SETS.replace("kube-system", "shop"), [{"controller": True, "uid": "r"}], None),
    ],
)
async def test_only_kube_controllers_set_the_owner_as_event_source(
    gate: Gate, user: str, references: list[Json], source: str | None
) -> None:
    sent = gate.build_owned_pod("u", **PLACED)
    sent["metadata"]["ownerReferences"] = references
    await gate.validate(object=sent, userInfo={"username": user})
    assert gate.store.requests[0].event_source == (source or f"user:{user}")


DAEMON_SETS = "system:serviceaccount:kube-system:daemon-set-controller"
OWNED_BY_DAEMON_SET = {"ownerReferences": [{"kind": "DaemonSet", "name": "d", "uid": "d", "controller": True}]}
FORGED: dict[str, Json] = {
    "owner": OWNED_BY_DAEMON_SET,
    "mirror": {"annotations": {"kubernetes.io/config.mirror": "x", "kubernetes.io/config.source": "file"}},
    "namespace": {"namespace": "kube-system"},
    "manager": {"managedFields": [{"manager": "kube-controller-manager", "operation": "Update"}]},
}


@pytest.mark.parametrize("metadata", FORGED.values(), ids=FORGED)
async def test_pod_with_a_forged_origin_is_rewritten_and_denied(gate: Gate, metadata: Json) -> None:
    sent = pod({"app": "web"}, schedulerName="theirs")
    sent["metadata"] |= metadata
    assert (await gate.mutate(object=sent)).patch
    sent["metadata"] |= {"uid": "u", "name": "web-u"}
    decision = await gate.validate(object=sent)
    assert (decision.verdict, decision.deviation.exemption, decision.service) == (Verdict.DENY, "", "web")


@pytest.mark.parametrize(
    ("head", "verdict", "exemption"),
    [("", Verdict.EXEMPT, "daemonSet"), ("exemptions: {daemonSets: false}", Verdict.DENY, "")],
    ids=["by_default", "switched_off"],
)
async def test_pods_of_the_daemon_set_controller_are_exempt_unless_the_policy_disables_it(
    head: str, verdict: Verdict, exemption: str
) -> None:
    gate = Gate(policy_of(POLICY, head))
    sent = gate.build_owned_pod("u", **{**PLACED, "schedulerName": "theirs"})
    sent["metadata"] |= OWNED_BY_DAEMON_SET
    decision = await gate.validate(object=sent, userInfo={"username": DAEMON_SETS})
    assert (decision.verdict, decision.deviation.exemption) == (verdict, exemption)
    assert decision.audit.get("exemption", "") == exemption


async def test_observers_receive_reviews_and_transitions() -> None:
    class Recorder(Observers):
        def __init__(self) -> None:
            super().__init__()
            self.received: list[Any] = []

        def on_reviewed(self, review: Review) -> None:
            self.received.append(review.decision.verdict)

        def on_transition(self, transition: Any) -> None:
            self.received.append(str(transition.new))

    recorder = Recorder()
    gate = Gate(WEB, observers=[recorder])
    for number in range(4):
        await gate.validate(object=gate.build_owned_pod(f"u{number}", **PLACED))
    assert recorder.received == [Verdict.ADMIT, Verdict.ADMIT, Verdict.DENY, "OPEN", Verdict.DENY]
