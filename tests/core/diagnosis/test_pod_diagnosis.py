"""Reports on Pods and workloads: the token, its cause, and the figures of records."""

import asyncio
from dataclasses import replace as replace_dataclass
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.core.recording import OWNER, RecordedShop
from tests.core.reviewing import REPLICA_SETS, policy_of
from tests.core.strategies import Json
from webhook.commands.pages.pod_report_page import format_report
from webhook.core.admission.decision import Verdict
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.diagnosis import Fate, PodFacts, Report, Surroundings, WorkloadFacts, diagnose, diagnose_workload
from webhook.core.diagnosis.objects import ReportedEvent, ReportedMaker, ReportedNode, ReportedOwner, ReportedPod
from webhook.core.diagnosis.pod_diagnosis import choose_denial_token
from webhook.core.quota import Holder
from webhook.core.reporting.decision_record import DecisionRecord
from webhook.core.reporting.limit_record import RecordedLimit
from webhook.core.reporting.queue_document import QueueRow, WaitCause

NOW_US = 1_800_000_060_000_000
SHOP = RecordedShop()
POLICY = SHOP.gate.loaded
AROUND = Surroundings(NOW_US, policies={POLICY.hash: SHOP.gate.compiled}, in_force=SHOP.gate.compiled)


@pytest.fixture(scope="module", autouse=True)
def records() -> None:
    async def record_both() -> None:
        await SHOP.create("u1", nodeSelector={"disk": "hdd"})
        await SHOP.create("u2")

    asyncio.run(record_both())


def build_stored_pod(name: str = "web-u1", namespace: str = "shop", **status: Any) -> ReportedPod:
    metadata = {"name": name, "namespace": namespace, "uid": name.rpartition("-")[2], "ownerReferences": [OWNER]}
    fields = {"nodeSelector": {"disk": "ssd"}, "schedulerName": "default-scheduler", **status.pop("spec", {})}
    more = {"creationTimestamp": "2027-01-15T08:00:00Z", "labels": {"app": "web"}, **status.pop("metadata", {})}
    return msgspec.convert({"metadata": {**metadata, **more}, "spec": fields, "status": status}, ReportedPod)


def report(existing: ReportedPod | None = None, name: str = "web-u1", **around: Any) -> Report:
    surroundings = Surroundings(**{**{name: getattr(AROUND, name) for name in AROUND.__slots__}, **around})
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
        (
            "WaitingForQuota: it is charged, and its gate podgate.io/quota removed, when there is room;"
            " example.com/wait holds it too"
        ),
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
    found = report(build_stored_pod(**status))
    assert f"{found.token}: {found.summary}" == expected


def test_admission_has_the_service_and_what_was_written() -> None:
    found = report(build_stored_pod())
    assert found.admission is not None
    assert (found.admission.decision, found.admission.service, found.admission.user) == ("Admit", "web", REPLICA_SETS)
    assert found.admission.why_service == "services[0]: namespaces shop; podSelector app=web"
    assert [(rewrite.field, rewrite.value, rewrite.rule, rewrite.why) for rewrite in found.rewritten] == [
        ("spec.nodeSelector[disk]", "ssd", "placement.nodeSelector[disk]", "overrides hdd (onConflict Override)")
    ]
    assert [(row.hard, row.used, row.asked) for row in found.quota] == [(1, 1, 1)]


def test_rules_are_the_trace_of_both_halves() -> None:
    found = report(build_stored_pod()).rules
    assert [step["found"] for step in found if step["stage"] == "own"] == ["service web", "service web"]
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
    found = report(build_stored_pod(conditions=condition(reason="Unschedulable", message="0/3")), nodes=nodes)
    assert found.summary == "by the policy: placement.nodeSelector[disk] (disk=ssd) leaves 0 of 3 nodes"


RUNS = {"spec": ON_A_NODE, "conditions": READY}


def test_running_pod_without_record_is_explained_by_the_policy() -> None:
    exempt = report(build_stored_pod(namespace="free-a", **RUNS), policies={})
    assert exempt.token is Fate.EXEMPT
    assert exempt.summary.startswith(
        "namespace free-a is exempt (exemptions.namespaces, or a system namespace); Running"
    )
    other = report(build_stored_pod(metadata={"labels": {"app": "other"}}, **RUNS), policies={})
    assert other.token is Fate.UNMATCHED
    labels = {"podgate.io/service": "web", "app": "web"}
    marks = {"labels": labels, "annotations": {"podgate.io/policy-hash": POLICY.hash}}
    marked = report(build_stored_pod(metadata=marks, **RUNS), policies={})
    assert (marked.token, marked.admission and marked.admission.source) == (Fate.RUNNING, "pod")


