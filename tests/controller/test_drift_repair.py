"""Repair of drift between store and cluster: additions, removals, and reports."""

import pytest

from tests.controller.controller_simulation import WEB, ControllerSimulation, compile_policy, pod
from webhook.core.kubernetes.pod import Container, Resources
from webhook.core.overrides import WindowReset
from webhook.core.quota import EXACT_AMOUNT_MAX, Acquire, Sighting


async def simulation_ahead_of_watch(*uids: str) -> ControllerSimulation:
    """Return a simulation whose lookups have found Pods that the watch has not delivered yet."""
    simulation = ControllerSimulation()
    await simulation.run_all()
    simulation.wait(10)
    await simulation.create(*uids)
    simulation.wait(61)
    await simulation.refund()
    await simulation.send_sightings()
    return simulation


async def test_pod_missing_in_the_store_is_restored() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a", "b")
    await simulation.run_all()
    simulation.store._states.clear()  # as in an emptied Redis
    await simulation.repair()
    assert (simulation.reported.drift, await simulation.list_standing()) == ({"web": 2}, {"a", "b"})
    await simulation.repair()
    assert simulation.reported.drift == {"web": 0}


async def test_pod_absent_in_two_rounds_is_removed() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a")
    await simulation.run_all()
    ghost = Sighting("shop", "ghost", "ghost", {"pods": 1}, lives=True)
    await simulation.store.observe(simulation.plan, [ghost])
    await simulation.repair()
    assert (simulation.reported.drift, await simulation.list_standing()) == ({"web": 0}, {"a", "ghost"})
    await simulation.repair()
    assert (simulation.reported.drift, await simulation.list_standing()) == ({"web": 1}, {"a"})


async def test_pod_found_in_the_cluster_stays_live_during_watch_lag() -> None:
    simulation = await simulation_ahead_of_watch("slow", "brief")
    simulation.cluster.delete("brief")
    for _ in range(3):
        await simulation.repair()
    assert (simulation.reported.drift, await simulation.list_standing()) == ({"web": 0}, {"slow", "brief"})
    await simulation.run_all()
    assert (await simulation.list_standing(), simulation.tracker._ahead_of_watch) == ({"slow"}, {})


async def test_found_pod_deleted_in_a_watch_gap_is_removed() -> None:
    simulation = await simulation_ahead_of_watch("brief")
    simulation.cluster.delete("brief")
    simulation.watch.cut()
    await simulation.watch.step(simulation.tracker)
    assert simulation.tracker._ahead_of_watch == {}, "the list is newer"
    for _ in range(3):
        await simulation.run_all()
    assert await simulation.list_standing() == set()


async def test_found_pod_counts_as_missing_once_the_watch_has_caught_up() -> None:
    simulation = await simulation_ahead_of_watch("slow")
    simulation.watch._on_reached(str(simulation.cluster.revision))  # as after an undetected gap
    for _ in range(2):
        await simulation.repair()
    assert await simulation.list_standing() == set()


async def test_stale_pods_are_removed_in_their_namespace() -> None:
    simulation = ControllerSimulation(
        WEB.replace("quota: {", "quota: {per: Namespace, ").replace("[shop]", "[shop, other]")
    )
    await simulation.create("a")
    await simulation.store.observe(simulation.plan, [Sighting("other", "ghost", "ghost", {"pods": 1}, lives=True)])
    for _ in range(3):
        await simulation.run_all()
    assert await simulation.list_standing() == {"a"}
    assert list(await simulation.store.list_scopes(simulation.plan)) == ["shop"]


async def test_admitted_pod_not_yet_observed_is_not_missing() -> None:
    simulation = ControllerSimulation()
    await simulation.run_all()
    await simulation.admit(pod("young"))
    for _ in range(3):
        await simulation.run_all()
    snapshot = await simulation.store.snapshot(simulation.plan)
    assert next(use.used for use in snapshot.uses[""] if use.window == "standing") == 1
    assert simulation.reported.drift == {"web": 0}


async def test_limits_are_enforced_only_after_a_full_list_was_reported() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a")
    simulation.set_available(store=False)
    await simulation.watch_all()
    await simulation.send_sightings()
    simulation.set_available(store=True)
    await simulation.controller._drift_repair.round()
    assert not (await simulation.store.snapshot(simulation.plan)).is_standing_known
    await simulation.send_sightings()
    await simulation.repair()
    assert (await simulation.store.snapshot(simulation.plan)).is_standing_known


async def test_refused_resize_counts_no_longer_at_the_second_repair() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a")
    await simulation.run_all()
    await resize(simulation, 1000, 10_000)
    await simulation.repair()
    assert (await read_cpu(simulation), simulation.reported.drift) == (10_000, {"web": 0}), "the watch may be behind"
    await simulation.repair()
    assert (await read_cpu(simulation), simulation.reported.drift) == (1000, {"web": 1})
    await simulation.repair()
    assert simulation.reported.drift == {"web": 0}


async def test_resize_that_the_watch_shows_after_a_repair_stays_counted() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a")
    await simulation.run_all()
    await resize(simulation, 1000, 10_000)
    await simulation.repair()
    simulation.cluster.update("a", spec={"containers": (Container("c", Resources({"cpu": "10"})),)})
    for _ in range(3):
        await simulation.run_all()
        assert (await read_cpu(simulation), simulation.reported.drift) == (10_000, {"web": 0})


