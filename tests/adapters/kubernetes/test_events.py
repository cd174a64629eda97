"""Events: content, deduplication across servers, bounds, and no blocking."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as with_fields

from tests.harness.fake_apiserver import (
    CONFIGMAPS,
    FakeApiServer,
    Fault,
    drop,
    fake_apiserver,
    hang,
    refuse,
    wait_until,
)
from tests.harness.records import (
    ADMITTED,
    AT_NS,
    BREAKER_DENIED,
    QUOTA_DENIED,
    a_cause,
    changed,
    override,
    policy,
    review,
)
from webhook.adapters.kubernetes import ApiTiming, Events, EventSender, EventTiming, connect
from webhook.adapters.kubernetes.events import event_sender, observer
from webhook.core.admission.decision import Decision, Finding, Half
from webhook.core.admission.review import Request
from webhook.core.breaker import EXPIRED, HELD, State, Transition, TransitionCause
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import OwnerReference, Pod, PodMetadata, PodSpec
from webhook.core.overload import OverloadCause
from webhook.core.policy_fields import Mode
from webhook.ports import Review, WatchReports

MINUTE_NS = 60_000_000_000
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
QUICK = EventTiming(per_second=1e6, retries=ApiTiming(first_pause_seconds=0.01, pause_seconds_max=0.01))


def path(namespace: str = "payments") -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def owner(uid: str = "rs-1", name: str = "web-7d9c", *, controller: bool | None = True) -> OwnerReference:
    return OwnerReference("apps/v1", "ReplicaSet", name, uid, controller)


def denial(
    decision: Decision = QUOTA_DENIED, *owners: OwnerReference, user: str = CONTROLLER, after_ns: int = 0
) -> Review:
    """Return a review of a Pod of these owners."""
    pod = Pod(PodMetadata(owner_references=owners or (owner(),)), PodSpec())
    request = Request(
        "review-1", "CREATE", "pods", "", "payments", user, dry_run=decision.call.dry_run, pod=pod, old_pod=None
    )
    return with_fields(review(decision, request=request), started_ns=AT_NS + after_ns)


@dataclass
class Server:
    """One server's Events, and their results."""

    sender: EventSender
    events: Events
    results: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    overs: list[str] = field(default_factory=list)

    async def wait_for_results(self, *results: str) -> None:
        await wait_until(lambda: len(self.results) >= len(results))
        assert self.results == list(results)


@dataclass
class Cluster:
    """A fake API server, and servers that send it Events."""

    fake: FakeApiServer
    client: Any
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def server(
        self,
        *,
        sends: bool = True,
        documents: bool = True,
        instance: str = "podgate-0",
        where: str = "all namespaces",
        **timing: Any,
    ) -> Server:
        results: list[str] = []
        troubles: list[str] = []
        overs: list[str] = []
        reports = WatchReports(lambda: None, troubles.append, overs.append)
        paced = replace(QUICK, **timing)
        sender = EventSender(
            self.client, instance, reports=reports, on_result=results.append, where=where, timing=paced
        )
        if sends:
            self.tasks.append(asyncio.create_task(sender.run()))
        events = Events(sender, has_policy=documents, has_overrides=documents, clock_ns=lambda: AT_NS)
        return Server(sender, events, results, troubles, overs)

    def list_stored(self, namespace: str = "payments") -> list[dict[str, Any]]:
        return self.fake.list_stored(path(namespace))


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with fake_apiserver(tmp_path) as fake, await connect(tmp_path / "kubeconfig") as client:
        found = Cluster(fake, client)
        yield found
        for task in found.tasks:
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)


# Denials


async def test_denial_creates_an_event_on_the_owning_controller(cluster: Cluster) -> None:
    server = cluster.server()
    server.events.on_reviewed(denial())
    await server.wait_for_results("written")
    [found] = cluster.list_stored()
    assert found["regarding"] == {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "namespace": "payments",
        "name": "web-7d9c",
        "uid": "rs-1",
    }
    assert found["metadata"]["name"].startswith("web-7d9c.")
    assert found["metadata"]["namespace"] == "payments"
    assert (found["type"], found["reason"], found["action"]) == ("Warning", "QuotaExceeded", "CreatePod")
    assert found["note"] == "hard 50, used 50"
    assert (found["reportingController"], found["reportingInstance"]) == ("podgate.io/podgate", "podgate-0")
    assert found["eventTime"] == "2027-01-15T08:00:00.123000Z"


