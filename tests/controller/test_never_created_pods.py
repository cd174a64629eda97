"""A Pod that was never created is refunded once; one that existed, however briefly, never."""

from dataclasses import replace

from tests.controller.controller_simulation import (
    WITHOUT_DELAYS,
    ControllerSimulation,
    UnreliableStore,
    compile_policy,
    pod,
)
from webhook.core.breaker import State
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import Acquire
from webhook.ports import Continuity


async def watching_simulation() -> ControllerSimulation:
    """Return a simulation whose controller has watched for some time."""
    simulation = ControllerSimulation()
    await simulation.run_all()
    simulation.wait(10)
    return simulation


async def test_pod_never_created_is_refunded_after_a_minute_and_the_next_bookmark() -> None:
    simulation = await watching_simulation()
    await simulation.admit(pod("lost"))
    simulation.wait(59)
    await simulation.run_all()
    assert simulation.watch.lookups == []
    simulation.wait(2)
    simulation.cluster.create(pod("other", labels={}, namespace="elsewhere"))  # the watch does not know of it yet
    await simulation.refund()
    assert simulation.watch.lookups == ["pod-lost"]
    assert await simulation.count_used() == 1, (
        "the watch is older than the lookup: the Pod may have been created and deleted"
    )
    await simulation.watch_all()
    await simulation.refund()
    assert simulation.reported.refunded == {("web", "NeverCreated"): 1}
    assert (await simulation.count_used(), await simulation.list_standing()) == (0, set())
    await simulation.run_all()
    assert simulation.reported.refunded.total() == 1
    assert simulation.watch.lookups == ["pod-lost"], "one lookup is enough"


async def test_taken_names_are_refunded_with_their_reason() -> None:
    simulation = await watching_simulation()
    await simulation.create("first", name="web-x")
    for uid in ("second", "third"):  # the API server retries generated names, with a new uid
        await simulation.admit(pod(uid, name="web-x"))
    await simulation.create("fourth", name="web-y")
    simulation.wait(61)
    await simulation.run_all()
    assert simulation.reported.refunded == {("web", "NameTaken"): 2}
    assert await simulation.list_standing() == {"first", "fourth"}


async def test_refund_in_a_pool_names_the_service_of_the_pod() -> None:
    services = "".join(f"- {{name: {name}, pool: prod, match: {{namespaces: [{name}]}}}}\n" for name in ("api", "web"))
    simulation = ControllerSimulation(services, "pools: [{name: prod, windows: [{window: 1h, hard: {pods: 9}}]}]")
    unprovable = pod("early", namespace="api", labels={"podgate.io/service": "api"})
    await simulation.admit(unprovable, "api")
    simulation.wait(10)
    await simulation.run_all()
    simulation.wait(10)
    for name in ("api", "web"):
        await simulation.admit(pod(f"lost-{name}", namespace=name, labels={"podgate.io/service": name}), name)
    simulation.wait(61)
    await simulation.run_all()
    assert simulation.reported.refunded == {("api", "NeverCreated"): 1, ("web", "NeverCreated"): 1}
    assert simulation.reported.unproven == {"api": 1}


async def test_a_token_of_a_variant_is_no_pod_and_is_kept_until_its_probe_says_something() -> None:
    variants = "[{name: spot, weight: 1, nodeSelector: {capacity: spot}}, {name: on-demand, weight: 1}]"
    shares = f"{{unschedulableFor: 5m, openFor: 30s, variants: {variants}}}"
    simulation = ControllerSimulation(
        f"- {{name: web, match: {{namespaces: [shop]}}, placement: {{shares: {shares}}}}}\n"
    )
    await simulation.run_all()
    plan = next(plan for plan in simulation.policy.list_breakers() if plan.service == "web/spot")
    await simulation.store.record_outcomes(plan, [Outcomes(0, 1, 0)])
    for seconds in (2, 30):
        simulation.wait(seconds)
        await simulation.store.tick([plan])
    for name in ("", "web-x"):  # a claim has no name when it is taken
        claim = Acquire(plan, "shop", f"claim-{name}", {"pods": 1}, "controller:r", name=name)
        assert (await simulation.store.acquire(claim)).charged is (not name)
    simulation.wait(61)
    for _ in range(3):
        await simulation.run_all()
    assert (simulation.reported.refunded.total(), simulation.reported.unproven.total()) == (0, 0)
    assert simulation.watch.lookups == []
    view = simulation.store.find_last_breaker(plan)
    assert view is not None
    assert (view.state, view.probes_leased) == (State.HALF_OPEN, 1), "the token is not given again"
    assert await simulation.store.list_overdue(plan, 0, 9) == [], "and it is not asked for again"


async def test_created_and_deleted_pod_is_not_refunded() -> None:
    simulation = await watching_simulation()
    await simulation.create("brief")
    simulation.cluster.delete("brief")
    simulation.wait(61)
    await simulation.run_all()
    assert (simulation.reported.refunded.total(), await simulation.count_used(), await simulation.list_standing()) == (
        0,
        1,
        set(),
    )
    assert await simulation.list_overdue_uids() == []