def test_a_pod_without_record_is_judged_by_the_policy_that_it_carries() -> None:
    annotations = {"podgate.io/policy-hash": POLICY.hash}
    metadata = {"labels": {"app": "web", "podgate.io/service": "web"}, "annotations": annotations}
    unscheduled = build_stored_pod(metadata=metadata, conditions=condition(reason="Unschedulable", message="0/1 nodes"))
    nodes = (msgspec.convert({"metadata": {"name": "a1", "labels": {"disk": "hdd"}}}, ReportedNode),)
    facts = PodFacts("shop", "web-u1", pod=unscheduled)
    known = diagnose(facts, Surroundings(NOW_US, policies={POLICY.hash: SHOP.gate.compiled}, nodes=nodes))
    assert known is not None
    assert known.summary.startswith("by the policy: placement.nodeSelector[disk] (disk=ssd)")
    unknown = diagnose(facts, Surroundings(NOW_US, nodes=nodes))
    assert unknown is not None
    assert f"cannot be told: policy {POLICY.hash}, which rewrote the Pod, cannot be read" in unknown.summary


def test_nothing_is_known_of_a_pod_without_object_and_record() -> None:
    assert diagnose(PodFacts("shop", "other", records=tuple(SHOP.recorder.records)), AROUND) is None


# --- tokens of denials and of Pods that wait ---


def limit(of: Holder, *, over: bool = True, window: str = "") -> RecordedLimit:
    window = "standing" if of is Holder.STANDING else window
    return RecordedLimit(of, "web", window, "pods", 3, 3, 1, over=over)


@pytest.mark.parametrize(
    ("codes", "limits", "token"),
    [
        (("BreakerOpen",), (), Fate.BREAKER_OPEN),
        (("QuotaExceeded",), (limit(Holder.STANDING),), Fate.WAITING_FOR_LIVE_PODS),
        (("QuotaExceeded",), (limit(Holder.STANDING), limit(Holder.SERVICE, over=False)), Fate.WAITING_FOR_LIVE_PODS),
        (("QuotaExceeded",), (limit(Holder.STANDING), limit(Holder.POOL)), Fate.DENIED),
        (("QuotaExceeded",), (limit(Holder.POOL, window="standing"),), Fate.WAITING_FOR_LIVE_PODS),
        (("QuotaExceeded",), (), Fate.DENIED),
        (("PlacementConflict", "BreakerOpen"), (), Fate.DENIED),
    ],
)
def test_token_of_a_denial_is_by_its_first_code_and_exceeded_limits(
    codes: tuple[str, ...], limits: tuple[RecordedLimit, ...], token: Fate
) -> None:
    assert choose_denial_token(codes, limits) is token


def diagnose_waiting_pod(
    when_expired: str,
    age_seconds: int,
    existing: ReportedPod | None,
    *more: DecisionRecord,
    events: tuple[ReportedEvent, ...] = (),
) -> str:
    """Return the first line about a Pod whose service lets it wait for a minute, that long after its creation."""
    rules = f"whenExceeded: Queue, queue: {{maxWait: 1m, whenExpired: {when_expired}}}"
    quota = f"quota: {{windows: [{{window: 1m, hard: {{pods: 1}}}}], {rules}}}"
    policy = CompiledPolicy(policy_of(f"- {{name: web, match: {{namespaces: [shop]}}, {quota}}}"))
    admitted = next(record for record in SHOP.recorder.records if record.uid == "u1")
    record = replace(admitted, decision=Verdict.QUEUE, policy=policy.hash)
    now_us = int(record.at.timestamp() * 1_000_000) + age_seconds * 1_000_000
    around = Surroundings(now_us, policies={policy.hash: policy}, in_force=policy)
    found = diagnose(PodFacts("shop", "web-u1", pod=existing, events=events, records=(*more, record)), around)
    assert found is not None
    return f"{found.token}: {found.summary}"


