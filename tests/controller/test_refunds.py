"""A Pod that was never created is refunded once; one that existed, however briefly, never."""

from tests.controller.controller_simulation import World, compiled, pod
from webhook.ports import Continuity


async def begun() -> World:
    """Return a world in which the controller has watched for a while."""
    world = World()
    await world.all()
    world.wait(10)
    return world


async def test_who_was_never_created_is_refunded_after_a_minute_with_the_watchs_next_word() -> None:
    world = await begun()
    await world.admit(pod("lost"))
    world.wait(59)
    await world.all()
    assert world.watch.looks == []
    world.wait(2)
    world.cluster.create(pod("other", labels={}, namespace="elsewhere"))  # the watch does not know of it yet
    await world.refund()
    assert world.watch.looks == ["pod-lost"]
    assert await world.used() == 1, "the watch is behind the look: the Pod may have come and gone"
    await world.watch_all()
    await world.refund()
    assert world.told.refunded == {("web", "NeverCreated"): 1}
    assert (await world.used(), await world.standing()) == (0, set())
    await world.all()
    assert world.told.refunded.total() == 1
    assert world.watch.looks == ["pod-lost"], "one look was enough"


async def test_names_that_were_taken_are_refunded_as_such() -> None:
    world = await begun()
    await world.create("first", name="web-x")
    for uid in ("second", "third"):  # an API server that makes up a name tries again, with a uid for each
        await world.admit(pod(uid, name="web-x"))
    await world.create("fourth", name="web-y")
    world.wait(61)
    await world.all()
    assert world.told.refunded == {("web", "NameTaken"): 2}
    assert await world.standing() == {"first", "fourth"}


async def test_in_a_pool_the_service_is_reported_whose_pod_it_was() -> None:
    both = "".join(f"- {{name: {name}, pool: prod, match: {{namespaces: [{name}]}}}}\n" for name in ("api", "web"))
    world = World(both, "pools: [{name: prod, windows: [{window: 1h, hard: {pods: 9}}]}]")
    unprovable = pod("early", namespace="api", labels={"podgate.io/service": "api"})
    await world.admit(unprovable, "api")
    world.wait(10)
    await world.all()
    world.wait(10)
    for name in ("api", "web"):
        await world.admit(pod(f"lost-{name}", namespace=name, labels={"podgate.io/service": name}), name)
    world.wait(61)
    await world.all()
    assert world.told.refunded == {("api", "NeverCreated"): 1, ("web", "NeverCreated"): 1}
    assert world.told.unproven == {"api": 1}


async def test_who_came_and_went_is_not_refunded() -> None:
    world = await begun()
    await world.create("brief")
    world.cluster.delete("brief")
    world.wait(61)
    await world.all()
    assert (world.told.refunded.total(), await world.used(), await world.standing()) == (0, 1, set())
    assert await world.waiting() == []


async def test_who_came_and_went_while_the_watch_lagged_is_not_refunded() -> None:
    world = await begun()
    await world.create("brief")
    world.cluster.delete("brief")
    world.wait(61)
    await world.refund()
    assert world.watch.looks == ["pod-brief"], "it looks as if it had never been there"
    await world.refund()
    await world.all()
    assert (world.told.refunded.total(), await world.used()) == (0, 1)


async def test_who_came_and_went_in_a_gap_of_the_watch_is_not_refunded() -> None:
    world = await begun()
    world.watch.cut()
    await world.create("brief", "stays")
    world.cluster.delete("brief")
    await world.admit(pod("lost"))
    world.wait(61)
    await world.watch.step(world.tracker)  # the list
    await world.refund()
    assert world.told.refunded.total() == 0
    await world.all()
    await world.refund()
    assert world.told.refunded == {("web", "NeverCreated"): 1}
    assert (await world.used(), await world.standing()) == (2, {"stays"})


async def test_what_nobody_can_prove_after_a_gap_is_not_refunded_but_frees_its_place() -> None:
    world = await begun()
    world.watch.cut()
    await world.create("brief")
    world.cluster.delete("brief")
    await world.admit(pod("lost"))
    world.cluster.create(pod("x", labels={}))
    world.cluster.compact()
    world.wait(61)
    for _ in range(4):
        await world.all()
    assert (world.told.refunded.total(), world.told.unproven.total()) == (0, 2)
    assert (await world.used(), await world.standing()) == (2, set())
    world.wait(6)
    await world.admit(pod("later"))
    world.wait(61)
    await world.all()
    await world.refund()
    assert world.told.refunded == {("web", "NeverCreated"): 1}, "what came after the new list can be proven again"