@pytest.mark.parametrize("namespace", ["", "..", "../kube-system", "a/b", "a%2Fb", "A", "a?b", "x" * 64])
async def test_invalid_namespace_creates_no_event(cluster: Cluster, namespace: str) -> None:
    server, record = cluster.server(), denial()
    assert record.request is not None
    server.events.on_reviewed(with_fields(record, request=with_fields(record.request, namespace=namespace)))
    server.events.on_reviewed(denial())
    await server.wait_for_results("written")
    assert len(cluster.list_stored()) == 1


async def test_note_lists_further_findings_within_1024_bytes(cluster: Cluster) -> None:
    more = Finding(Code.RESOURCES_OUTSIDE, "resources", Mode.ENFORCE, "cpu " + "\u00fc" * 2000)
    silent = Finding(Code.PLACEMENT_CONFLICT, "placement", Mode.AUDIT, "audited only")
    server = cluster.server()
    server.events.on_reviewed(denial(with_fields(QUOTA_DENIED, findings=(silent, *QUOTA_DENIED.findings, more))))
    await server.wait_for_results("written")
    [found] = cluster.list_stored()
    assert found["reason"] == "QuotaExceeded"
    assert found["note"].startswith("hard 50, used 50; ResourcesOutside: cpu \u00fc")
    assert found["note"].endswith("\u00fc...")
    assert 1022 <= len(found["note"].encode()) <= 1024


async def test_one_event_per_controller_reason_and_minute(cluster: Cluster) -> None:
    server = cluster.server()
    for after_ns in (0, 1, MINUTE_NS, MINUTE_NS + 1):
        for decision in (QUOTA_DENIED, BREAKER_DENIED):
            for uid in ("rs-1", "rs-2"):
                server.events.on_reviewed(denial(decision, owner(uid), after_ns=after_ns))
    await server.wait_for_results(*["written"] * 8)
    events = {(found["regarding"]["uid"], found["reason"], found["eventTime"][:16]) for found in cluster.list_stored()}
    assert len(events) == 8


async def test_second_server_finds_the_same_event_stored(cluster: Cluster) -> None:
    one, other = cluster.server(), cluster.server(instance="podgate-1")
    one.events.on_reviewed(denial())
    await one.wait_for_results("written")
    other.events.on_reviewed(denial(after_ns=1))
    await other.wait_for_results("known")
    assert len(cluster.list_stored()) == 1
    assert other.troubles == []


@pytest.mark.parametrize(
    "record",
    [
        denial(ADMITTED),
        denial(changed(QUOTA_DENIED, dry_run=True)),
        denial(with_fields(QUOTA_DENIED, half=Half.MUTATE)),
        denial(with_fields(QUOTA_DENIED, findings=())),
        denial(user="alice"),
        denial(user="system:serviceaccount:payments:replicaset-controller"),
        denial(QUOTA_DENIED, owner(controller=None), owner(controller=False)),
        review(QUOTA_DENIED),
    ],
    ids=[
        "admitted",
        "dry run",
        "the mutating half",
        "no finding",
        "a user",
        "a service account of that name in another namespace",
        "no controller among the owners",
        "no request",
    ],
)
async def test_no_event_without_a_denial_or_a_known_object(cluster: Cluster, record: Review) -> None:
    server = cluster.server()
    server.events.on_reviewed(record)
    server.events.on_reviewed(denial(QUOTA_DENIED, owner("rs-2")))
    await server.wait_for_results("written")
    assert [found["regarding"]["uid"] for found in cluster.list_stored()] == ["rs-2"]


async def test_long_names_are_truncated_to_valid_names(cluster: Cluster) -> None:
    server = cluster.server()
    name = "a" * 235 + "." + "b" * 17
    server.events.on_reviewed(denial(QUOTA_DENIED, owner(name=name)))
    await server.wait_for_results("written")
    [found] = cluster.list_stored()
    stem, _, digest = found["metadata"]["name"].rpartition(".")
    assert (stem, len(digest)) == ("a" * 235, 16)


# Documents


async def test_loaded_policy_creates_one_event_on_its_config_map(cluster: Cluster) -> None:
    cluster.fake.put(CONFIGMAPS, "podgate-policy", data={})
    one, other = cluster.server(), cluster.server()
    one.events.on_policy_loaded(policy("payment-api"))
    await one.wait_for_results("written")
    other.events.on_policy_loaded(policy("payment-api"))
    await other.wait_for_results("known")
    [found] = cluster.list_stored("podgate-system")
    assert (found["type"], found["reason"]) == ("Normal", "PolicyLoaded")
    assert found["note"] == "policy 0123456789abcdef is in force; services: 1"
    assert found["regarding"]["kind"] == "ConfigMap"
    listed = cluster.fake.find_last("list")
    assert listed.query == {"fieldSelector": "metadata.name=podgate-policy"}, "a right by name suffices"