def test_overload_by_which_a_pod_was_gated_is_told() -> None:
    why = "this server is overloaded: P99 of reviews 1.2 s above 800 ms over 10 s"
    _, _, validate, mutate = SHOP.recorder.records
    queued = replace(validate, decision=Verdict.QUEUE)
    gated = replace(mutate, decision=Verdict.QUEUE, overload=why)
    for records in [(queued, gated), (replace(queued, overload=why),)]:
        existing = build_stored_pod(spec={"schedulingGates": [{"name": "podgate.io/quota"}]})
        found = diagnose(PodFacts("shop", "web-u1", pod=existing, records=records), AROUND)
        assert found is not None
        assert f" Queue: {why}, service web (" in format_report(found)


def test_pod_that_waited_for_too_long_has_expired() -> None:
    gated = build_stored_pod(spec={"schedulingGates": [{"name": "podgate.io/quota"}]})
    ended = "Expired: it has waited longer than queue.maxWait, 60 s, and queue.whenExpired is"
    assert diagnose_waiting_pod("Delete", 61, None) == f"{ended} Delete: it does not exist"
    assert diagnose_waiting_pod("Keep", 75, gated) == f"{ended} Keep: it waits on"
    for still in (
        diagnose_waiting_pod("Delete", 59, None),
        diagnose_waiting_pod("Delete", 600, gated),
        diagnose_waiting_pod("Keep", 59, gated),
    ):
        assert still.startswith("WaitingForQuota: ")
    assert diagnose_waiting_pod("Delete", 59, None).endswith("; it does not exist")
    released = replace(next(record for record in SHOP.recorder.records if record.uid == "u1"), operation="UPDATE")
    assert diagnose_waiting_pod("Delete", 600, None, released).startswith("WaitingForQuota: ")


def test_waiting_pod_is_told_its_place_and_moment_or_why_that_is_unknown() -> None:
    gated = build_stored_pod(spec={"schedulingGates": [{"name": "podgate.io/quota"}]})
    words = {
        "queue": "shared",
        "sla_class": "gold",
        "service": "web",
        "namespace": "shop",
        "name": "web-u1",
        "uid": "u1",
    }
    row = QueueRow(
        **words,
        place=9,
        class_place=7,
        class_waiting=23,
        since="2026-12-01T04:00:00.000Z",
        waiting_seconds=3,
        lifted=False,
        owner="",
        cause=WaitCause.QUOTA_EXCEEDED,
        why="a limit of pool shared is reached",
        expected_at="2026-12-01T04:00:41.000Z",
        expires_at=None,
    )

    def summary(waiting: QueueRow) -> str:
        found = diagnose(PodFacts("shop", "web-u1", pod=gated, waiting=waiting), Surroundings(0))
        assert found is not None
        assert found.queue is waiting
        return f"{found.token}: {found.summary}"

    assert summary(row) == "WaitingForQuota: 7th of 23 in gold; may go from 04:00:41Z"
    late = replace(row, expires_at="2026-12-01T04:00:20.000Z")
    assert summary(late) == (
        "WaitingForQuota: 7th of 23 in gold; expires at 04:00:20Z, before its turn: may go from 04:00:41Z"
    )
    unknown = replace(row, expected_at=None, why="the queue is paused until 05:00")
    assert summary(unknown) == "WaitingForQuota: 7th of 23 in gold; the queue is paused until 05:00"
    breaker = replace(unknown, cause=WaitCause.BREAKER_OPEN, why="the breaker is OPEN until 05:00")
    assert summary(breaker) == "BreakerOpen: the breaker is OPEN until 05:00; it waits as 7th of 23 in gold"
    ends = replace(breaker, not_before="2026-12-01T05:00:00.000Z", expires_at="2026-12-01T04:30:00.000Z")
    assert summary(ends) == (
        "BreakerOpen: the breaker is OPEN until 05:00; it waits as 7th of 23 in gold;"
        " expires at 04:30:00Z, before its turn"
    )
    paused = replace(ends, cause=WaitCause.PAUSED, why="the queue is paused until 05:00")
    assert summary(paused) == (
        "WaitingForQuota: 7th of 23 in gold; expires at 04:30:00Z, before its turn: the queue is paused until 05:00"
    )
    in_time = replace(paused, expires_at="2026-12-01T05:30:00.000Z")
    assert summary(in_time) == "WaitingForQuota: 7th of 23 in gold; the queue is paused until 05:00"
    live = replace(unknown, cause=WaitCause.LIVE_PODS, why="the limit on live Pods of web is reached")
    assert summary(live) == (
        "WaitingForLivePods: the limit on live Pods of web is reached; it waits as 7th of 23 in gold"
    )