async def test_pod_created_and_deleted_during_watch_lag_is_not_refunded() -> None:
    simulation = await watching_simulation()
    await simulation.create("brief")
    simulation.cluster.delete("brief")
    simulation.wait(61)
    await simulation.refund()
    assert simulation.watch.lookups == ["pod-brief"], "the lookup does not find the Pod"
    await simulation.refund()
    await simulation.run_all()
    assert (simulation.reported.refunded.total(), await simulation.count_used()) == (0, 1)


async def test_pod_created_and_deleted_in_a_watch_gap_is_not_refunded() -> None:
    simulation = await watching_simulation()
    simulation.watch.cut()
    await simulation.create("brief", "stays")
    simulation.cluster.delete("brief")
    await simulation.admit(pod("lost"))
    simulation.wait(61)
    await simulation.watch.step(simulation.tracker)  # the list
    await simulation.refund()
    assert simulation.reported.refunded.total() == 0
    await simulation.run_all()
    await simulation.refund()
    assert simulation.reported.refunded == {("web", "NeverCreated"): 1}
    assert (await simulation.count_used(), await simulation.list_standing()) == (2, {"stays"})


async def test_unproven_pod_after_a_gap_is_not_refunded_but_released() -> None:
    simulation = await watching_simulation()
    simulation.watch.cut()
    await simulation.create("brief")
    simulation.cluster.delete("brief")
    await simulation.admit(pod("lost"))
    simulation.cluster.create(pod("x", labels={}))
    simulation.cluster.compact()
    simulation.wait(61)
    for _ in range(4):
        await simulation.run_all()
    assert (simulation.reported.refunded.total(), simulation.reported.unproven.total()) == (0, 2)
    assert (await simulation.count_used(), await simulation.list_standing()) == (2, set())
    simulation.wait(6)
    await simulation.admit(pod("later"))
    simulation.wait(61)
    await simulation.run_all()
    await simulation.refund()
    assert simulation.reported.refunded == {("web", "NeverCreated"): 1}, "Pods after the new list can be proven again"


async def test_next_leader_resumes_at_the_version_of_the_former() -> None:
    simulation = await watching_simulation()
    simulation.renew()
    await simulation.create("brief", "stays")
    simulation.cluster.delete("brief")
    await simulation.admit(pod("lost"))
    simulation.wait(61)
    simulation.change_leader()
    for _ in range(3):
        await simulation.run_all()
    assert simulation.reported.refunded == {("web", "NeverCreated"): 1}
    assert (simulation.reported.unproven.total(), await simulation.count_used(), await simulation.list_standing()) == (
        0,
        2,
        {"stays"},
    )


async def test_next_leader_without_a_resume_version_refunds_no_earlier_pod() -> None:
    simulation = await watching_simulation()
    await simulation.create("brief")
    simulation.cluster.delete("brief")
    await simulation.admit(pod("lost"))
    simulation.wait(61)
    simulation.lease = None
    simulation.change_leader()
    for _ in range(3):
        await simulation.run_all()
    assert (
        simulation.reported.refunded.total(),
        simulation.reported.unproven.total(),
        await simulation.count_used(),
    ) == (
        0,
        2,
        2,
    )


async def test_next_leader_refunds_no_pod_of_the_former_that_replicas_charge_again_after_a_loss() -> None:
    simulation = await watching_simulation()
    await simulation.create("brief")
    simulation.cluster.delete("brief")
    await simulation.run_all()
    simulation.renew()
    simulation.store = UnreliableStore(simulation.clock)
    await simulation.admit(pod("brief"))
    simulation.wait(10)
    simulation.change_leader()
    simulation.controller.on_lost()
    simulation.wait(61)
    for _ in range(3):
        await simulation.run_all()
    assert simulation.reported.refunded == {}, "only the former leader knew that it existed"
    assert simulation.reported.unproven == {"web": 1}
    await simulation.admit(pod("lost"))
    simulation.wait(61)
    await simulation.run_all()
    assert simulation.reported.refunded == {("web", "NeverCreated"): 1}, "what was charged in this term can be proven"


async def test_next_leader_refunds_no_pod_charged_before_a_loss_that_only_the_former_has_noticed() -> None:
    simulation = await watching_simulation()
    simulation.wait(10)
    await simulation.create("brief")
    simulation.cluster.delete("brief")
    await simulation.run_all()
    simulation.store = UnreliableStore(simulation.clock)
    await simulation.admit(pod("brief"))
    simulation.wait(10)
    simulation.controller.on_lost()
    simulation.renew()
    simulation.change_leader()
    simulation.wait(61)
    for _ in range(3):
        await simulation.run_all()
    assert simulation.reported.refunded == {}, "only the former leader knew that it existed"
    assert simulation.reported.unproven == {"web": 1}