async def test_policy_event_repeats_for_a_changed_config_map(cluster: Cluster) -> None:
    server = cluster.server()
    for _ in range(2):
        cluster.fake.put(CONFIGMAPS, "podgate-policy", data={})
        server.events.on_policy_loaded(policy("payment-api"))
        written = len(server.results) + 1
        await wait_until(lambda written=written: len(server.results) == written)  # type: ignore[misc]  # mypy: a default
    assert server.results == ["written", "written"]


async def test_refused_policy_creates_a_warning_with_its_errors(cluster: Cluster) -> None:
    cluster.fake.put(CONFIGMAPS, "podgate-policy", data={})
    server = cluster.server()
    server.events.on_policy_failed(["policy.yaml:1:1: no", "policy.yaml:2:1: neither"])
    server.events.on_policy_loaded(policy("payment-api"))
    server.events.on_policy_failed([f"policy.yaml:{line}:1: no" for line in range(1, 24)])
    await server.wait_for_results("written", "written", "written")
    first, _, last = cluster.list_stored("podgate-system")
    assert (first["type"], first["reason"]) == ("Warning", "PolicyRefused")
    assert first["note"] == "there is no good policy: policy.yaml:1:1: no; policy.yaml:2:1: neither"
    assert last["note"].startswith("policy 0123456789abcdef stays in force: policy.yaml:1:1: no; ")
    assert last["note"].endswith("policy.yaml:20:1: no and 3 more")


async def test_missing_config_map_creates_an_event_without_uid(cluster: Cluster) -> None:
    server = cluster.server()
    server.events.on_policy_failed(["there is none"])
    await server.wait_for_results("written")
    [found] = cluster.list_stored("podgate-system")
    assert found["regarding"]["uid"] == ""


async def test_override_changes_create_events_on_the_config_map(cluster: Cluster) -> None:
    cluster.fake.put(CONFIGMAPS, "podgate-overrides", data={})
    server, entry = cluster.server(), override()
    server.events.on_overrides_loaded([entry])
    server.events.on_override_changed("payment-api", None, entry)
    server.events.on_override_changed("payment-api", entry, override(until="2026-12-02T04:00:00Z"))
    server.events.on_override_changed("payment-api", override(until="2026-12-02T04:00:00Z"), None)
    server.events.on_overrides_failed(["overrides.yaml:1:1: no"])
    await server.wait_for_results(*["written"] * 4)
    events = [(found["type"], found["reason"]) for found in cluster.list_stored("podgate-system")]
    assert events == [
        ("Normal", "OverrideInForce"),
        ("Normal", "OverrideInForce"),
        ("Normal", "OverrideEnded"),
        ("Warning", "OverridesRefused"),
    ]
    assert {found["regarding"]["name"] for found in cluster.list_stored("podgate-system")} == {"podgate-overrides"}
    first = cluster.list_stored("podgate-system")[0]
    assert first["note"] == "service payment-api: quotaFactor: 3 until 2026-12-01T04:00:00Z: INC-1"


async def test_overload_creates_an_event_at_its_beginning_and_its_end(cluster: Cluster) -> None:
    slow, away = {OverloadCause.LATENCY: "P99 of reviews 1.2 s"}, {OverloadCause.STORE: "the store does not respond"}
    server = cluster.server()
    server.events.on_overload_changed({}, slow)
    server.events.on_overload_changed(slow, {**slow, **away})
    server.events.on_overload_changed({**slow, **away}, {})
    await server.wait_for_results("written", "written")
    assert [(found["type"], found["reason"], found["note"]) for found in cluster.list_stored("podgate-system")] == [
        ("Warning", "Overloaded", "new Pods of services with onOverload: Gate wait: P99 of reviews 1.2 s"),
        ("Normal", "OverloadEnded", "Pods are judged again"),
    ]


async def test_pod_without_a_review_creates_an_event_about_the_policy(cluster: Cluster) -> None:
    server = cluster.server()
    server.events.on_not_reviewed("web", "shop/web-1")
    await server.wait_for_results("written")
    [found] = cluster.list_stored("podgate-system")
    assert (found["type"], found["reason"]) == ("Warning", "PodsNotReviewed")
    assert found["regarding"]["name"] == "podgate-policy"
    assert "service web: Pod shop/web-1 was admitted without a review" in found["note"]