def build_ending_event(reason: str, action: str, message: str, uid: str = "u1") -> ReportedEvent:
    about = {"kind": "Pod", "namespace": "shop", "name": "web-u1", "uid": uid}
    event = {"reason": reason, "action": action, "message": message, "involvedObject": about, "eventTime": "2027"}
    return msgspec.convert(event, ReportedEvent)


def test_pod_that_was_deleted_while_it_waited_is_known_by_its_event() -> None:
    expired = build_ending_event("ExpiredInQueue", "Delete", "it has waited longer than queue.maxWait, 60 s, and ...")
    ended = "it has waited longer than queue.maxWait, 60 s, and ...; deleted at 2027"
    dropped = build_ending_event("DroppedFromQueue", "Drop", "dropped from the queue of web: INC-1")
    assert diagnose_waiting_pod("Delete", 3, None, events=(expired,)) == f"Expired: {ended}"
    assert diagnose_waiting_pod("Delete", 3, None, events=(dropped,)) == (
        "Dropped: dropped from the queue of web: INC-1; deleted at 2027"
    )
    kept = build_ending_event("ExpiredInQueue", "Keep", "it has waited ...")
    other = build_ending_event("ExpiredInQueue", "Delete", "it has waited ...", uid="u9")
    for no_end in (kept, other):
        assert diagnose_waiting_pod("Delete", 3, None, events=(no_end,)).startswith("WaitingForQuota: ")
    gated = build_stored_pod(spec={"schedulingGates": [{"name": "podgate.io/quota"}]})
    assert diagnose_waiting_pod("Keep", 3, gated, events=(kept,)).endswith("whenExpired is Keep: it waits on")
    facts = PodFacts("shop", "web-u1", events=(expired,))
    found = diagnose(facts, Surroundings(0))
    assert found is not None
    assert (f"{found.token}: {found.summary}", found.subject.uid) == (f"Expired: {ended}", "u1")


def list_dry_runs(uid: str, **fields: Any) -> tuple[DecisionRecord, ...]:
    return tuple(
        replace(record, dry_run=True, **fields) for record in SHOP.recorder.records if record.name == f"web-{uid}"
    )


@pytest.mark.parametrize(
    ("uid", "decision", "expected"),
    [
        ("u1", {}, "Admitted: dry run, nothing was created: "),
        ("u2", {}, "Denied: dry run, nothing was created: QuotaExceeded: service web: pods in 1m: hard 1, used 1"),
        ("u1", {"decision": Verdict.QUEUE}, "WaitingForQuota: dry run, nothing was created: since "),
    ],
)
def test_a_dry_run_is_found_and_marked(uid: str, decision: Json, expected: str) -> None:
    facts = PodFacts("shop", f"web-{uid}", records=list_dry_runs(uid, **decision))
    found = diagnose(facts, replace_dataclass(AROUND, now_us=NOW_US + 86_400_000_000))
    assert found is not None
    assert f"{found.token}: {found.summary}".startswith(expected)
    assert found.admission is not None
    assert found.admission.dry_run
    assert ", dry run" in format_report(found).split("admission")[1]


def test_a_dry_run_is_not_told_of_a_pod_that_was_created_or_reviewed() -> None:
    exists = diagnose(PodFacts("shop", "web-u1", pod=build_stored_pod(**RUNS), records=list_dry_runs("u1")), AROUND)
    reviewed = diagnose(PodFacts("shop", "web-u1", records=(*list_dry_runs("u1"), *SHOP.recorder.records)), AROUND)
    for found in (exists, reviewed):
        assert found is not None
        assert "dry run" not in format_report(found)


# --- what cannot be read ---


