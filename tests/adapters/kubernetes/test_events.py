"""Events: content, deduplication across servers, bounds, and no blocking."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as with_fields

from tests.harness.fake_apiserver import CONFIGMAPS, FakeApiServer, Fault, drop, fake_apiserver, hang, refuse, until
from tests.harness.records import ADMITTED, AT_NS, BREAKER_DENIED, QUOTA_DENIED, a_cause, override, policy, review
from webhook.adapters.kubernetes import ApiTiming, Events, EventSender, EventTiming, connect
from webhook.adapters.kubernetes.events import event_sender, observer
from webhook.core.admission.decision import Decision, Finding, Half
from webhook.core.admission.review import Request
from webhook.core.breaker import EXPIRED, HELD, State, Transition, TransitionCause
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import OwnerReference, Pod, PodMetadata, PodSpec
from webhook.core.policy_spec import Mode
from webhook.ports import Review, WatchReports

MINUTE_NS = 60_000_000_000
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"
QUICK = EventTiming(per_second=1e6, retries=ApiTiming(first_pause_seconds=0.01, longest_pause_seconds=0.01))


def path(namespace: str = "payments") -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"


def owner(uid: str = "rs-1", name: str = "web-7d9c", *, controller: bool | None = True) -> OwnerReference:
    return OwnerReference("apps/v1", "ReplicaSet", name, uid, controller)


def denied(
    decision: Decision = QUOTA_DENIED, *owners: OwnerReference, user: str = CONTROLLER, after_ns: int = 0
) -> Review:
    """Return a review of a Pod of these owners."""
    pod = Pod(PodMetadata(owner_references=owners or (owner(),)), PodSpec())
    request = Request("review-1", "CREATE", "pods", "", "payments", user, decision.dry_run, pod, None)
    return with_fields(review(decision, request=request), started_ns=AT_NS + after_ns)


@dataclass
class Teller:
    """One server's Events, and what it has told of them."""

    sender: EventSender
    events: Events
    results: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    overs: list[str] = field(default_factory=list)

    async def until(self, *results: str) -> None:
        await until(lambda: len(self.results) >= len(results))
        assert self.results == list(results)


@dataclass
class World:
    """A fake API server, and servers that tell it Events."""

    fake: FakeApiServer
    client: Any
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    def teller(
        self,
        *,
        sends: bool = True,
        documents: bool = True,
        instance: str = "podgate-0",
        where: str = "all namespaces",
        **timing: Any,
    ) -> Teller:
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
        told = Events(sender, has_policy=documents, has_overrides=documents, clock_ns=lambda: AT_NS)
        return Teller(sender, told, results, troubles, overs)

    def stored(self, namespace: str = "payments") -> list[dict[str, Any]]:
        return self.fake.under(path(namespace))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with fake_apiserver(tmp_path) as fake, await connect(tmp_path / "kubeconfig") as client:
        found = World(fake, client)
        yield found
        for task in found.tasks:
            task.cancel()
        await asyncio.gather(*found.tasks, return_exceptions=True)


# Denials


async def test_a_denial_is_reported_on_the_controller_that_owns_the_pod(world: World) -> None:
    teller = world.teller()
    teller.events.reviewed(denied())
    await teller.until("written")
    [found] = world.stored()
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
async def test_no_path_is_made_of_a_namespace_that_is_no_name(world: World, namespace: str) -> None:
    teller, told = world.teller(), denied()
    assert told.request is not None
    teller.events.reviewed(with_fields(told, request=with_fields(told.request, namespace=namespace)))
    teller.events.reviewed(denied())
    await teller.until("written")
    assert len(world.stored()) == 1


async def test_further_findings_follow_with_their_codes_and_the_note_keeps_its_bound(world: World) -> None:
    more = Finding(Code.RESOURCES_OUTSIDE, "resources", Mode.ENFORCE, "cpu " + "\u00fc" * 2000)
    silent = Finding(Code.PLACEMENT_CONFLICT, "placement", Mode.AUDIT, "not told")
    teller = world.teller()
    teller.events.reviewed(denied(with_fields(QUOTA_DENIED, findings=(silent, *QUOTA_DENIED.findings, more))))
    await teller.until("written")
    [found] = world.stored()
    assert found["reason"] == "QuotaExceeded"
    assert found["note"].startswith("hard 50, used 50; ResourcesOutside: cpu \u00fc")
    assert found["note"].endswith("\u00fc...")
    assert 1022 <= len(found["note"].encode()) <= 1024


