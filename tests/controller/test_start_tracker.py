"""Each Pod's start is reported once from the watch; lists report none, and missing data is no failure."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import compile_policy, pod
from tests.controller.pod_lifecycle import wait_until
from tests.controller.start_simulation import CRASHING, DEADLINE, GATE, STARTS, StartSimulation
from webhook.controller import outcome_sender, start_tracker
from webhook.core.breaker import State
from webhook.ports import PodLookup


async def test_first_readiness_is_reported_once_with_its_latency() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("a")
    await simulation.watch_and_send()
    simulation.wait(7)
    simulation.set_condition("a")
    await simulation.watch_and_send()
    for status in ("False", "True"):
        simulation.wait(1)
        simulation.set_condition("a", status)
        await simulation.watch_and_send()
    simulation.cluster.update("a", phase="Failed")
    await simulation.watch_and_send()
    simulation.wait(DEADLINE)
    await simulation.watch_and_send()
    assert (simulation.recorded, simulation.results, len(simulation.sent_starts)) == ([("a", True, 7.0)], {"ok": 1}, 1)


async def test_exceeded_deadline_is_an_error_with_its_cause() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("unscheduled", "crashing", "slow", "failed")
    simulation.set_condition("unscheduled", "False", "PodScheduled", "Unschedulable")
    simulation.cluster.update("crashing", container_statuses=(CRASHING,))
    await simulation.watch_and_send()
    simulation.wait(1)
    simulation.cluster.update("failed", phase="Failed")
    simulation.wait(DEADLINE - 1)
    await simulation.watch_and_send()
    assert simulation.results == {"Failed": 1}
    simulation.wait(1)
    await simulation.watch_and_send()
    await simulation.watch_and_send()
    assert simulation.results == {"Failed": 1, "Unschedulable": 1, "CrashLoop": 1, "StartDeadline": 1}
    assert {ok for _, ok, _ in simulation.recorded} == {False}


async def test_pod_deleted_before_its_deadline_has_no_outcome() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("gone", "leaving", "evicted", "unseen")
    await simulation.watch_all()
    simulation.cluster.delete("gone")
    simulation.cluster.terminate("leaving", 30)
    simulation.set_condition("evicted", "True", "DisruptionTarget", "DeletionByPodGC")
    await simulation.watch_all()
    for uid in ("leaving", "evicted"):
        simulation.cluster.update(uid, phase="Failed")
    await simulation.watch_and_send()
    simulation.cluster.delete("unseen")
    simulation.wait(DEADLINE + 1)
    await simulation.send_starts()  # the watch has not delivered its deletion
    await simulation.watch_and_send()
    assert simulation.sent_starts == []
    assert len(simulation.controller._start_tracker) == 0


@pytest.mark.parametrize("state", ["ready", "failed", "succeeded"])
async def test_listed_pods_have_no_outcome(state: str) -> None:
    simulation = StartSimulation()
    await simulation.create("a")
    simulation.cluster.update("a", phase={"ready": "Running"}.get(state, state.capitalize()))
    if state == "ready":
        simulation.set_condition("a")
    await simulation.watch_and_send()
    simulation.set_condition("a", "False")
    await simulation.watch_and_send()
    simulation.set_condition("a")
    await simulation.watch_and_send()
    simulation.wait(DEADLINE + 1)
    await simulation.watch_and_send()
    assert simulation.sent_starts == []


async def test_young_starting_pod_in_a_list_is_tracked() -> None:
    simulation = StartSimulation()
    await simulation.create("old")
    simulation.wait(DEADLINE)
    await simulation.create("ready", "late")
    simulation.wait(10)
    await simulation.watch_and_send()
    simulation.wait(5)
    simulation.set_condition("old")
    simulation.set_condition("ready")
    await simulation.watch_and_send()
    simulation.wait(DEADLINE)
    await simulation.watch_and_send()
    assert simulation.recorded == [("ready", True, 15.0), ("late", False, 75.0)]


@pytest.mark.parametrize("broken", ["cut", "compacted", "another leads"])
async def test_unwatched_starts_have_no_outcome_and_reported_ones_are_not_repeated(broken: str) -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("before", "meanwhile", "after", "never")
    simulation.set_condition("before")
    await simulation.watch_and_send()
    simulation.wait(10)
    simulation.set_condition("meanwhile")
    simulation.set_condition("before", "False")
    if broken == "cut":
        simulation.watch.cut()
    elif broken == "compacted":
        simulation.cluster.compact()
        await simulation.watch.step(simulation.tracker)
    else:
        simulation.renew()
        simulation.change_leader()
    await simulation.watch_and_send()
    simulation.set_condition("after")
    simulation.set_condition("before")
    await simulation.watch_and_send()
    simulation.wait(DEADLINE)
    await simulation.watch_and_send()
    assert simulation.recorded == [("before", True, 0.0), ("after", True, 10.0), ("never", False, 70.0)]


async def test_start_reported_by_a_former_leader_is_not_counted_twice() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("a")
    simulation.set_condition("a")
    await simulation.watch_and_send()
    simulation.set_condition("a", "False")
    simulation.change_leader()
    await simulation.watch_and_send()
    simulation.set_condition("a")
    await simulation.watch_and_send()
    assert (len(simulation.sent_starts), len(simulation.recorded), simulation.reported.dropped) == (
        2,
        1,
        {("web", "repeated"): 1},
    )


async def test_time_spent_gated_does_not_count() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("ready", "late", "gated", scheduling_gates=(GATE,))
    await simulation.watch_and_send()
    simulation.wait(2 * DEADLINE)
    for uid in ("ready", "late"):
        simulation.cluster.update(uid, spec={"scheduling_gates": None})
    await simulation.watch_and_send()
    simulation.wait(9)
    simulation.set_condition("ready")
    await simulation.watch_and_send()
    assert simulation.recorded == [("ready", True, 9.0)]
    simulation.wait(DEADLINE - 9)
    await simulation.watch_and_send()
    assert len(simulation.recorded) == 1
    simulation.wait(1)
    await simulation.watch_and_send()
    assert simulation.recorded[1:] == [("late", False, DEADLINE + 1.0)]


async def test_gated_pod_in_a_list_is_tracked_at_any_age() -> None:
    simulation = StartSimulation()
    await simulation.create("a", scheduling_gates=(GATE,))
    simulation.wait(3 * DEADLINE)
    await simulation.watch_and_send()
    simulation.cluster.update("a", spec={"scheduling_gates": None})
    await simulation.watch_and_send()
    simulation.wait(3)
    simulation.watch.cut()
    await simulation.watch_and_send()
    simulation.set_condition("a")
    await simulation.watch_and_send()
    assert simulation.recorded == [("a", True, 3.0)]


async def test_silent_api_server_causes_no_failed_start() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("a", "b")
    await simulation.watch_and_send()
    simulation.set_available(lookups=False)
    simulation.wait(DEADLINE - 1)
    simulation.set_condition("a")
    simulation.wait(100)
    await simulation.send_starts()
    assert simulation.sent_starts == []
    simulation.set_available(lookups=True)
    simulation.wait(10)
    await simulation.send_starts()
    await simulation.watch_and_send()
    assert simulation.recorded == [("a", True, DEADLINE - 1.0), ("b", False, DEADLINE + 109.0)]


async def test_pod_of_the_same_name_is_distinguished_by_uid() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("a", name="web-0")
    await simulation.watch_and_send()
    simulation.cluster.delete("a")
    await simulation.create("b", name="web-0")
    simulation.set_condition("b")
    simulation.wait(DEADLINE + 1)
    await simulation.send_starts()
    assert simulation.sent_starts == []


async def test_watch_event_during_a_lookup_takes_precedence() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("ready", "gone")
    await simulation.watch_and_send()
    simulation.wait(DEADLINE)
    simulation.set_condition("ready")
    simulation.wait(1)
    find = simulation.watch.find

    async def find_late(namespace: str, name: str) -> PodLookup | None:
        lookup = await find(namespace, name)
        if simulation.cluster.pods.get("gone"):
            simulation.cluster.delete("gone")
        await simulation.watch_all()
        await simulation.controller._outcome_sender.send()
        return lookup

    simulation.watch.find = find_late  # type: ignore[method-assign]  the watch is faster than the answer
    await simulation.send_starts()
    assert simulation.recorded == [("ready", True, float(DEADLINE))]
    assert (len(simulation.sent_starts), len(simulation.controller._start_tracker)) == (1, 0)


async def test_policy_change_during_a_lookup_sets_its_deadline() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("a")
    await simulation.watch_and_send()
    simulation.wait(DEADLINE + 1)
    find = simulation.watch.find

    async def find_late(namespace: str, name: str) -> PodLookup | None:
        simulation.policy = compile_policy(STARTS.replace("60s", "90s"))
        simulation.watch.list_again()
        await simulation.watch_all()
        return await find(namespace, name)

    simulation.watch.find = find_late  # type: ignore[method-assign]  the policy is faster than the answer
    await simulation.send_starts()
    assert (simulation.sent_starts, len(simulation.controller._start_tracker)) == ([], 1)
    simulation.wait(30)
    await simulation.send_starts()
    assert simulation.recorded == [("a", False, DEADLINE + 31.0)]


async def test_lookups_per_round_are_bounded() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    limit = simulation.controller._start_tracker._timing.lookups_per_round_max
    await simulation.create(*(f"u{number}" for number in range(limit + 1)))
    await simulation.watch_and_send()
    simulation.wait(DEADLINE + 1)
    await simulation.send_starts()
    assert (len(simulation.watch.lookups), len(simulation.recorded)) == (limit, limit)
    await simulation.send_starts()
    assert len(simulation.recorded) == limit + 1


async def test_outcomes_wait_and_age_during_a_store_outage() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("a", "b")
    simulation.set_condition("a")
    simulation.set_available(store=False)
    await simulation.watch_and_send()
    simulation.wait(4)
    simulation.set_condition("b")
    await simulation.watch_and_send()
    simulation.wait(5)
    simulation.set_available(store=True)
    await simulation.send_starts()
    assert [(start.uid, start.latency_us, start.age_us) for start in simulation.sent_starts] == [
        ("a", 0, 9_000_000),
        ("b", 4_000_000, 5_000_000),
    ]
    assert simulation.results == {"ok": 2}


async def test_outcome_counted_without_an_answer_is_not_counted_twice() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("a")
    simulation.set_condition("a")
    simulation.loses_answers = True
    await simulation.watch_and_send()
    assert simulation.results == {}
    simulation.loses_answers = False
    await simulation.send_starts()
    assert (simulation.results, simulation.reported.dropped, len(simulation.recorded)) == ({"ok": 1}, {}, 1)


async def test_trip_is_reported_and_earlier_admissions_are_no_longer_counted() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("a", "b", "c")
    for uid in ("a", "b"):
        simulation.cluster.update(uid, phase="Failed")
    await simulation.watch_and_send()
    simulation.wait(30)
    simulation.cluster.update("c", phase="Failed")
    await simulation.watch_and_send()
    assert [(transition.old, transition.new) for transition in simulation.reported.transitions] == [
        (State.CLOSED, State.OPEN)
    ]
    assert simulation.reported.transitions[0].reason.startswith("errorRate")
    assert (simulation.results, simulation.reported.dropped) == ({"Failed": 2}, {("web", "stale"): 1})


async def test_uncounted_start_is_unknown() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    simulation.cluster.create(pod("a"))
    simulation.set_condition("a")
    await simulation.watch_and_send()
    assert (simulation.results, simulation.reported.dropped) == ({}, {("web", "unknown"): 1})


async def test_only_services_with_start_tracking_are_tracked() -> None:
    muted = (
        STARTS.replace("app: web", "app: mute")
        .replace("name: web", "name: mute")
        .replace("  breaker:", "  modes: {breaker: Disabled}\n  breaker:")
    )
    quiet = "- {name: quiet, match: {namespaces: [shop]}, quota: {windows: [{window: 1h, hard: {pods: 9}}]}, "
    simulation = StartSimulation(STARTS + muted + quiet + "breaker: {quotaExceeded: {}}}\n")
    await simulation.watch_and_send()
    for app, service in (("mute", "mute"), ("other", "quiet")):
        simulation.cluster.create(pod(app, labels={"app": app, "podgate.io/service": service}))
    await simulation.watch_and_send()
    assert len(simulation.controller._start_tracker) == 0


async def test_rejected_label_reports_no_outcome() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    simulation.cluster.create(pod("forged", labels={"podgate.io/service": "web"}, namespace="elsewhere"))
    simulation.cluster.update("forged", phase="Failed")
    await simulation.watch_and_send()
    assert (simulation.sent_starts, len(simulation.controller._start_tracker)) == ([], 0)


async def test_new_policy_reevaluates_starts() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("a", "b")
    await simulation.watch_and_send()
    simulation.wait(40)
    simulation.policy = compile_policy(STARTS.replace("60s", "30s"))
    simulation.watch.list_again()
    await simulation.watch_and_send()
    assert simulation.recorded == [("a", False, 40.0), ("b", False, 40.0)]
    await simulation.create("c")
    await simulation.watch_and_send()
    simulation.policy = compile_policy(STARTS.replace("60s", "90s"))
    simulation.watch.list_again()
    await simulation.watch_and_send()
    simulation.wait(31)
    await simulation.watch_and_send()
    assert len(simulation.recorded) == 2
    simulation.policy = compile_policy("- {name: web, match: {namespaces: [shop]}}\n")
    simulation.watch.list_again()
    simulation.wait(90)
    await simulation.watch_and_send()
    assert (len(simulation.recorded), len(simulation.controller._start_tracker)) == (2, 0)


async def test_pending_outcome_is_dropped_with_its_breaker() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("a")
    simulation.set_condition("a")
    simulation.set_available(store=False)
    await simulation.watch_and_send()
    simulation.policy = compile_policy("- {name: web, match: {namespaces: [shop]}}\n")
    simulation.watch.list_again()
    simulation.set_available(store=True)
    await simulation.watch_and_send()
    assert simulation.sent_starts == []
    assert not await simulation.controller._outcome_sender.send(), "no outcome is pending"


async def test_remembered_entries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_tracker, "STARTS_MAX", 3)
    monkeypatch.setattr(outcome_sender, "OUTCOMES_MAX", 2)
    simulation = StartSimulation()
    await simulation.watch_and_send()
    simulation.set_available(store=False)
    for uid in "abcd":
        simulation.cluster.create(pod(uid))
        simulation.set_condition(uid)
    await simulation.watch_and_send()
    assert len(simulation.controller._start_tracker) == 3
    assert simulation.reported.dropped == {("web", "overflow"): 3}, (
        "one start was not tracked, and the oldest outcomes were dropped"
    )


async def test_finished_starts_are_forgotten() -> None:
    simulation = StartSimulation()
    await simulation.watch_and_send()
    await simulation.create("a", "b")
    simulation.set_condition("a")
    await simulation.watch_and_send()
    assert len(simulation.controller._start_tracker) == 2
    simulation.wait(DEADLINE + 1)
    await simulation.watch_and_send()
    assert (len(simulation.controller._start_tracker), simulation.watch.lookups) == (0, ["pod-b"])


async def test_loops_track_starts_without_explicit_steps() -> None:
    simulation = StartSimulation()
    running = asyncio.create_task(simulation.controller.run())
    await wait_until(lambda: simulation.watch.event_handler is not None)
    await simulation.watch_all()
    await simulation.create("a", "b")
    simulation.set_condition("a")
    await simulation.watch_all()
    await wait_until(lambda: simulation.results == {"ok": 1})
    simulation.wait(DEADLINE + 1)
    await wait_until(lambda: simulation.results == {"ok": 1, "StartDeadline": 1})
    running.cancel()
    await asyncio.wait([running])


def test_pod_without_a_creation_time_is_ignored() -> None:
    new = pod("a")
    assert new.metadata.creation_timestamp is None
    simulation = StartSimulation()
    simulation.tracker.compiled = simulation.policy
    simulation.controller._start_tracker.on_list_begun(simulation.policy)
    owner = asyncio.run(simulation.tracker.find_owner(replace(new)))
    simulation.controller._start_tracker.on_changed(new, owner)
    assert len(simulation.controller._start_tracker) == 0