def test_a_pod_of_a_record_that_cannot_be_read_is_not_said_to_be_absent() -> None:
    facts = PodFacts("shop", "web-u1", records=tuple(SHOP.recorder.records))
    found = diagnose(facts, replace_dataclass(AROUND, unread={"pod web-u1": "you may not get pods in shop"}))
    assert found is not None
    assert found.token is Fate.ADMITTED
    assert found.summary.endswith("; whether it exists cannot be told: you may not get pods in shop")
    queued = tuple(replace(record, decision=Verdict.QUEUE) for record in facts.records)
    late = replace_dataclass(AROUND, unread={"pod web-u1": "you may not get pods in shop"}, now_us=NOW_US + 10**12)
    waits = diagnose(replace_dataclass(facts, records=queued), late)
    assert waits is not None
    assert waits.token is Fate.WAITING_FOR_QUOTA


MAKER = msgspec.convert({"kind": "Deployment", "metadata": {"name": "web", "uid": "d1"}}, ReportedMaker)
CRON = msgspec.convert({"kind": "CronJob", "metadata": {"name": "web", "uid": "c1"}}, ReportedMaker)


@pytest.mark.parametrize(
    ("maker", "owners", "what", "text"),
    [
        (MAKER, (), "replicasets", "its controllers cannot be read"),
        (CRON, (), "jobs", "its controllers cannot be read"),
        (MAKER, ((3, 3),), "pods", "its Pods cannot be read"),
        (MAKER, ((3, 0),), "events", "its Events cannot be read"),
    ],
)
def test_what_cannot_be_read_is_not_said_to_be_absent(
    maker: ReportedMaker, owners: tuple[tuple[int, int], ...], what: str, text: str
) -> None:
    reason = f"you may not list {what} in shop"
    controllers = tuple(replica_set(*owner) for owner in owners)
    facts = WorkloadFacts("Deployment", "shop", "web", controllers, maker=maker)
    found = diagnose_workload(facts, replace_dataclass(AROUND, unread={what: reason}))
    assert found is not None
    assert (found.token, found.summary) == (Fate.UNKNOWN, f"{text}, so why Pods are missing cannot be told: {reason}")


def test_a_namespace_selector_matches_nobody_knows_whom_without_the_namespace() -> None:
    match = "{namespaceSelector: {matchLabels: {team: a}}}"
    policy = CompiledPolicy(policy_of(f"- {{name: web, match: {match}, placement: {{nodeSelector: {{a: b}}}}}}\n"))
    facts = PodFacts("shop", "web-u1", pod=build_stored_pod(**RUNS))
    around = replace_dataclass(AROUND, policies={}, in_force=policy)
    known = diagnose(facts, around)
    assert known is not None
    assert known.token is Fate.UNMATCHED
    unknown = diagnose(facts, replace_dataclass(around, unread={"namespace shop": "you may not get namespaces"}))
    assert unknown is not None
    assert unknown.token is Fate.RUNNING


# --- workloads ---


def replica_set(
    wanted: int, present: int, message: str = "", since: str = "2027-01-15T08:00:59Z", **owner: Any
) -> ReportedOwner:
    condition = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message}
    conditions = [{**condition, "lastTransitionTime": since}]
    status = {"replicas": present, "conditions": conditions if message else None}
    metadata = {"name": "web-7d4b9c", "uid": "r1"}
    made = {"kind": "ReplicaSet", "metadata": metadata, "spec": {"replicas": wanted}, "status": status, **owner}
    return msgspec.convert(made, ReportedOwner)


def workload(
    owner: ReportedOwner, *pods: PodFacts, records: bool = True, message: str = "", at: str = "", now_us: int = NOW_US
) -> Report:
    event = {"reason": "FailedCreate", "message": message, "involvedObject": {"uid": "r1"}, "lastTimestamp": at}
    events = (msgspec.convert(event, ReportedEvent),) if message else ()
    known = tuple(SHOP.recorder.records) if records else ()
    around = replace_dataclass(AROUND, now_us=now_us)
    found = diagnose_workload(WorkloadFacts("Deployment", "shop", "web", (owner,), events, pods, known), around)
    assert found is not None
    return found


def denial(text: str, webhook: str = "validate-closed.podgate.io") -> str:
    return f'admission webhook "{webhook}" denied the request: {text}'


QUOTA = "QuotaExceeded: service web: pods in 1m: hard 1, used 1, asked 1; could pass from 2027-01-15T08:01:00.000Z"