async def test_it_is_one_for_each_controller_reason_and_minute(world: World) -> None:
    teller = world.teller()
    for after_ns in (0, 1, MINUTE_NS, MINUTE_NS + 1):
        for decision in (QUOTA_DENIED, BREAKER_DENIED):
            for uid in ("rs-1", "rs-2"):
                teller.events.reviewed(denied(decision, owner(uid), after_ns=after_ns))
    await teller.until(*["written"] * 8)
    told = {(found["regarding"]["uid"], found["reason"], found["eventTime"][:16]) for found in world.stored()}
    assert len(told) == 8


async def test_another_server_that_reports_the_same_finds_it_seen(world: World) -> None:
    one, other = world.teller(), world.teller(instance="podgate-1")
    one.events.reviewed(denied())
    await one.until("written")
    other.events.reviewed(denied(after_ns=1))
    await other.until("known")
    assert len(world.stored()) == 1
    assert other.troubles == []


@pytest.mark.parametrize(
    "told",
    [
        denied(ADMITTED),
        denied(with_fields(QUOTA_DENIED, dry_run=True)),
        denied(with_fields(QUOTA_DENIED, half=Half.MUTATE)),
        denied(with_fields(QUOTA_DENIED, findings=())),
        denied(user="alice"),
        denied(user="system:serviceaccount:payments:replicaset-controller"),
        denied(QUOTA_DENIED, owner(controller=None), owner(controller=False)),
        review(QUOTA_DENIED),
    ],
    ids=[
        "admitted",
        "dry run",
        "the mutating half",
        "no finding",
        "a user's own word",
        "a tenant's namesake",
        "no controller among the owners",
        "no request",
    ],
)
async def test_no_event_without_a_denial_or_a_known_object(world: World, told: Review) -> None:
    teller = world.teller()
    teller.events.reviewed(told)
    teller.events.reviewed(denied(QUOTA_DENIED, owner("rs-2")))
    await teller.until("written")
    assert [found["regarding"]["uid"] for found in world.stored()] == ["rs-2"]


async def test_long_names_are_truncated_to_valid_names(world: World) -> None:
    teller = world.teller()
    name = "a" * 235 + "." + "b" * 17
    teller.events.reviewed(denied(QUOTA_DENIED, owner(name=name)))
    await teller.until("written")
    [found] = world.stored()
    stem, _, digest = found["metadata"]["name"].rpartition(".")
    assert (stem, len(digest)) == ("a" * 235, 16)


# Documents


async def test_a_policy_in_force_is_reported_on_its_config_map_as_it_is_there(world: World) -> None:
    world.fake.put(CONFIGMAPS, "podgate-policy", data={})
    one, other = world.teller(), world.teller()
    one.events.policy_loaded(policy("payment-api"))
    await one.until("written")
    other.events.policy_loaded(policy("payment-api"))
    await other.until("known")
    [found] = world.stored("podgate-system")
    assert (found["type"], found["reason"]) == ("Normal", "PolicyLoaded")
    assert found["note"] == "policy 0123456789abcdef is in force; services: 1"
    assert found["regarding"]["kind"] == "ConfigMap"
    listed = world.fake.last("list")
    assert listed.query == {"fieldSelector": "metadata.name=podgate-policy"}, "a right by name suffices"


async def test_the_same_policy_in_a_later_state_of_its_config_map_is_reported_again(world: World) -> None:
    teller = world.teller()
    for _ in range(2):
        world.fake.put(CONFIGMAPS, "podgate-policy", data={})
        teller.events.policy_loaded(policy("payment-api"))
        written = len(teller.results) + 1
        await until(lambda written=written: len(teller.results) == written)  # type: ignore[misc]  # mypy: a default
    assert teller.results == ["written", "written"]


async def test_a_policy_refused_is_a_warning_with_its_errors_and_what_stays(world: World) -> None:
    world.fake.put(CONFIGMAPS, "podgate-policy", data={})
    teller = world.teller()
    teller.events.policy_failed(["policy.yaml:1:1: no", "policy.yaml:2:1: neither"])
    teller.events.policy_loaded(policy("payment-api"))
    teller.events.policy_failed([f"policy.yaml:{line}:1: no" for line in range(1, 24)])
    await teller.until("written", "written", "written")
    first, _, last = world.stored("podgate-system")
    assert (first["type"], first["reason"]) == ("Warning", "PolicyRefused")
    assert first["note"] == "there is no good policy: policy.yaml:1:1: no; policy.yaml:2:1: neither"
    assert last["note"].startswith("policy 0123456789abcdef stays in force: policy.yaml:1:1: no; ")
    assert last["note"].endswith("policy.yaml:20:1: no and 3 more")


