"""Reports on Pods and workloads: the token, its cause, and the figures of records."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.core.recording import OWNER, RecordedShop
from tests.core.reviewing import REPLICA_SETS
from tests.core.strategies import Json
from webhook.core.diagnosis import Fate, PodFacts, Report, Surroundings, WorkloadFacts, diagnose, diagnose_workload
from webhook.core.diagnosis.objects import ReportedEvent, ReportedNode, ReportedOwner, ReportedPod

NOW_US = 1_800_000_060_000_000
SHOP = RecordedShop()
POLICY = SHOP.gate.loaded
AROUND = Surroundings(NOW_US, policies={POLICY.hash: SHOP.gate.compiled}, in_force=SHOP.gate.compiled)


@pytest.fixture(scope="module", autouse=True)
def records() -> None:
    async def both() -> None:
        await SHOP.create("u1", nodeSelector={"disk": "hdd"})
        await SHOP.create("u2")

    asyncio.run(both())


def stored(name: str = "web-u1", namespace: str = "shop", **status: Any) -> ReportedPod:
    metadata = {"name": name, "namespace": namespace, "uid": name.rpartition("-")[2], "ownerReferences": [OWNER]}
    fields = {"nodeSelector": {"disk": "ssd"}, "schedulerName": "default-scheduler", **status.pop("spec", {})}
    more = {"creationTimestamp": "2027-01-15T08:00:00Z", "labels": {"app": "web"}, **status.pop("metadata", {})}
    return msgspec.convert({"metadata": {**metadata, **more}, "spec": fields, "status": status}, ReportedPod)


def report(existing: ReportedPod | None = None, name: str = "web-u1", **around: Any) -> Report:
    surroundings = Surroundings(**{**{one: getattr(AROUND, one) for one in AROUND.__slots__}, **around})
    records = () if around.get("policies") == {} else tuple(SHOP.recorder.records)
    namespace = "shop" if existing is None else existing.metadata.namespace
    found = diagnose(PodFacts(namespace, name, pod=existing, records=records), surroundings)
    assert found is not None
    return found


def condition(**fields: str) -> list[Json]:
    return [{"type": "PodScheduled", "status": "False", **fields}]


def container(**fields: Any) -> list[Json]:
    return [{"name": "c", "ready": False, "restartCount": 0, **fields}]


ON_A_NODE = {"nodeName": "a1"}
WAITING = {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "i"'}}
CRASHED = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
LAST = {"terminated": {"exitCode": 1, "reason": "Error"}}
READY = [{"type": "Ready", "status": "True"}]
STATES: dict[str, tuple[Json, str]] = {
    "gated": (
        {
            "spec": {"schedulingGates": [{"name": "example.com/wait"}]},
            "conditions": condition(reason="SchedulingGated"),
        },
        "GatedByOthers: example.com/wait: its owner must remove the gate",
    ),
    "queued": (
        {"spec": {"schedulingGates": [{"name": "example.com/wait"}, {"name": "podgate.io/quota"}]}},
        "WaitingForQuota: it is charged, and its gate podgate.io/quota removed, when there is room",
    ),
    "unschedulable": (
        {"conditions": condition(reason="Unschedulable", message="0/4 nodes are available.")},
        "Unschedulable: 0/4 nodes are available.",
    ),
    "unseen": (
        {"spec": {"schedulerName": "nobody"}},
        "Unschedulable: no scheduler has looked at it: is scheduler nobody running?",
    ),
    "new": (
        {"metadata": {"creationTimestamp": "2027-01-15T08:00:55Z"}},
        "Starting: waits for scheduler default-scheduler",
    ),
    "image": (
        {"spec": ON_A_NODE, "phase": "Pending", "containerStatuses": container(state=WAITING)},
        'Failed: container c: ImagePullBackOff: Back-off pulling image "i"',
    ),
    "crash": (
        {"spec": ON_A_NODE, "containerStatuses": container(state=CRASHED, lastState=LAST, restartCount=2)},
        "Failed: container c: CrashLoopBackOff: exit code 1: 2 restarts: back-off 10s",
    ),
    "between crashes": (
        {"spec": ON_A_NODE, "containerStatuses": container(state=LAST, restartCount=1)},
        "Failed: container c: Error: exit code 1: 1 restart",
    ),
    "init": (
        {
            "spec": ON_A_NODE,
            "initContainerStatuses": [{"name": "done", "state": {"terminated": {"exitCode": 0}}}],
            "containerStatuses": container(state={"waiting": {"reason": "PodInitializing"}}),
        },
        "Starting: on a1, not ready yet: c",
    ),
    "running": (
        {"spec": ON_A_NODE, "conditions": READY, "containerStatuses": container(ready=True)},
        "Running: on a1, 1 of 1 containers ready",
    ),
    "ended": ({"spec": ON_A_NODE, "phase": "Succeeded"}, "Succeeded: all containers have ended"),
    "evicted": (
        {"spec": ON_A_NODE, "phase": "Failed", "reason": "Evicted", "message": "low on memory"},
        "Failed: Evicted: low on memory",
    ),
    "deleted": (
        {"metadata": {"deletionTimestamp": "2027-01-15T08:00:50Z"}},
        "Terminating: since 2027-01-15T08:00:50Z",
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_state_of_a_pod_has_token_and_cause(name: str) -> None:
    status, expected = STATES[name]
    found = report(stored(**status))
    assert f"{found.token}: {found.summary}" == expected


def test_admission_has_the_service_and_what_was_written() -> None:
    found = report(stored())
    assert found.admission is not None
    assert (found.admission.decision, found.admission.service, found.admission.user) == ("Admit", "web", REPLICA_SETS)
    assert found.admission.why_service == "services[0]: namespaces shop; podSelector app=web"
    assert [(one.field, one.value, one.rule, one.why) for one in found.rewritten] == [
        ("spec.nodeSelector[disk]", "ssd", "placement.nodeSelector[disk]", "overrides hdd (onConflict Override)")
    ]
    assert [(one.hard, one.used, one.asked) for one in found.quota] == [(1, 1, 1)]


def test_rules_are_the_trace_of_both_halves() -> None:
    found = report(stored()).rules
    assert [one["found"] for one in found if one["stage"] == "own"] == ["service web", "service web"]
    assert found[-1] == {"half": "validate", "stage": "charge", "found": "charged"}
    overridden = "placement.nodeSelector[disk]: overrides hdd (onConflict Override): spec.nodeSelector[disk]"
    assert {"half": "mutate", "stage": "rewrite", "found": overridden} in found


def test_refused_pod_has_the_text_and_the_figures_of_its_denial() -> None:
    found = report(name="web-u2")
    assert found.token is Fate.DENIED
    assert found.summary.startswith("QuotaExceeded: service web: pods in 1m: hard 1, used 1, asked 1; could pass from ")
    [limit] = found.quota
    assert limit.over
    assert f"could pass from {limit.free_at}" in found.summary


def test_nodes_name_the_entry_that_leaves_none() -> None:
    nodes = tuple(msgspec.convert({"metadata": {"name": f"n{index}"}}, ReportedNode) for index in range(3))
    found = report(stored(conditions=condition(reason="Unschedulable", message="0/3")), nodes=nodes)
    assert found.summary == "by the policy: placement.nodeSelector[disk] (disk=ssd) leaves 0 of 3 nodes"


RUNS = {"spec": ON_A_NODE, "conditions": READY}


def test_running_pod_without_record_is_explained_by_the_policy() -> None:
    exempt = report(stored(namespace="free-a", **RUNS), policies={})
    assert exempt.token is Fate.EXEMPT
    assert exempt.summary.startswith(
        "namespace free-a is exempt (exemptions.namespaces, or a system namespace); Running"
    )
    other = report(stored(metadata={"labels": {"app": "other"}}, **RUNS), policies={})
    assert other.token is Fate.UNMATCHED
    labels = {"podgate.io/service": "web", "app": "web"}
    marks = {"labels": labels, "annotations": {"podgate.io/policy-hash": POLICY.hash}}
    marked = report(stored(metadata=marks, **RUNS), policies={})
    assert (marked.token, marked.admission and marked.admission.source) == (Fate.RUNNING, "pod")


def test_nothing_is_known_of_a_pod_without_object_and_record() -> None:
    assert diagnose(PodFacts("shop", "other", records=tuple(SHOP.recorder.records)), AROUND) is None


# --- workloads ---


def replica_set(wanted: int, present: int, message: str = "") -> ReportedOwner:
    conditions = [{"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}]
    status = {"replicas": present, "conditions": conditions if message else None}
    metadata = {"name": "web-7d4b9c", "uid": "r1"}
    made = {"kind": "ReplicaSet", "metadata": metadata, "spec": {"replicas": wanted}, "status": status}
    return msgspec.convert(made, ReportedOwner)


def workload(owner: ReportedOwner, *pods: PodFacts, records: bool = True, message: str = "") -> Report:
    event = {"reason": "FailedCreate", "message": message, "involvedObject": {"uid": "r1"}, "lastTimestamp": "2027"}
    events = (msgspec.convert(event, ReportedEvent),) if message else ()
    known = tuple(SHOP.recorder.records) if records else ()
    found = diagnose_workload(WorkloadFacts("Deployment", "shop", "web", (owner,), events, pods, known), AROUND)
    assert found is not None
    return found


def denial(text: str, webhook: str = "validate-closed.podgate.io") -> str:
    return f'admission webhook "{webhook}" denied the request: {text}'


QUOTA = "QuotaExceeded: service web: pods in 1m: hard 1, used 1, asked 1; could pass from 2027-01-15T08:01:00.000Z"


def test_refused_pods_of_a_workload_are_found_without_a_record() -> None:
    running = PodFacts("shop", "web-u1", pod=stored(**RUNS))
    found = workload(replica_set(3, 1, denial(QUOTA)), running, records=False)
    assert f"{found.token}: {found.summary}" == f"Denied: 2 of 3 Pods: {QUOTA}"
    assert found.pods == {"Denied": 2, "Running": 1}
    assert found.admission is not None
    assert (found.admission.source, found.admission.codes) == ("event", ("QuotaExceeded",))


def test_refused_pods_of_a_workload_have_the_figures_of_their_record() -> None:
    found = workload(replica_set(3, 1, denial(QUOTA)))
    assert found.token is Fate.DENIED
    assert [(one.hard, one.used, one.asked, one.over) for one in found.quota] == [(1, 1, 1, True)]


def test_refusal_by_somebody_else_is_told_apart() -> None:
    other = workload(replica_set(1, 0, denial("no", "other.example.com")))
    assert other.summary == "1 of 1 Pods: not by Podgate: no"
    quota = workload(replica_set(1, 0, 'pods "web-" is forbidden: exceeded quota: q'), records=False)
    assert quota.summary == '1 of 1 Pods: not by Podgate: pods "web-" is forbidden: exceeded quota: q'


def test_call_that_fails_is_no_refusal_by_somebody_else() -> None:
    failed = 'Internal error occurred: failed calling webhook "validate-closed.podgate.io": Post "https://a/": refused'
    found = workload(replica_set(1, 0, failed), records=False)
    assert found.summary == '1 of 1 Pods: the API server cannot call Podgate: Post "https://a/": refused'


def test_event_of_a_failure_that_is_over_is_no_refusal() -> None:
    found = workload(replica_set(1, 1), PodFacts("shop", "web-u1", pod=stored(**RUNS)), message=denial(QUOTA))
    assert found.token is Fate.RUNNING
    assert found.pods == {"Running": 1}


def test_most_severe_pod_of_a_workload_is_shown() -> None:
    crashed = stored("web-u3", spec=ON_A_NODE, containerStatuses=container(state=CRASHED, restartCount=1))
    pods = (PodFacts("shop", "web-u1", pod=stored(**RUNS)), PodFacts("shop", "web-u3", pod=crashed))
    found = workload(replica_set(2, 2), *pods)
    assert found.summary == "1 of 2 Pods: web-u3 container c: CrashLoopBackOff: 1 restart: back-off 10s"
    assert list(found.pods) == ["Failed", "Running"]
    one = PodFacts("shop", "web-u1", pod=stored(**RUNS), records=tuple(SHOP.recorder.records))
    assert workload(replica_set(1, 1), one).rules == report(stored()).rules, "the Pod that is shown is not brief"


def test_workload_that_wants_no_pods_says_so() -> None:
    found = workload(replica_set(0, 0), records=False)
    assert (found.token, found.summary) == (Fate.UNKNOWN, "it wants no Pods")