def test_refused_pods_of_a_workload_are_found_without_a_record() -> None:
    running = PodFacts("shop", "web-u1", pod=build_stored_pod(**RUNS))
    found = workload(replica_set(3, 1, denial(QUOTA)), running, records=False)
    assert f"{found.token}: {found.summary}" == f"Denied: 2 of 3 Pods: {QUOTA}"
    assert found.pods == {"Denied": 2, "Running": 1}
    assert found.admission is not None
    assert (found.admission.source, found.admission.codes) == ("event", ("QuotaExceeded",))


def test_pods_refused_by_the_breaker_have_its_token() -> None:
    found = workload(replica_set(2, 0, denial("BreakerOpen: service web: the breaker is open")), records=False)
    assert f"{found.token}: {found.summary}" == "BreakerOpen: 2 of 2 Pods: service web: the breaker is open"
    assert found.is_denied


def test_refused_pods_of_a_workload_have_the_figures_of_their_record() -> None:
    found = workload(replica_set(3, 1, denial(QUOTA)))
    assert found.token is Fate.DENIED
    assert [(row.hard, row.used, row.asked, row.over) for row in found.quota] == [(1, 1, 1, True)]


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
    found = workload(replica_set(1, 1), PodFacts("shop", "web-u1", pod=build_stored_pod(**RUNS)), message=denial(QUOTA))
    assert found.token is Fate.RUNNING
    assert found.pods == {"Running": 1}


BREAKER = "BreakerOpen: service web: the breaker is open"


def test_the_newest_event_is_believed_before_the_first_message_of_the_condition() -> None:
    refused = replica_set(2, 0, denial(QUOTA), since="2027-01-15T08:00:30Z")
    found = workload(refused, records=False, message=denial(BREAKER), at="2027-01-15T08:00:50Z")
    assert f"{found.token}: {found.summary}" == "BreakerOpen: 2 of 2 Pods: service web: the breaker is open"
    older = workload(refused, records=False, message=denial(BREAKER), at="2027-01-15T08:00:20Z")
    assert older.token is Fate.DENIED


def test_a_record_is_believed_before_an_older_condition() -> None:
    refused = replica_set(2, 0, denial(BREAKER), since="2027-01-15T07:00:00Z")
    found = workload(refused)
    assert (found.token, found.admission and found.admission.source) == (Fate.DENIED, "record")


@pytest.mark.parametrize(
    ("owner", "why"),
    [
        ({"kind": "StatefulSet"}, "web-7d4b9c-1 is created once web-u1 is Ready (podManagementPolicy OrderedReady)"),
        ({"kind": "Job"}, "the Job's controller creates the next Pod after its back-off"),
        ({}, "2 more are not created yet, and nothing newer says why"),
    ],
)
def test_a_refusal_before_the_newest_pod_is_over(owner: Json, why: str) -> None:
    status = {"replicas": 1, "active": 1}
    spec = {"replicas": 3, "parallelism": 3, "completions": 3}
    made = replica_set(3, 1, spec=spec, status=status, **owner) if owner else replica_set(3, 1)
    starting = PodFacts("shop", "web-u1", pod=build_stored_pod(spec=ON_A_NODE))
    found = workload(made, starting, records=False, message=denial(QUOTA), at="2027-01-15T07:40:00Z")
    assert found.token is Fate.STARTING
    assert found.summary.endswith(f"; {why}")


STATEFUL = "Create Pod web-0 in StatefulSet web failed error: "


@pytest.mark.parametrize(
    ("kind", "message", "name", "is_over"),
    [
        ("StatefulSet", STATEFUL, "web-0", True),
        ("StatefulSet", STATEFUL, "web-1", False),
        ("Job", "Error creating: ", "web-x", True),
    ],
)
def test_a_pod_of_the_same_second_is_newer_if_it_is_the_refused_one(
    kind: str, message: str, name: str, *, is_over: bool
) -> None:
    """Kubernetes writes whole seconds."""
    owner = replica_set(1, 0, kind=kind, spec={"replicas": 2}, status={"replicas": 1, "active": 0})
    made = PodFacts("shop", name, name, build_stored_pod(name, spec=ON_A_NODE))
    found = workload(owner, made, records=False, message=message + denial(QUOTA), at="2027-01-15T08:00:00Z")
    assert (found.token is Fate.STARTING) is is_over, found.summary


