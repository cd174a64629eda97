"""Repair of drift between store and cluster: additions, removals, and reports."""

from tests.controller.controller_simulation import WEB, World, compiled, pod
from webhook.core.overrides import WindowReset
from webhook.core.quota import Sighting


async def test_who_is_missing_in_the_store_stands_again() -> None:
    simulation = World()
    await simulation.create("a", "b")
    await simulation.all()
    simulation.store._states.clear()  # what a Redis does that was emptied
    await simulation.repair()
    assert (simulation.reported.drift, await simulation.standing()) == ({"web": 2}, {"a", "b"})
    await simulation.repair()
    assert simulation.reported.drift == {"web": 0}


async def test_who_is_not_there_falls_when_it_was_not_there_twice() -> None:
    simulation = World()
    await simulation.create("a")
    await simulation.all()
    ghost = Sighting("shop", "ghost", "ghost", {"pods": 1}, lives=True)
    await simulation.store.observe(simulation.plan, [ghost])
    await simulation.repair()
    assert (simulation.reported.drift, await simulation.standing()) == ({"web": 0}, {"a", "ghost"})
    await simulation.repair()
    assert (simulation.reported.drift, await simulation.standing()) == ({"web": 1}, {"a"})


async def test_who_was_found_in_the_cluster_stands_however_long_the_watch_lags() -> None:
    simulation = World()
    await simulation.all()
    simulation.wait(10)
    await simulation.create("slow", "brief")
    simulation.wait(61)
    await simulation.refund()
    await simulation.tell()
    simulation.cluster.delete("brief")
    for _ in range(3):
        await simulation.repair()
    assert (simulation.reported.drift, await simulation.standing()) == ({"web": 0}, {"slow", "brief"})
    await simulation.all()
    assert (await simulation.standing(), simulation.tracker._ahead_of_watch) == ({"slow"}, {})


async def test_who_was_found_and_went_in_a_gap_of_the_watch_falls() -> None:
    simulation = World()
    await simulation.all()
    simulation.wait(10)
    await simulation.create("brief")
    simulation.wait(61)
    await simulation.refund()
    await simulation.tell()
    simulation.cluster.delete("brief")
    simulation.watch.cut()
    await simulation.watch.step(simulation.tracker)
    assert simulation.tracker._ahead_of_watch == {}, "the list is newer"
    for _ in range(3):
        await simulation.all()
    assert await simulation.standing() == set()


async def test_who_was_found_is_missed_once_the_watch_has_come_so_far() -> None:
    simulation = World()
    await simulation.all()
    simulation.wait(10)
    await simulation.create("slow")
    simulation.wait(61)
    await simulation.refund()
    await simulation.tell()
    simulation.watch._reached(str(simulation.cluster.revision))  # as after a gap that nobody was told of
    for _ in range(2):
        await simulation.repair()
    assert await simulation.standing() == set()


async def test_ghosts_fall_in_the_namespace_where_they_stand() -> None:
    simulation = World(WEB.replace("quota: {", "quota: {per: Namespace, ").replace("[shop]", "[shop, other]"))
    await simulation.create("a")
    await simulation.store.observe(simulation.plan, [Sighting("other", "ghost", "ghost", {"pods": 1}, lives=True)])
    for _ in range(3):
        await simulation.all()
    assert await simulation.standing() == {"a"}
    assert list(await simulation.store.scopes(simulation.plan)) == ["shop"]


async def test_who_is_admitted_and_not_seen_yet_is_not_missed() -> None:
    simulation = World()
    await simulation.all()
    await simulation.admit(pod("young"))
    for _ in range(3):
        await simulation.all()
    look = await simulation.store.snapshot(simulation.plan)
    assert next(use.used for use in look.uses[""] if use.window == "standing") == 1
    assert simulation.reported.drift == {"web": 0}


async def test_limits_are_enforced_only_after_a_whole_list_was_reported() -> None:
    simulation = World()
    await simulation.create("a")
    simulation.answer(store=False)
    await simulation.watch_all()
    await simulation.tell()
    simulation.answer(store=True)
    await simulation.controller._drift_repair.round()
    assert not (await simulation.store.snapshot(simulation.plan)).is_standing_known
    await simulation.tell()
    await simulation.repair()
    assert (await simulation.store.snapshot(simulation.plan)).is_standing_known


async def test_a_service_that_gets_limits_knows_its_old_pods_before_they_are_enforced() -> None:
    simulation = World("- name: web\n  match: {namespaces: [shop]}\n")
    simulation.cluster.create(pod("old"))
    simulation.wait(4000)
    await simulation.all()
    simulation.policy = compiled(WEB)
    simulation.watch.list_again()
    known_with: list[set[str]] = []
    counted = simulation.store.mark_complete

    async def spy(plan: object, scopes: object) -> None:
        known_with.append(await simulation.standing())
        await counted(plan, scopes)  # type: ignore[arg-type]  handed on

    simulation.store.mark_complete = spy  # type: ignore[method-assign, assignment]  a spy
    await simulation.all()
    assert known_with == [{"old"}]


async def test_one_service_that_the_store_will_not_answer_for_holds_up_no_other() -> None:
    other = WEB.replace("name: web", "name: other").replace("app: web", "app: other")
    simulation = World(WEB + other)
    simulation.cluster.create(pod("a"))
    simulation.cluster.create(pod("b", labels={"app": "other"}))
    see = simulation.store.observe

    async def choosy(plan: object, sightings: object) -> object:
        if getattr(plan, "service", "") == "web":
            await simulation.store._refuse()
        return await see(plan, sightings)  # type: ignore[arg-type]  handed on

    simulation.store.observe = choosy  # type: ignore[method-assign, assignment]  half of a cluster
    await simulation.watch_all()
    await simulation.tell()
    await simulation.repair()
    assert (await simulation.store.snapshot(simulation.policy.plans["other"])).is_standing_known
    assert not (await simulation.store.snapshot(simulation.plan)).is_standing_known


async def test_resets_are_asked_for_once_and_again_while_the_store_is_away() -> None:
    simulation = World()
    await simulation.create("a")
    await simulation.all()
    reset, resets = WindowReset("web", simulation.clock.now_us(), None), simulation.controller._resets
    simulation.answer(store=False)
    await resets._reset(reset)
    assert reset not in resets._done
    simulation.answer(store=True)
    await resets._reset(reset)
    assert (await simulation.used(), reset in resets._done) == (0, True)