def transition(old: State, new: State, reason: str, generation: int = 5, at_us: int = AT_NS // 1000) -> Transition:
    cause = TransitionCause.LATENCY if reason.startswith(HELD) else a_cause(old, new)
    return Transition("web", old, new, at_us, reason, generation, cause)


@pytest.mark.parametrize(
    ("old", "new", "reason", "kind", "called", "note"),
    [
        (State.CLOSED, State.OPEN, "latency: 3s", "Warning", "BreakerOpened", "was CLOSED, is OPEN: latency: 3s"),
        (State.OPEN, State.HALF_OPEN, "x", "Normal", "BreakerHalfOpen", "was OPEN, is HALF_OPEN: x"),
        (State.HALF_OPEN, State.CLOSED, "x", "Normal", "BreakerClosed", "was HALF_OPEN, is CLOSED: x"),
        (State.OPEN, State.FORCED_OPEN, "INC-1", "Warning", "BreakerForcedOpen", "was OPEN, is FORCED_OPEN: INC-1"),
        (State.OPEN, State.FORCED_CLOSED, "x", "Warning", "BreakerForcedClosed", "was OPEN, is FORCED_CLOSED: x"),
        (State.CLOSED, State.CLOSED, f"{HELD}x", "Warning", "BreakerTripHeld", f"stays CLOSED: {HELD}x"),
    ],
)
async def test_breaker_transitions_are_events_of_the_policy_config_map(
    cluster: Cluster, old: State, new: State, reason: str, kind: str, called: str, note: str
) -> None:
    cluster.fake.put(CONFIGMAPS, "podgate-policy", data={})
    server = cluster.server()
    server.events.on_transition(transition(old, new, reason))
    await server.wait_for_results("written")
    [event] = cluster.list_stored("podgate-system")
    assert (event["type"], event["reason"]) == (kind, called)
    assert event["note"] == f"service web: the breaker {note} (generation 5)"
    assert (event["regarding"]["kind"], event["regarding"]["name"]) == ("ConfigMap", "podgate-policy")
    assert event["eventTime"] == "2027-01-15T08:00:00.123000Z"


async def test_transition_reported_by_two_servers_is_one_event(
    cluster: Cluster,
) -> None:
    cluster.fake.put(CONFIGMAPS, "podgate-policy", data={})
    first, second = cluster.server(), cluster.server(instance="podgate-1")
    opened = transition(State.CLOSED, State.OPEN, "x")
    first.events.on_transition(opened)
    await first.wait_for_results("written")
    cluster.fake.put(CONFIGMAPS, "podgate-policy", data={})
    second.events.on_transition(opened)
    await second.wait_for_results("known")
    second.events.on_transition(transition(State.CLOSED, State.OPEN, "x", at_us=AT_NS // 1000 + 1))
    await second.wait_for_results("known", "written")
    assert len(cluster.list_stored("podgate-system")) == 2, "in an empty store generations start again"


async def test_held_trip_creates_one_event_a_minute_and_expired_probe_none(
    cluster: Cluster,
) -> None:
    cluster.fake.put(CONFIGMAPS, "podgate-policy", data={})
    server = cluster.server()
    for at_us in (0, 1_000_000, 59_000_000, 60_000_000):
        server.events.on_transition(transition(State.CLOSED, State.CLOSED, f"{HELD}x", at_us=AT_NS // 1000 + at_us))
    await server.wait_for_results("written", "known", "known", "written")
    server.events.on_transition(transition(State.HALF_OPEN, State.HALF_OPEN, EXPIRED))
    server.events.on_transition(transition(State.HALF_OPEN, State.CLOSED, "x"))
    await server.wait_for_results("written", "known", "known", "written", "written")
    assert [event["reason"] for event in cluster.list_stored("podgate-system")].count("BreakerClosed") == 1


async def test_documents_from_files_create_no_events(cluster: Cluster) -> None:
    server = cluster.server(documents=False)
    server.events.on_policy_loaded(policy("payment-api"))
    server.events.on_policy_failed(["no"])
    server.events.on_override_changed("payment-api", None, override())
    server.events.on_overrides_failed(["no"])
    server.events.on_transition(transition(State.CLOSED, State.OPEN, "x"))
    server.events.on_reviewed(denial())
    await server.wait_for_results("written")
    assert cluster.list_stored("podgate-system") == []


# Bounds


async def test_hanging_api_server_blocks_no_call_and_excess_events_are_dropped(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_sender, "QUEUE_MAX", 3)
    cluster.fake.always["create"] = hang
    server = cluster.server()
    for number in range(10):
        server.events.on_reviewed(denial(QUOTA_DENIED, owner(f"rs-{number}")))
    assert server.results == ["dropped"] * 7, "nothing has been awaited"
    await wait_until(lambda: "create" in cluster.fake.verbs())
    assert server.results == ["dropped"] * 7


async def test_dropped_event_is_sent_by_a_later_denial_of_the_minute(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_sender, "QUEUE_MAX", 1)
    server = cluster.server()
    for uid in ("rs-1", "rs-2"):
        server.events.on_reviewed(denial(QUOTA_DENIED, owner(uid)))
    await server.wait_for_results("dropped", "written")
    for uid in ("rs-1", "rs-2"):
        server.events.on_reviewed(denial(QUOTA_DENIED, owner(uid)))
    await server.wait_for_results("dropped", "written", "written")


async def test_seen_events_are_bounded_and_cleared_each_minute(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "SEEN_MAX", 2)
    server = cluster.server()
    for number in range(4):
        server.events.on_reviewed(denial(QUOTA_DENIED, owner(f"rs-{number}")))
    await server.wait_for_results("dropped", "dropped", "written", "written")
    server.events.on_reviewed(denial(QUOTA_DENIED, owner("rs-3"), after_ns=MINUTE_NS))
    await server.wait_for_results("dropped", "dropped", "written", "written", "written")
    assert len(server.events._seen) == 1


def test_bucket_allows_a_burst_and_then_its_rate() -> None:
    bucket = event_sender._Bucket(EventTiming(per_second=10, burst=3))
    assert [bucket.wait_seconds(1000.0) for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    assert bucket.wait_seconds(1000.3) == pytest.approx(0)
    assert [bucket.wait_seconds(2000.0) for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


# API server outages and refusals


@pytest.mark.parametrize("fault", [drop, refuse(503, "unwell"), refuse(429, "busy", Retry_After="0")])
async def test_event_is_retried_and_the_failure_reported_once(cluster: Cluster, fault: Fault) -> None:
    cluster.fake.fail_next("create", fault, fault, fault)
    server = cluster.server()
    server.events.on_reviewed(denial())
    await server.wait_for_results("written")
    assert cluster.fake.verbs().count("create") == 4
    assert len(server.troubles) == 1
    assert server.troubles == server.overs


async def test_event_fails_when_its_patience_ends(cluster: Cluster) -> None:
    cluster.fake.always["create"] = refuse(500, "unwell")
    server = cluster.server(patience_seconds=0)
    server.events.on_reviewed(denial())
    await server.wait_for_results("failed")
    assert cluster.fake.verbs() == ["create"]


@pytest.mark.parametrize("where", ["all namespaces", "podgate-system"])
async def test_missing_right_is_reported_once_and_each_event_tried_once(cluster: Cluster, where: str) -> None:
    cluster.fake.always["create"] = refuse(403, "forbidden")
    server = cluster.server(where=where)
    for number in range(3):
        server.events.on_reviewed(denial(QUOTA_DENIED, owner(f"rs-{number}")))
    await server.wait_for_results("failed", "failed", "failed")
    assert cluster.fake.verbs() == ["create"] * 3
    [trouble] = server.troubles
    assert f"grant the right to create events.events.k8s.io in {where}" in trouble
    del cluster.fake.always["create"]
    server.events.on_reviewed(denial(BREAKER_DENIED))
    await server.wait_for_results("failed", "failed", "failed", "written")


@pytest.mark.parametrize(
    "fault",
    [
        refuse(404, 'namespaces "payments" not found'),
        refuse(403, "unable to create new content in namespace payments because it is being terminated"),
    ],
    ids=["gone", "going"],
)
async def test_terminating_namespace_is_no_error(cluster: Cluster, fault: Fault) -> None:
    cluster.fake.fail_next("create", fault)
    server = cluster.server()
    server.events.on_reviewed(denial())
    await server.wait_for_results("dropped")
    assert server.troubles == []


async def test_forbidden_list_of_config_maps_fails_one_event_only(cluster: Cluster) -> None:
    cluster.fake.fail_next("list", refuse(403, "forbidden"))
    server = cluster.server()
    server.events.on_policy_loaded(policy("payment-api"))
    server.events.on_reviewed(denial())
    await server.wait_for_results("failed", "written")
    assert len(server.troubles) == 1


def test_owner_reference_decodes_from_json() -> None:
    raw = b'{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9c", "uid": "rs-1", "controller": true}'
    assert msgspec.json.decode(raw, type=OwnerReference) == owner()