async def test_refund_waits_until_a_loss_before_the_lookup_has_been_noticed() -> None:
    simulation = await watching_simulation()
    simulation.controller._refunds._timing = replace(WITHOUT_DELAYS, loss_seconds=2)
    await simulation.admit(pod("lost"))
    simulation.wait(61)
    await simulation.run_all()
    simulation.wait(1)
    await simulation.run_all()
    assert (simulation.watch.lookups, simulation.reported.refunded.total()) == (["pod-lost"], 0)
    simulation.wait(1)
    await simulation.run_all()
    assert (simulation.watch.lookups, simulation.reported.refunded.total()) == (["pod-lost"], 1)


async def test_resume_version_follows_what_the_store_has_received() -> None:
    simulation = await watching_simulation()
    simulation.renew()
    before = simulation.lease
    simulation.store.is_unavailable = True
    simulation.cluster.create(pod("uncounted"))
    await simulation.watch_all()
    await simulation.send_sightings()
    simulation.renew()
    assert simulation.lease == before
    simulation.store.is_unavailable = False
    await simulation.send_sightings()
    simulation.renew()
    assert simulation.lease is not None
    assert simulation.lease.version == simulation.cluster.revision


async def test_nothing_is_refunded_while_the_cluster_gives_no_answer() -> None:
    simulation = await watching_simulation()
    await simulation.admit(pod("lost"))
    simulation.wait(61)
    simulation.watch.fails_lookups = True
    await simulation.run_all()
    assert (simulation.reported.refunded.total(), simulation.reported.unproven.total()) == (0, 0)
    simulation.watch.fails_lookups = False
    await simulation.run_all()
    assert simulation.reported.refunded.total() == 1


async def test_refund_is_retried_while_the_store_gives_no_answer() -> None:
    simulation = await watching_simulation()
    await simulation.admit(pod("lost"))
    simulation.wait(61)
    simulation.store.is_unavailable = True
    await simulation.run_all()
    simulation.store.is_unavailable = False
    await simulation.run_all()
    assert simulation.reported.refunded.total() == 1


async def test_pod_not_yet_in_the_watch_counts_as_existing() -> None:
    simulation = await watching_simulation()
    await simulation.create("slow")
    simulation.wait(61)
    await simulation.refund()
    await simulation.send_sightings()
    assert (await simulation.list_overdue_uids(), await simulation.list_standing()) == ([], {"slow"})
    await simulation.run_all()
    assert (simulation.reported.refunded.total(), await simulation.count_used()) == (0, 1)


async def test_lookups_are_bounded_and_oldest_first() -> None:
    simulation = await watching_simulation()
    for number in range(60):
        await simulation.admit(pod(f"lost-{number:02}"))
        simulation.wait(0.01)
    simulation.wait(61)
    await simulation.refund()
    assert simulation.watch.lookups == [f"pod-lost-{number:02}" for number in range(50)]
    await simulation.refund()
    assert len(simulation.watch.lookups) == 60
    assert simulation.reported.refunded.total() == 60


async def test_pod_of_another_service_is_not_awaited() -> None:
    simulation = await watching_simulation()
    await simulation.create("moved")
    simulation.policy = compile_policy(
        "- name: web\n  match: {namespaces: [none]}\n- name: new\n  match: {namespaces: [shop]}\n"
        "  quota: {windows: [{window: 24h, hard: {pods: 9}}]}\n"
    )
    simulation.watch.list_again()
    simulation.wait(61)
    await simulation.run_all()
    assert (
        await simulation.list_overdue_uids(),
        simulation.reported.refunded.total(),
        simulation.reported.unproven.total(),
    ) == (
        [],
        0,
        0,
    )
    assert simulation.reported.charged_late == {"new": 1}


async def test_restarted_watch_proves_nothing_before_the_lookup() -> None:
    simulation = await watching_simulation()
    await simulation.create("brief")
    simulation.cluster.delete("brief")
    simulation.wait(61)
    await simulation.refund()
    simulation.cluster.create(pod("x", labels={}))
    simulation.cluster.compact()
    await simulation.watch.step(simulation.tracker)
    await simulation.refund()
    await simulation.run_all()
    assert (
        simulation.reported.refunded.total(),
        await simulation.count_used(),
        simulation.reported.unproven.total(),
    ) == (
        0,
        1,
        1,
    )


async def test_resume_version_of_another_history_is_not_used() -> None:
    simulation = ControllerSimulation()
    simulation.lease = Continuity(10**9, simulation.clock.now_us())
    simulation.change_leader()
    simulation.wait(1)
    await simulation.run_all()
    assert simulation.watch.continuity == Continuity(simulation.cluster.revision, simulation.clock.now_us())


async def test_unowned_pod_is_not_awaited() -> None:
    simulation = await watching_simulation()
    forged = pod("forged", labels={"podgate.io/service": "web"}, namespace="elsewhere")
    simulation.cluster.create(forged)
    await simulation.run_all()
    assert simulation.reported.ignored == 1
    state = simulation.store._states["web"]
    state.live_pods.wait_for("forged", simulation.clock.now_us())  # as after the loss of its record
    simulation.wait(61)
    await simulation.run_all()
    await simulation.run_all()
    assert await simulation.list_overdue_uids() == []
