"""Repair of drift between store and cluster: additions, removals, and reports."""

from tests.controller.controller_simulation import WEB, World, compiled, pod
from webhook.core.overrides import WindowReset
from webhook.core.quota import Sighting


async def test_who_is_missing_in_the_store_stands_again() -> None:
    world = World()
    await world.create("a", "b")
    await world.all()
    world.store._states.clear()  # what a Redis does that was emptied
    await world.repair()
    assert (world.told.drift, await world.standing()) == ({"web": 2}, {"a", "b"})
    await world.repair()
    assert world.told.drift == {"web": 0}


async def test_who_is_not_there_falls_when_it_was_not_there_twice() -> None:
    world = World()
    await world.create("a")
    await world.all()
    ghost = Sighting("shop", "ghost", "ghost", {"pods": 1}, lives=True)
    await world.store.observe(world.plan, [ghost])
    await world.repair()
    assert (world.told.drift, await world.standing()) == ({"web": 0}, {"a", "ghost"})
    await world.repair()
    assert (world.told.drift, await world.standing()) == ({"web": 1}, {"a"})


async def test_who_was_found_in_the_cluster_stands_however_long_the_watch_lags() -> None:
    world = World()
    await world.all()
    world.wait(10)
    await world.create("slow", "brief")
    world.wait(61)
    await world.refund()
    await world.tell()
    world.cluster.delete("brief")
    for _ in range(3):
        await world.repair()
    assert (world.told.drift, await world.standing()) == ({"web": 0}, {"slow", "brief"})
    await world.all()
    assert (await world.standing(), world.tracker._ahead_of_watch) == ({"slow"}, {})


async def test_who_was_found_and_went_in_a_gap_of_the_watch_falls() -> None:
    world = World()
    await world.all()
    world.wait(10)
    await world.create("brief")
    world.wait(61)
    await world.refund()
    await world.tell()
    world.cluster.delete("brief")
    world.watch.cut()
    await world.watch.step(world.tracker)
    assert world.tracker._ahead_of_watch == {}, "the list is newer"
    for _ in range(3):
        await world.all()
    assert await world.standing() == set()


async def test_who_was_found_is_missed_once_the_watch_has_come_so_far() -> None:
    world = World()
    await world.all()
    world.wait(10)
    await world.create("slow")
    world.wait(61)
    await world.refund()
    await world.tell()
    world.watch._reached(str(world.cluster.revision))  # as after a gap that nobody was told of
    for _ in range(2):
        await world.repair()
    assert await world.standing() == set()


async def test_ghosts_fall_in_the_namespace_where_they_stand() -> None:
    world = World(WEB.replace("quota: {", "quota: {per: Namespace, ").replace("[shop]", "[shop, other]"))
    await world.create("a")
    await world.store.observe(world.plan, [Sighting("other", "ghost", "ghost", {"pods": 1}, lives=True)])
    for _ in range(3):
        await world.all()
    assert await world.standing() == {"a"}
    assert list(await world.store.scopes(world.plan)) == ["shop"]


async def test_who_is_admitted_and_not_seen_yet_is_not_missed() -> None:
    world = World()
    await world.all()
    await world.admit(pod("young"))
    for _ in range(3):
        await world.all()
    look = await world.store.snapshot(world.plan)
    assert next(use.used for use in look.uses[""] if use.window == "standing") == 1
    assert world.told.drift == {"web": 0}


async def test_limits_are_enforced_only_after_a_whole_list_was_reported() -> None:
    world = World()
    await world.create("a")
    world.answer(store=False)
    await world.watch_all()
    await world.tell()
    world.answer(store=True)
    await world.controller._drift_repair.round()
    assert not (await world.store.snapshot(world.plan)).is_standing_known
    await world.tell()
    await world.repair()
    assert (await world.store.snapshot(world.plan)).is_standing_known


async def test_a_service_that_gets_limits_knows_its_old_pods_before_they_are_enforced() -> None:
    world = World("- name: web\n  match: {namespaces: [shop]}\n")
    world.cluster.create(pod("old"))
    world.wait(4000)
    await world.all()
    world.policy = compiled(WEB)
    world.watch.list_again()
    known_with: list[set[str]] = []
    counted = world.store.mark_complete

    async def spy(plan: object, scopes: object) -> None:
        known_with.append(await world.standing())
        await counted(plan, scopes)  # type: ignore[arg-type]  handed on

    world.store.mark_complete = spy  # type: ignore[method-assign, assignment]  a spy
    await world.all()
    assert known_with == [{"old"}]


async def test_one_service_that_the_store_will_not_answer_for_holds_up_no_other() -> None:
    other = WEB.replace("name: web", "name: other").replace("app: web", "app: other")
    world = World(WEB + other)
    world.cluster.create(pod("a"))
    world.cluster.create(pod("b", labels={"app": "other"}))
    see = world.store.observe

    async def choosy(plan: object, sightings: object) -> object:
        if getattr(plan, "service", "") == "web":
            await world.store._refuse()
        return await see(plan, sightings)  # type: ignore[arg-type]  handed on

    world.store.observe = choosy  # type: ignore[method-assign, assignment]  half of a cluster
    await world.watch_all()
    await world.tell()
    await world.repair()
    assert (await world.store.snapshot(world.policy.plans["other"])).is_standing_known
    assert not (await world.store.snapshot(world.plan)).is_standing_known


async def test_resets_are_asked_for_once_and_again_while_the_store_is_away() -> None:
    world = World()
    await world.create("a")
    await world.all()
    reset, resets = WindowReset("web", world.clock.now_us(), None), world.controller._resets
    world.answer(store=False)
    await resets._reset(reset)
    assert reset not in resets._done
    world.answer(store=True)
    await resets._reset(reset)
    assert (await world.used(), reset in resets._done) == (0, True)