def test_a_record_of_the_same_second_tells_whether_our_denial_is_over() -> None:
    records = tuple(SHOP.recorder.records)
    admitted = tuple(record for record in records if record.uid == "u1")
    second = admitted[0].at.strftime("%Y-%m-%dT%H:%M:%SZ")
    owner = replica_set(2, 1, kind="StatefulSet", spec={"replicas": 2}, status={"replicas": 1})
    made = PodFacts("shop", "web-u1", "u1", build_stored_pod(spec=ON_A_NODE), records=admitted)
    for message, pods, is_over in (
        (denial(QUOTA), (made,), True),
        (denial(QUOTA), (), False),
        (denial("no", "other.example.com"), (made,), False),
    ):
        event = {"reason": "FailedCreate", "message": message, "involvedObject": {"uid": "r1"}, "lastTimestamp": second}
        events = (msgspec.convert(event, ReportedEvent),)
        facts = WorkloadFacts("StatefulSet", "shop", "web", (owner,), events, pods, admitted)
        found = diagnose_workload(facts, AROUND)
        assert found is not None
        assert (found.token is not Fate.DENIED and found.token is not Fate.WAITING_FOR_RETRY) is is_over, found.summary


def test_a_pod_that_we_admitted_and_others_refused_is_no_sign_that_the_failure_is_over() -> None:
    admitted = tuple(record for record in SHOP.recorder.records if record.uid == "u1")
    message = 'pods "web-" is forbidden: exceeded quota: few'
    event = {"reason": "FailedCreate", "message": message, "involvedObject": {"uid": "r1"}}
    events = (msgspec.convert({**event, "lastTimestamp": "2027-01-15T07:50:00Z"}, ReportedEvent),)
    owner = replica_set(1, 0, kind="Job", spec={}, status={"active": 0})
    facts = WorkloadFacts("Job", "shop", "web", (owner,), events, (), admitted)
    found = diagnose_workload(facts, AROUND)
    assert found is not None
    assert "exceeded quota: few" in found.summary
    assert found.summary.endswith("(reported at 2027-01-15T07:50:00Z)")


def test_a_denied_controller_that_has_not_tried_since_there_is_room_waits_for_its_retry() -> None:
    job = replica_set(1, 0, kind="Job", spec={"parallelism": 1, "completions": 1}, status={"active": 0})
    later_us = NOW_US + 1200_000_000
    for records in (False, True):
        found = workload(job, records=records, message=denial(QUOTA), at="2027-01-15T08:00:59Z", now_us=later_us)
        assert found.token is Fate.WAITING_FOR_RETRY
        assert "was denied (QuotaExceeded); it could pass since 2027-01-15T08:01:00." in found.summary
        assert "the controller has not tried again" in found.summary


def test_a_refusal_is_told_with_its_time_once_it_is_old() -> None:
    refused = replica_set(1, 0, denial(BREAKER), since="2027-01-15T07:00:00Z")
    assert workload(refused, records=False).summary.endswith("the breaker is open (reported at 2027-01-15T07:00:00Z)")
    undated = replica_set(1, 0, denial(BREAKER), since="")
    assert workload(undated, records=False).summary.endswith("(reported at an unknown time, maybe long ago)")


def test_most_severe_pod_of_a_workload_is_shown() -> None:
    crashed = build_stored_pod("web-u3", spec=ON_A_NODE, containerStatuses=container(state=CRASHED, restartCount=1))
    pods = (PodFacts("shop", "web-u1", pod=build_stored_pod(**RUNS)), PodFacts("shop", "web-u3", pod=crashed))
    found = workload(replica_set(2, 2), *pods)
    assert found.summary == "1 of 2 Pods: web-u3 container c: CrashLoopBackOff: 1 restart: back-off 10s"
    assert list(found.pods) == ["Failed", "Running"]
    facts = PodFacts("shop", "web-u1", pod=build_stored_pod(**RUNS), records=tuple(SHOP.recorder.records))
    assert workload(replica_set(1, 1), facts).rules == report(build_stored_pod()).rules, (
        "the Pod that is shown is not brief"
    )


def test_workload_that_wants_no_pods_says_so() -> None:
    found = workload(replica_set(0, 0), records=False)
    assert (found.token, found.summary) == (Fate.IDLE, "it wants no Pods: spec.replicas is 0")
