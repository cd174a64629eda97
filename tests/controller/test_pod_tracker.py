"""The store follows the watch; nothing is sent twice."""

import asyncio
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import WEB, World, compiled, pod
from tests.timeouts import HANG_SECONDS
from webhook.controller.pending_sightings import MOST, PendingSightings
from webhook.controller.pod_index import GONE_MAX, GONE_US, PodIndex
from webhook.core.kubernetes.pod import Container, Resources
from webhook.core.pods.ownership import NOT_LIVE_US, Owned
from webhook.core.quota import Sighting

STANDING = ", standing: {hard: {pods: 100000, cpu: 100000}}"


class Listening(World):
    """A world that notes what the store is told."""

    def __init__(self, services: str = WEB, **more: object) -> None:
        super().__init__(services, **more)  # type: ignore[arg-type]  as it takes them
        self.heard: list[tuple[str, bool]] = []
        see = self.store.observe

        async def listen(plan: object, sightings: list[Sighting]) -> object:
            self.heard += [(one.uid, one.lives) for one in sightings]
            return await see(plan, sightings)  # type: ignore[arg-type]  handed on

        self.store.observe = listen  # type: ignore[method-assign, assignment]  a spy


async def test_live_pods_stand_and_ended_ones_do_not() -> None:
    world = World()
    await world.create("a", "b", "c", "d")
    await world.all()
    assert await world.standing() == {"a", "b", "c", "d"}
    world.cluster.update("a", phase="Succeeded")
    world.cluster.update("b", phase="Failed")
    world.cluster.delete("c")
    await world.all()
    assert await world.standing() == {"d"}
    assert await world.used() == 4, "windows keep what they counted"


async def test_a_pod_that_nobody_ends_counts_up_to_its_grace() -> None:
    world = World()
    await world.create("stuck")
    world.cluster.terminate("stuck", 30)
    await world.all()
    world.wait(60)
    await world.tell()
    assert await world.standing() == {"stuck"}
    world.wait(1)
    await world.tell()
    assert await world.standing() == set()


async def test_changes_that_mean_nothing_are_not_reported() -> None:
    world = Listening()
    await world.create("a")
    await world.all()
    world.cluster.update("a", phase="Running")
    world.cluster.update("a", annotations={"x": "y"})
    await world.all()
    await world.all()
    assert world.heard == [("a", True)]


async def test_of_many_states_the_store_is_reported_the_newest() -> None:
    world = Listening()
    world.answer(store=False)
    world.cluster.create(pod("a"))
    await world.watch_all()
    await world.tell()
    world.cluster.update("a", phase="Failed")
    world.cluster.delete("a")
    await world.watch_all()
    await world.tell()
    world.answer(store=True)
    await world.tell()
    assert world.heard == [("a", False)]


async def test_what_changes_while_it_travels_is_reported_after() -> None:
    pending, first = PendingSightings(), owned("web")
    assert pending.put("web", "a", first, 1)
    assert [*pending.take("web", 9)] == ["a"]
    assert pending.put("web", "a", replace(first, name="newer"), 5)
    assert pending.services == [], "one batch at a time"
    pending.requeue("web")
    assert pending.resume_version(9) == 1, "the store has heard of none yet"
    assert pending.take("web", 9)["a"].found.name == "newer"
    pending.acknowledge("web")
    assert (pending.resume_version(9), pending.services) == (9, [])


async def test_a_batch_is_no_more_than_64() -> None:
    world = World()
    sizes: list[int] = []
    see = world.store.observe

    async def listen(plan: object, sightings: list[Sighting]) -> object:
        sizes.append(len(sightings))
        return await see(plan, sightings)  # type: ignore[arg-type]  handed on

    world.store.observe = listen  # type: ignore[method-assign, assignment]  a spy
    await world.create(*(f"u{number}" for number in range(150)))
    await world.watch_all()
    await world.tell()
    assert sizes == [64, 64, 22]


async def test_what_waits_to_be_reported_is_bounded() -> None:
    pending = PendingSightings()
    for number in range(MOST):
        assert pending.put("web", str(number), owned("web"), number)
    assert not pending.put("web", "one more", owned("web"), MOST)
    assert (pending.holds("web", "0"), pending.holds("web", "1"), pending.holds("web", "one more")) == (
        False,
        True,
        True,
    )


async def test_old_pods_of_services_without_standing_need_not_be_reported() -> None:
    world = Listening("- name: web\n  match: {namespaces: [shop]}\n")
    world.cluster.create(pod("old"))
    world.wait(3601)
    world.cluster.create(pod("young"))
    await world.all()
    assert world.heard == [("young", True)]


async def test_who_came_in_uncounted_is_charged_and_counted() -> None:
    world = World()
    await world.create("counted")
    world.cluster.create(pod("uncounted"))
    await world.all()
    assert (world.told.afterwards, await world.used()) == ({"web": 1}, 2)


async def test_a_resize_that_nobody_counted_is_charged() -> None:
    world = World(WEB.replace("hard: {pods: 100000}", "hard: {pods: 100000, cpu: 100}"))
    await world.create("a", cpu="1")
    await world.all()
    world.cluster.update("a", spec={"containers": (Container("c", Resources({"cpu": "3"})),)})
    await world.all()
    assert world.told.raised == {"web": 1}
    world.cluster.update("a", spec={"containers": (Container("c", Resources({"cpu": "2"})),)})
    await world.all()
    look = await world.store.snapshot(world.plan)
    assert [(use.window, use.resource, use.used) for use in look.uses[""]][1:] == [
        ("24h", "cpu", 3000),
        ("standing", "pods", 1),
        ("standing", "cpu", 2000),
    ]