async def test_amounts_beyond_the_largest_exact_one_are_no_drift() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a", cpu="10P")
    for clipped in (False, True):
        if clipped:
            cost = {"pods": 1, "requests.cpu": EXACT_AMOUNT_MAX}  # as Redis has it
            await simulation.store.observe(simulation.plan, [Sighting("shop", "pod-a", "a", cost, lives=True)])
        for _ in range(3):
            await simulation.run_all()
            assert simulation.reported.drift == {"web": 0}


async def test_new_limits_are_enforced_after_existing_pods_are_counted() -> None:
    simulation = ControllerSimulation("- name: web\n  match: {namespaces: [shop]}\n")
    simulation.cluster.create(pod("old"))
    simulation.wait(4000)
    await simulation.run_all()
    simulation.policy = compile_policy(WEB)
    simulation.watch.list_again()
    live_when_complete: list[set[str]] = []
    mark_complete = simulation.store.mark_complete

    async def spy(plan: object, scopes: object) -> None:
        live_when_complete.append(await simulation.list_standing())
        await mark_complete(plan, scopes)  # type: ignore[arg-type]  passed through

    simulation.store.mark_complete = spy  # type: ignore[method-assign, assignment]  a spy
    await simulation.run_all()
    assert live_when_complete == [{"old"}]


async def test_service_without_a_store_answer_delays_no_other() -> None:
    other = WEB.replace("name: web", "name: other").replace("app: web", "app: other")
    simulation = ControllerSimulation(WEB + other)
    simulation.cluster.create(pod("a"))
    simulation.cluster.create(pod("b", labels={"app": "other"}))
    observe = simulation.store.observe

    async def observe_other(plan: object, sightings: object) -> object:
        if getattr(plan, "service", "") == "web":
            await simulation.store._fail()
        return await observe(plan, sightings)  # type: ignore[arg-type]  passed through

    simulation.store.observe = observe_other  # type: ignore[method-assign, assignment]  fails for one service
    await simulation.watch_all()
    await simulation.send_sightings()
    await simulation.repair()
    assert (await simulation.store.snapshot(simulation.policy.plans["other"])).is_standing_known
    assert not (await simulation.store.snapshot(simulation.plan)).is_standing_known


async def test_resets_are_repeated_while_the_store_is_unavailable() -> None:
    simulation = ControllerSimulation()
    await simulation.create("a")
    await simulation.run_all()
    reset, resets = WindowReset("web", simulation.clock.now_us(), None), simulation.controller._resets
    simulation.set_available(store=False)
    await resets._reset(reset)
    assert reset not in resets._done
    simulation.set_available(store=True)
    await resets._reset(reset)
    assert (await simulation.count_used(), reset in resets._done) == (0, True)


async def test_live_pods_of_a_namespace_given_to_another_team_move_at_the_next_comparison() -> None:
    by_team = WEB.replace("quota: {", "quota: {per: {namespaceLabel: team}, ")
    simulation = ControllerSimulation(by_team, labels={"shop": {"team": "red"}})
    for uid in "ab":
        simulation.cluster.create(pod(uid))
    for _ in range(2):
        await simulation.run_all()
    assert await count_live(simulation) == {"red": 2}
    simulation.namespaces.update({"shop": {"team": "blue"}})
    assert simulation.tracker.needs_new_list()
    simulation.watch.list_again()
    for _ in range(3):
        await simulation.run_all()
    assert await count_live(simulation) == {"blue": 2}
    simulation.cluster.delete("a")
    for _ in range(3):
        await simulation.run_all()
    assert await count_live(simulation) == {"blue": 1}


@pytest.mark.parametrize("back", [False, True], ids=["namespaces", "teams-again"])
async def test_namespace_called_as_a_team_has_only_its_own_pods(back: bool) -> None:  # noqa: FBT001  parametrized
    by_team = WEB.replace("quota: {", "quota: {per: {namespaceLabel: team}, ").replace("[shop]", "[shop, test]")
    labels = {"shop": {"team": "shop"}, "test": {"team": "shop"}}
    simulation = ControllerSimulation(by_team, labels=labels)
    for uid in "ab":
        simulation.cluster.create(pod(uid, namespace="test"))
    simulation.cluster.create(pod("c"))
    for _ in range(2):
        await simulation.run_all()
    assert await count_live(simulation) == {"shop": 3}
    for services in (by_team.replace("{namespaceLabel: team}", "Namespace"), *([by_team] if back else [])):
        simulation.policy = compile_policy(services)
        simulation.watch.list_again()
        for _ in range(3):
            await simulation.run_all()
    assert await count_live(simulation) == ({"shop": 3} if back else {"shop": 1, "test": 2})


async def resize(simulation: ControllerSimulation, before: int, after: int) -> None:
    """Charge Pod `a` for a resize, as the validating half does."""
    old, new = ({"pods": 1, "requests.cpu": cpu} for cpu in (before, after))
    request = Acquire(simulation.plan, "shop", "a", new, "user:alice", resize_from=old, name="pod-a")
    assert (await simulation.store.acquire(request)).refused is None


async def read_cpu(simulation: ControllerSimulation) -> int:
    uses = (await simulation.store.snapshot(simulation.plan)).uses[""]
    return next(use.used for use in uses if (use.window, use.resource) == ("standing", "cpu"))


async def count_live(simulation: ControllerSimulation) -> dict[str, int]:
    """Return the number of live Pods by team."""
    plan, store = simulation.plan, simulation.store
    return {scope: len((await store.list_live(plan, scope))[0]) for scope in await store.list_scopes(plan)}
