"""Each Pod's start is reported once from the watch; lists report none, and missing data is no failure."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import compiled, pod
from tests.controller.start_simulation import CRASHING, DEADLINE, GATE, STARTS, Starting
from tests.controller.test_pod_tracker import until
from webhook.controller import outcome_sender, start_tracker
from webhook.core.breaker import State
from webhook.ports import PodLookup


async def test_the_first_ready_is_reported_once_with_the_time_it_took() -> None:
    world = Starting()
    await world.see()
    await world.create("a")
    await world.see()
    world.wait(7)
    world.condition("a")
    await world.see()
    for status in ("False", "True"):
        world.wait(1)
        world.condition("a", status)
        await world.see()
    world.cluster.update("a", phase="Failed")
    await world.see()
    world.wait(DEADLINE)
    await world.see()
    assert (world.heard, world.results, len(world.told_of)) == ([("a", True, 7.0)], {"ok": 1}, 1)


async def test_a_deadline_that_passes_is_an_error_by_its_cause() -> None:
    world = Starting()
    await world.see()
    await world.create("unscheduled", "crashing", "slow", "failed")
    world.condition("unscheduled", "False", "PodScheduled", "Unschedulable")
    world.cluster.update("crashing", container_statuses=(CRASHING,))
    await world.see()
    world.wait(1)
    world.cluster.update("failed", phase="Failed")
    world.wait(DEADLINE - 1)
    await world.see()
    assert world.results == {"Failed": 1}
    world.wait(1)
    await world.see()
    await world.see()
    assert world.results == {"Failed": 1, "Unschedulable": 1, "CrashLoop": 1, "StartDeadline": 1}
    assert {ok for _, ok, _ in world.heard} == {False}


async def test_who_goes_before_has_no_outcome() -> None:
    world = Starting()
    await world.see()
    await world.create("gone", "leaving", "evicted", "unseen")
    await world.watch_all()
    world.cluster.delete("gone")
    world.cluster.terminate("leaving", 30)
    world.condition("evicted", "True", "DisruptionTarget", "DeletionByPodGC")
    await world.watch_all()
    for uid in ("leaving", "evicted"):
        world.cluster.update(uid, phase="Failed")
    await world.see()
    world.cluster.delete("unseen")
    world.wait(DEADLINE + 1)
    await world.tell_starts()  # the watch has not shown that it has gone
    await world.see()
    assert world.told_of == []
    assert len(world.controller._start_tracker) == 0


@pytest.mark.parametrize("shown", ["ready", "failed", "succeeded"])
async def test_what_a_list_shows_is_no_outcome(shown: str) -> None:
    world = Starting()
    await world.create("a")
    world.cluster.update("a", phase={"ready": "Running"}.get(shown, shown.capitalize()))
    if shown == "ready":
        world.condition("a")
    await world.see()
    world.condition("a", "False")
    await world.see()
    world.condition("a")
    await world.see()
    world.wait(DEADLINE + 1)
    await world.see()
    assert world.told_of == []


async def test_who_is_on_its_way_in_a_list_is_followed_from_then_on_if_it_is_young() -> None:
    world = Starting()
    await world.create("old")
    world.wait(DEADLINE)
    await world.create("ready", "late")
    world.wait(10)
    await world.see()
    world.wait(5)
    world.condition("old")
    world.condition("ready")
    await world.see()
    world.wait(DEADLINE)
    await world.see()
    assert world.heard == [("ready", True, 15.0), ("late", False, 75.0)]


@pytest.mark.parametrize("broken", ["cut", "compacted", "another leads"])
async def test_what_came_about_unwatched_is_no_outcome_and_what_was_reported_is_not_reported_again(broken: str) -> None:
    world = Starting()
    await world.see()
    await world.create("before", "meanwhile", "after", "never")
    world.condition("before")
    await world.see()
    world.wait(10)
    world.condition("meanwhile")
    world.condition("before", "False")
    if broken == "cut":
        world.watch.cut()
    elif broken == "compacted":
        world.cluster.compact()
        await world.watch.step(world.tracker)
    else:
        world.renew()
        world.lead()
    await world.see()
    world.condition("after")
    world.condition("before")
    await world.see()
    world.wait(DEADLINE)
    await world.see()
    assert world.heard == [("before", True, 0.0), ("after", True, 10.0), ("never", False, 70.0)]


async def test_who_was_reported_by_a_former_leader_is_not_counted_twice() -> None:
    world = Starting()
    await world.see()
    await world.create("a")
    world.condition("a")
    await world.see()
    world.condition("a", "False")
    world.lead()
    await world.see()
    world.condition("a")
    await world.see()
    assert (len(world.told_of), len(world.heard), world.told.dropped) == (2, 1, {("web", "repeated"): 1})


async def test_time_behind_a_gate_is_not_the_services() -> None:
    world = Starting()
    await world.see()
    await world.create("ready", "late", "gated", scheduling_gates=(GATE,))
    await world.see()
    world.wait(2 * DEADLINE)
    for uid in ("ready", "late"):
        world.cluster.update(uid, spec={"scheduling_gates": None})
    await world.see()
    world.wait(9)
    world.condition("ready")
    await world.see()
    assert world.heard == [("ready", True, 9.0)]
    world.wait(DEADLINE - 9)
    await world.see()
    assert len(world.heard) == 1
    world.wait(1)
    await world.see()
    assert world.heard[1:] == [("late", False, DEADLINE + 1.0)]


async def test_who_is_gated_in_a_list_is_followed_however_old_it_is() -> None:
    world = Starting()
    await world.create("a", scheduling_gates=(GATE,))
    world.wait(3 * DEADLINE)
    await world.see()
    world.cluster.update("a", spec={"scheduling_gates": None})
    await world.see()
    world.wait(3)
    world.watch.cut()
    await world.see()
    world.condition("a")
    await world.see()
    assert world.heard == [("a", True, 3.0)]


async def test_silence_of_the_api_server_fails_nobody() -> None:
    world = Starting()
    await world.see()
    await world.create("a", "b")
    await world.see()
    world.answer(looks=False)
    world.wait(DEADLINE - 1)
    world.condition("a")
    world.wait(100)
    await world.tell_starts()
    assert world.told_of == []
    world.answer(looks=True)
    world.wait(10)
    await world.tell_starts()
    await world.see()
    assert world.heard == [("a", True, DEADLINE - 1.0), ("b", False, DEADLINE + 109.0)]


async def test_another_pod_of_the_same_name_is_not_taken_for_it() -> None:
    world = Starting()
    await world.see()
    await world.create("a", name="web-0")
    await world.see()
    world.cluster.delete("a")
    await world.create("b", name="web-0")
    world.condition("b")
    world.wait(DEADLINE + 1)
    await world.tell_starts()
    assert world.told_of == []


async def test_what_the_watch_shows_during_a_look_stands() -> None:
    world = Starting()
    await world.see()
    await world.create("ready", "gone")
    await world.see()
    world.wait(DEADLINE)
    world.condition("ready")
    world.wait(1)
    find = world.watch.find

    async def find_late(namespace: str, name: str) -> PodLookup | None:
        found = await find(namespace, name)
        if world.cluster.pods.get("gone"):
            world.cluster.delete("gone")
        await world.watch_all()
        await world.controller._outcome_sender.send()
        return found

    world.watch.find = find_late  # type: ignore[method-assign]  the watch is faster than the answer
    await world.tell_starts()
    assert world.heard == [("ready", True, float(DEADLINE))]
    assert (len(world.told_of), len(world.controller._start_tracker)) == (1, 0)


async def test_a_policy_that_comes_during_a_look_gives_the_time_that_it_says() -> None:
    world = Starting()
    await world.see()
    await world.create("a")
    await world.see()
    world.wait(DEADLINE + 1)
    find = world.watch.find

    async def find_late(namespace: str, name: str) -> PodLookup | None:
        world.policy = compiled(STARTS.replace("60s", "90s"))
        world.watch.list_again()
        await world.watch_all()
        return await find(namespace, name)

    world.watch.find = find_late  # type: ignore[method-assign]  the policy is faster than the answer
    await world.tell_starts()
    assert (world.told_of, len(world.controller._start_tracker)) == ([], 1)
    world.wait(30)
    await world.tell_starts()
    assert world.heard == [("a", False, DEADLINE + 31.0)]


async def test_looks_are_bounded_in_a_round() -> None:
    world = Starting()
    await world.see()
    most = world.controller._start_tracker._timing.lookups_per_round
    await world.create(*(f"u{number}" for number in range(most + 1)))
    await world.see()
    world.wait(DEADLINE + 1)
    await world.tell_starts()
    assert (len(world.watch.looks), len(world.heard)) == (most, most)
    await world.tell_starts()
    assert len(world.heard) == most + 1


async def test_while_the_store_is_away_outcomes_wait_and_grow_old() -> None:
    world = Starting()
    await world.see()
    await world.create("a", "b")
    world.condition("a")
    world.answer(store=False)
    await world.see()
    world.wait(4)
    world.condition("b")
    await world.see()
    world.wait(5)
    world.answer(store=True)
    await world.tell_starts()
    assert [(one.uid, one.latency_us, one.age_us) for one in world.told_of] == [
        ("a", 0, 9_000_000),
        ("b", 4_000_000, 5_000_000),
    ]
    assert world.results == {"ok": 2}


async def test_what_the_store_counted_and_could_not_answer_is_counted_as_counted() -> None:
    world = Starting()
    await world.see()
    await world.create("a")
    world.condition("a")
    world.loses_answer = True
    await world.see()
    assert world.results == {}
    world.loses_answer = False
    await world.tell_starts()
    assert (world.results, world.told.dropped, len(world.heard)) == ({"ok": 1}, {}, 1)


async def test_a_trip_is_reported_and_what_was_admitted_before_it_is_counted_no_more() -> None:
    world = Starting()
    await world.see()
    await world.create("a", "b", "c")
    for uid in ("a", "b"):
        world.cluster.update(uid, phase="Failed")
    await world.see()
    world.wait(30)
    world.cluster.update("c", phase="Failed")
    await world.see()
    assert [(one.old, one.new) for one in world.told.transitions] == [(State.CLOSED, State.OPEN)]
    assert world.told.transitions[0].reason.startswith("errorRate")
    assert (world.results, world.told.dropped) == ({"Failed": 2}, {("web", "stale"): 1})


async def test_who_nobody_counted_is_unknown() -> None:
    world = Starting()
    await world.see()
    world.cluster.create(pod("a"))
    world.condition("a")
    await world.see()
    assert (world.results, world.told.dropped) == ({}, {("web", "unknown"): 1})


async def test_only_services_that_ask_are_followed() -> None:
    others = (
        STARTS.replace("app: web", "app: mute")
        .replace("name: web", "name: mute")
        .replace("  breaker:", "  modes: {breaker: Disabled}\n  breaker:")
    )
    quiet = "- {name: quiet, match: {namespaces: [shop]}, quota: {windows: [{window: 1h, hard: {pods: 9}}]}, "
    world = Starting(STARTS + others + quiet + "breaker: {quotaExceeded: {}}}\n")
    await world.see()
    for app, service in (("mute", "mute"), ("other", "quiet")):
        world.cluster.create(pod(app, labels={"app": app, "podgate.io/service": service}))
    await world.see()
    assert len(world.controller._start_tracker) == 0


async def test_a_label_that_is_not_accepted_reports_nobody_anything() -> None:
    world = Starting()
    await world.see()
    world.cluster.create(pod("forged", labels={"podgate.io/service": "web"}, namespace="elsewhere"))
    world.cluster.update("forged", phase="Failed")
    await world.see()
    assert (world.told_of, len(world.controller._start_tracker)) == ([], 0)


async def test_a_new_policy_judges_starts_again() -> None:
    world = Starting()
    await world.see()
    await world.create("a", "b")
    await world.see()
    world.wait(40)
    world.policy = compiled(STARTS.replace("60s", "30s"))
    world.watch.list_again()
    await world.see()
    assert world.heard == [("a", False, 40.0), ("b", False, 40.0)]
    await world.create("c")
    await world.see()
    world.policy = compiled(STARTS.replace("60s", "90s"))
    world.watch.list_again()
    await world.see()
    world.wait(31)
    await world.see()
    assert len(world.heard) == 2
    world.policy = compiled("- {name: web, match: {namespaces: [shop]}}\n")
    world.watch.list_again()
    world.wait(90)
    await world.see()
    assert (len(world.heard), len(world.controller._start_tracker)) == (2, 0)


async def test_an_outcome_that_waits_goes_with_the_breaker() -> None:
    world = Starting()
    await world.see()
    await world.create("a")
    world.condition("a")
    world.answer(store=False)
    await world.see()
    world.policy = compiled("- {name: web, match: {namespaces: [shop]}}\n")
    world.watch.list_again()
    world.answer(store=True)
    await world.see()
    assert world.told_of == []
    assert not await world.controller._outcome_sender.send(), "nothing waits"


async def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_tracker, "MOST", 3)
    monkeypatch.setattr(outcome_sender, "MOST", 2)
    world = Starting()
    await world.see()
    world.answer(store=False)
    for uid in "abcd":
        world.cluster.create(pod(uid))
        world.condition(uid)
    await world.see()
    assert len(world.controller._start_tracker) == 3
    assert world.told.dropped == {("web", "overflow"): 3}, "one was not followed, and the oldest is not told"


async def test_what_is_over_is_forgotten() -> None:
    world = Starting()
    await world.see()
    await world.create("a", "b")
    world.condition("a")
    await world.see()
    assert len(world.controller._start_tracker) == 2
    world.wait(DEADLINE + 1)
    await world.see()
    assert (len(world.controller._start_tracker), world.watch.looks) == (0, ["pod-b"])


async def test_the_loops_do_it_by_themselves() -> None:
    world = Starting()
    running = asyncio.create_task(world.controller.run())
    await until(lambda: world.watch.taker is not None)
    await world.watch_all()
    await world.create("a", "b")
    world.condition("a")
    await world.watch_all()
    await until(lambda: world.results == {"ok": 1})
    world.wait(DEADLINE + 1)
    await until(lambda: world.results == {"ok": 1, "StartDeadline": 1})
    running.cancel()
    await asyncio.wait([running])


def test_a_pod_without_a_time_of_creation_is_nobodys() -> None:
    new = pod("a")
    assert new.metadata.creation_timestamp is None
    world = Starting()
    world.tracker.compiled = world.policy
    world.controller._start_tracker.begin(world.policy)
    found = asyncio.run(world.tracker.find_owner(replace(new)))
    world.controller._start_tracker.changed(new, found)
    assert len(world.controller._start_tracker) == 0