async def test_a_label_that_is_not_accepted_is_counted_once_and_charges_nobody() -> None:
    world = World()
    world.cluster.create(pod("forged", labels={"podgate.io/service": "web"}))
    world.cluster.create(pod("elsewhere", labels={"podgate.io/service": "web"}, namespace="elsewhere"))
    for _ in range(2):
        world.cluster.update("elsewhere", phase="Running")
        world.cluster.update("forged", phase="Running")
        await world.all()
        world.watch.cut()
    await world.all()
    assert (world.told.ignored, await world.used(), await world.standing()) == (2, 0, set())
    assert world.told.drift == {"web": 0}, "who is nobody's is not missing"


async def test_relabelling_does_not_free_a_place() -> None:
    world = World()
    await world.create("a")
    await world.all()
    world.cluster.update("a", labels={"app": "other", "podgate.io/service": "web"})
    await world.all()
    assert await world.standing() == {"a"}


async def test_a_new_policy_judges_everything_again() -> None:
    world = World()
    await world.create("a")
    await world.all()
    world.policy = compiled(WEB.replace("app: web", "app: other").replace("name: web", "name: new"))
    assert world.tracker.needs_new_list()
    world.watch.list_again()
    await world.all()
    assert not world.tracker.needs_new_list()
    plan = world.policy.plans["new"]
    assert (await world.store.live(plan, ""))[0] == []
    world.policy = compiled(WEB)
    world.watch.list_again()
    await world.all()
    assert await world.standing() == {"a"}


@pytest.mark.parametrize("services", [WEB, WEB.replace(STANDING, "")], ids=["standing", "no standing"])
async def test_who_is_anothers_by_now_leaves_its_place_and_is_charged_no_more_where_it_was(services: str) -> None:
    world = World(services)
    world.cluster.create(pod("a"))
    await world.watch_all()  # and the store has not been told
    new = services.replace("name: web", "name: new")
    world.policy = compiled(new + services.replace("app: web", "app: other"))
    world.cluster.update("a", labels={"app": "web"})
    world.watch.list_again()
    await world.all()
    assert (await world.used(), world.told.afterwards) == (0, {"new": 1})


async def test_the_same_policy_made_again_is_no_new_one() -> None:
    world = World()
    await world.all()
    world.policy = compiled()
    assert not world.tracker.needs_new_list()


async def test_new_labels_of_a_namespace_judge_everything_again() -> None:
    selector = "namespaceSelector: {matchLabels: {tier: prod}}"
    services = f"- name: web\n  match: {{{selector}}}\n  quota: {{standing: {{hard: {{pods: 9}}}}}}\n"
    world = World(services, labels={"shop": {"tier": "test"}})
    world.cluster.create(pod("a", labels={}))
    await world.all()
    assert await world.standing() == set()
    world.namespaces.update({"shop": {"tier": "prod"}})
    assert world.tracker.needs_new_list()
    world.watch.list_again()
    await world.all()
    assert await world.standing() == {"a"}


async def test_two_who_lead_for_a_moment_do_no_harm() -> None:
    world = World()
    await world.create("a", "b")
    await world.all()
    world.wait(10)
    world.renew()
    former = world.controller
    behind = world.watch, world.tracker
    world.lead()
    await world.create("c")
    world.cluster.delete("a")
    await world.admit(pod("lost"))
    world.wait(70)
    await world.all()
    await former._drift_repair.round()  # it still believes that `a` lives, and has not seen `c`
    await former._sighting_sender.send()
    await former._drift_repair.round()
    await former._sighting_sender.send()
    await former._refunds.round()
    await behind[0].step(behind[1])
    await former._refunds.round()
    await world.all()
    for _ in range(2):
        await world.all()
    assert (await world.standing(), await world.used()) == ({"b", "c"}, 3)
    assert world.told.refunded == {("web", "NeverCreated"): 1}


async def test_uids_of_pods_that_have_gone_are_bounded_in_number_and_time() -> None:
    index = PodIndex()
    for number in range(GONE_MAX + 1):
        index.remove(str(number), None, number)
    assert ("0" in index, "1" in index, index.forgotten_until_us) == (False, True, 0)
    index.remove("late", None, GONE_US + 10)
    assert ("9" in index, "10" in index, index.forgotten_until_us) == (False, True, 9)


def owned(service: str) -> Owned:
    return Owned(service, "shop", "n", {"pods": 1}, NOT_LIVE_US, 0, is_sure=True, is_labelled=True)


async def test_the_loops_do_all_of_it_by_themselves() -> None:
    world = World()
    await world.create("a")
    running = asyncio.create_task(world.controller.run())
    await until(lambda: world.watch.taker is not None)
    await world.watch_all()
    await until(lambda: world.told.drift == {"web": 0})
    world.wait(10)
    await world.admit(pod("lost"))
    world.wait(70)
    await until(lambda: bool(world.watch.looks))
    await world.watch_all()
    await until(lambda: bool(world.told.refunded))
    world.policy = compiled(WEB.replace("24h", "12h"))
    await until(lambda: world.watch.position is None)
    running.cancel()
    await asyncio.wait([running])
    assert (await world.standing(), world.told.watched) == ({"a"}, 1)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110  a loop gets there in its own time
            await asyncio.sleep(0.001)