async def test_the_loss_of_the_config_map_is_reported_though_it_has_no_uid(world: World) -> None:
    teller = world.teller()
    teller.events.policy_failed(["there is none"])
    await teller.until("written")
    [found] = world.stored("podgate-system")
    assert found["regarding"]["uid"] == ""


async def test_an_override_that_begins_ends_or_is_refused_is_reported_on_its_config_map(world: World) -> None:
    world.fake.put(CONFIGMAPS, "podgate-overrides", data={})
    teller, entry = world.teller(), override()
    teller.events.overrides_loaded([entry])
    teller.events.override_changed("payment-api", None, entry)
    teller.events.override_changed("payment-api", entry, override(until="2026-12-02T04:00:00Z"))
    teller.events.override_changed("payment-api", override(until="2026-12-02T04:00:00Z"), None)
    teller.events.overrides_failed(["overrides.yaml:1:1: no"])
    await teller.until(*["written"] * 4)
    told = [(found["type"], found["reason"]) for found in world.stored("podgate-system")]
    assert told == [
        ("Normal", "OverrideInForce"),
        ("Normal", "OverrideInForce"),
        ("Normal", "OverrideEnded"),
        ("Warning", "OverridesRefused"),
    ]
    assert {found["regarding"]["name"] for found in world.stored("podgate-system")} == {"podgate-overrides"}
    first = world.stored("podgate-system")[0]
    assert first["note"] == "service payment-api: quotaFactor: 3 until 2026-12-01T04:00:00Z: INC-1"


def moved(old: State, new: State, reason: str, generation: int = 5, at_us: int = AT_NS // 1000) -> Transition:
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
    world: World, old: State, new: State, reason: str, kind: str, called: str, note: str
) -> None:
    world.fake.put(CONFIGMAPS, "podgate-policy", data={})
    teller = world.teller()
    teller.events.transitioned(moved(old, new, reason))
    await teller.until("written")
    [told] = world.stored("podgate-system")
    assert (told["type"], told["reason"]) == (kind, called)
    assert told["note"] == f"service web: the breaker {note} (generation 5)"
    assert (told["regarding"]["kind"], told["regarding"]["name"]) == ("ConfigMap", "podgate-policy")
    assert told["eventTime"] == "2027-01-15T08:00:00.123000Z"