async def test_who_leads_next_goes_on_from_where_the_former_had_come() -> None:
    world = await begun()
    world.renew()
    await world.create("brief", "stays")
    world.cluster.delete("brief")
    await world.admit(pod("lost"))
    world.wait(61)
    world.lead()
    for _ in range(3):
        await world.all()
    assert world.told.refunded == {("web", "NeverCreated"): 1}
    assert (world.told.unproven.total(), await world.used(), await world.standing()) == (0, 2, {"stays"})


async def test_who_leads_next_and_knows_of_nothing_before_refunds_nothing_of_before() -> None:
    world = await begun()
    await world.create("brief")
    world.cluster.delete("brief")
    await world.admit(pod("lost"))
    world.wait(61)
    world.lease = None
    world.lead()
    for _ in range(3):
        await world.all()
    assert (world.told.refunded.total(), world.told.unproven.total(), await world.used()) == (0, 2, 2)


async def test_how_far_it_has_come_is_what_the_store_was_reported() -> None:
    world = await begun()
    world.renew()
    before = world.lease
    world.store.is_away = True
    world.cluster.create(pod("uncounted"))
    await world.watch_all()
    await world.tell()
    world.renew()
    assert world.lease == before
    world.store.is_away = False
    await world.tell()
    world.renew()
    assert world.lease is not None
    assert world.lease.version == world.cluster.revision


async def test_while_the_cluster_gives_no_answer_nothing_is_refunded() -> None:
    world = await begun()
    await world.admit(pod("lost"))
    world.wait(61)
    world.watch.is_blind = True
    await world.all()
    assert (world.told.refunded.total(), world.told.unproven.total()) == (0, 0)
    world.watch.is_blind = False
    await world.all()
    assert world.told.refunded.total() == 1


async def test_while_the_store_gives_no_answer_it_is_asked_again() -> None:
    world = await begun()
    await world.admit(pod("lost"))
    world.wait(61)
    world.store.is_away = True
    await world.all()
    world.store.is_away = False
    await world.all()
    assert world.told.refunded.total() == 1


async def test_a_pod_that_the_watch_has_not_brought_yet_is_there_all_the_same() -> None:
    world = await begun()
    await world.create("slow")
    world.wait(61)
    await world.refund()
    await world.tell()
    assert (await world.waiting(), await world.standing()) == ([], {"slow"})
    await world.all()
    assert (world.told.refunded.total(), await world.used()) == (0, 1)


async def test_looks_are_bounded_and_the_oldest_come_first() -> None:
    world = await begun()
    for number in range(60):
        await world.admit(pod(f"lost-{number:02}"))
        world.wait(0.01)
    world.wait(61)
    await world.refund()
    assert world.watch.looks == [f"pod-lost-{number:02}" for number in range(50)]
    await world.refund()
    assert len(world.watch.looks) == 60
    assert world.told.refunded.total() == 60


async def test_a_pod_that_is_another_services_by_now_is_not_waited_for() -> None:
    world = await begun()
    await world.create("moved")
    world.policy = compiled(
        "- name: web\n  match: {namespaces: [none]}\n- name: new\n  match: {namespaces: [shop]}\n"
        "  quota: {windows: [{window: 24h, hard: {pods: 9}}]}\n"
    )
    world.watch.list_again()
    world.wait(61)
    await world.all()
    assert (await world.waiting(), world.told.refunded.total(), world.told.unproven.total()) == ([], 0, 0)
    assert world.told.afterwards == {"new": 1}


async def test_a_watch_that_began_again_after_the_look_proves_nothing_of_before() -> None:
    world = await begun()
    await world.create("brief")
    world.cluster.delete("brief")
    world.wait(61)
    await world.refund()
    world.cluster.create(pod("x", labels={}))
    world.cluster.compact()
    await world.watch.step(world.tracker)
    await world.refund()
    await world.all()
    assert (world.told.refunded.total(), await world.used(), world.told.unproven.total()) == (0, 1, 1)


async def test_a_version_of_another_history_is_not_gone_on_from() -> None:
    world = World()
    world.lease = Continuity(10**9, world.clock.now_us())
    world.lead()
    world.wait(1)
    await world.all()
    assert world.watch.continuity == Continuity(world.cluster.revision, world.clock.now_us())


async def test_who_is_nobodys_after_all_is_not_waited_for() -> None:
    world = await begun()
    forged = pod("forged", labels={"podgate.io/service": "web"})
    world.cluster.create(forged)
    await world.all()
    assert world.told.ignored == 1
    state = world.store._states["web"]
    state.live_pods.wait_for("forged", world.clock.now_us())  # as where its record was lost
    world.wait(61)
    await world.all()
    await world.all()
    assert await world.waiting() == []