async def test_transition_is_reported_once_by_any_reporter_and_under_any_policy(
    world: World,
) -> None:
    world.fake.put(CONFIGMAPS, "podgate-policy", data={})
    first, second = world.teller(), world.teller(instance="podgate-1")
    opened = moved(State.CLOSED, State.OPEN, "x")
    first.events.transitioned(opened)
    await first.until("written")
    world.fake.put(CONFIGMAPS, "podgate-policy", data={})
    second.events.transitioned(opened)
    await second.until("known")
    second.events.transitioned(moved(State.CLOSED, State.OPEN, "x", at_us=AT_NS // 1000 + 1))
    await second.until("known", "written")
    assert len(world.stored("podgate-system")) == 2, "with an empty store generations begin anew"


async def test_a_trip_that_is_held_back_again_and_again_is_reported_once_a_minute_and_an_expired_probe_not(
    world: World,
) -> None:
    world.fake.put(CONFIGMAPS, "podgate-policy", data={})
    teller = world.teller()
    for at_us in (0, 1_000_000, 59_000_000, 60_000_000):
        teller.events.transitioned(moved(State.CLOSED, State.CLOSED, f"{HELD}x", at_us=AT_NS // 1000 + at_us))
    await teller.until("written", "known", "known", "written")
    teller.events.transitioned(moved(State.HALF_OPEN, State.HALF_OPEN, EXPIRED))
    teller.events.transitioned(moved(State.HALF_OPEN, State.CLOSED, "x"))
    await teller.until("written", "known", "known", "written", "written")
    assert [told["reason"] for told in world.stored("podgate-system")].count("BreakerClosed") == 1


async def test_documents_from_files_are_no_business_of_the_cluster(world: World) -> None:
    teller = world.teller(documents=False)
    teller.events.policy_loaded(policy("payment-api"))
    teller.events.policy_failed(["no"])
    teller.events.override_changed("payment-api", None, override())
    teller.events.overrides_failed(["no"])
    teller.events.transitioned(moved(State.CLOSED, State.OPEN, "x"))
    teller.events.reviewed(denied())
    await teller.until("written")
    assert world.stored("podgate-system") == []


# Bounds


async def test_hanging_api_server_blocks_no_call_and_excess_events_are_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_sender, "QUEUE_MAX", 3)
    world.fake.always["create"] = hang
    teller = world.teller()
    for number in range(10):
        teller.events.reviewed(denied(QUOTA_DENIED, owner(f"rs-{number}")))
    assert teller.results == ["dropped"] * 7, "nothing has been awaited"
    await until(lambda: "create" in world.fake.verbs())
    assert teller.results == ["dropped"] * 7


async def test_what_was_dropped_may_be_reported_by_a_later_denial_of_the_minute(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_sender, "QUEUE_MAX", 1)
    teller = world.teller()
    for uid in ("rs-1", "rs-2"):
        teller.events.reviewed(denied(QUOTA_DENIED, owner(uid)))
    await teller.until("dropped", "written")
    for uid in ("rs-1", "rs-2"):
        teller.events.reviewed(denied(QUOTA_DENIED, owner(uid)))
    await teller.until("dropped", "written", "written")


async def test_the_memory_of_a_minute_is_bounded_and_gone_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observer, "SEEN_MAX", 2)
    teller = world.teller()
    for number in range(4):
        teller.events.reviewed(denied(QUOTA_DENIED, owner(f"rs-{number}")))
    await teller.until("dropped", "dropped", "written", "written")
    teller.events.reviewed(denied(QUOTA_DENIED, owner("rs-3"), after_ns=MINUTE_NS))
    await teller.until("dropped", "dropped", "written", "written", "written")
    assert len(teller.events._seen) == 1


def test_a_burst_goes_at_once_and_the_rest_at_its_pace() -> None:
    bucket = event_sender._Bucket(EventTiming(per_second=10, burst=3))
    assert [bucket.wait_seconds(1000.0) for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    assert bucket.wait_seconds(1000.3) == pytest.approx(0)
    assert [bucket.wait_seconds(2000.0) for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


# An API server that is away, or that refuses


@pytest.mark.parametrize("fault", [drop, refuse(503, "unwell"), refuse(429, "busy", Retry_After="0")])
async def test_it_is_sent_again_until_there_is_an_answer_and_the_trouble_is_reported_once(
    world: World, fault: Fault
) -> None:
    world.fake.next("create", fault, fault, fault)
    teller = world.teller()
    teller.events.reviewed(denied())
    await teller.until("written")
    assert world.fake.verbs().count("create") == 4
    assert len(teller.troubles) == 1
    assert teller.troubles == teller.overs


async def test_one_that_could_not_be_sent_in_its_time_is_given_up(world: World) -> None:
    world.fake.always["create"] = refuse(500, "unwell")
    teller = world.teller(patience_seconds=0)
    teller.events.reviewed(denied())
    await teller.until("failed")
    assert world.fake.verbs() == ["create"]


@pytest.mark.parametrize("where", ["all namespaces", "podgate-system"])
async def test_a_missing_right_is_reported_once_and_each_event_is_tried_once(world: World, where: str) -> None:
    world.fake.always["create"] = refuse(403, "forbidden")
    teller = world.teller(where=where)
    for number in range(3):
        teller.events.reviewed(denied(QUOTA_DENIED, owner(f"rs-{number}")))
    await teller.until("failed", "failed", "failed")
    assert world.fake.verbs() == ["create"] * 3
    [trouble] = teller.troubles
    assert f"grant the right to create events.events.k8s.io in {where}" in trouble
    del world.fake.always["create"]
    teller.events.reviewed(denied(BREAKER_DENIED))
    await teller.until("failed", "failed", "failed", "written")


@pytest.mark.parametrize(
    "fault",
    [
        refuse(404, 'namespaces "payments" not found'),
        refuse(403, "unable to create new content in namespace payments because it is being terminated"),
    ],
    ids=["gone", "going"],
)
async def test_terminating_namespace_is_no_error(world: World, fault: Fault) -> None:
    world.fake.next("create", fault)
    teller = world.teller()
    teller.events.reviewed(denied())
    await teller.until("dropped")
    assert teller.troubles == []


async def test_a_config_map_that_may_not_be_listed_is_reported_and_the_next_event_goes_on(world: World) -> None:
    world.fake.next("list", refuse(403, "forbidden"))
    teller = world.teller()
    teller.events.policy_loaded(policy("payment-api"))
    teller.events.reviewed(denied())
    await teller.until("failed", "written")
    assert len(teller.troubles) == 1


def test_a_controller_is_read_with_its_api_version() -> None:
    raw = b'{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9c", "uid": "rs-1", "controller": true}'
    assert msgspec.json.decode(raw, type=OwnerReference) == owner()
