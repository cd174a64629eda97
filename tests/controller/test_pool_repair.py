"""Repair of the live Pods of pools: after an emptied store, restarts, changes of the policy and of a Pod's service."""

import pytest
from msgspec.structs import replace

from tests.contract.store_steps import list_pool_pods
from tests.controller.controller_simulation import ControllerSimulation, compile_policy, pod
from webhook.core.kubernetes.pod import Container, ContainerStatus, Pod, PodCondition, PodSpec, Resources
from webhook.core.quota import Acquire, DeniedBy, Sighting

POOL = "pools: [{name: prod, standing: {hard: {pods: 3, cpu: 100}}}]"
SERVICES = """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  pool: prod
- name: api
  match: {namespaces: [shop], podSelector: {matchLabels: {app: api}}}
  pool: prod
"""
API = {"app": "api", "podgate.io/service": "api"}
ONE = {"pods": 1, "requests.cpu": 1000}


def simulate(services: str = SERVICES, head: str = POOL) -> ControllerSimulation:
    return ControllerSimulation(services, head)


async def list_pods(simulation: ControllerSimulation) -> dict[str, str]:
    """Return the pool's live Pods in the store that are not waited for, each with its service."""
    pods = await list_pool_pods(simulation.store, simulation.plan)
    return {uid: pod.service for uid, pod in pods.items()}


async def is_enforced(simulation: ControllerSimulation) -> bool | None:
    return (await simulation.store.snapshot(simulation.plan)).is_pool_standing_known


async def test_limits_hold_once_the_pods_of_all_members_are_known() -> None:
    simulation = simulate()
    await simulation.create("a")
    simulation.cluster.create(pod_of_api("b"))
    assert not await is_enforced(simulation)
    await simulation.run_all()
    assert (await list_pods(simulation), await is_enforced(simulation)) == ({"a": "web", "b": "api"}, True)
    await simulation.create("c")
    assert (await simulation.admit(pod_of_api("d"), "api")).refused is DeniedBy.QUOTA
    simulation.cluster.delete("b")
    await simulation.run_all()
    assert (await simulation.admit(pod_of_api("d"), "api")).charged


async def test_pods_missing_in_the_store_are_restored_before_limits_hold_again() -> None:
    simulation = simulate()
    await simulation.create("a", "b")
    await simulation.run_all()
    simulation.store._states.clear()  # as in an emptied Redis
    assert not await is_enforced(simulation)
    await simulation.repair()
    assert (simulation.reported.pool_drift, await is_enforced(simulation)) == ({"prod": 2}, True)
    assert set(await list_pods(simulation)) == {"a", "b"}
    await simulation.repair()
    assert simulation.reported.pool_drift == {"prod": 0}


async def test_pods_absent_in_two_rounds_are_removed_whichever_service_had_them() -> None:
    simulation = simulate()
    await simulation.create("a")
    await simulation.run_all()
    ghost = Sighting("shop", "ghost", "ghost", ONE, lives=True)
    await simulation.store.observe(simulation.policy.plans["api"], [ghost])
    simulation.policy = compile_policy(SERVICES.partition("- name: api")[0], POOL)
    simulation.watch.cut()  # a new policy needs another list
    for expected in ({"a": "web", "ghost": "api"}, {"a": "web"}):
        await simulation.run_all()
        assert await list_pods(simulation) == expected


async def test_another_leader_repairs_what_the_former_one_left() -> None:
    simulation = simulate()
    await simulation.create("a", "b")
    await simulation.run_all()
    simulation.renew()
    simulation.cluster.delete("a")
    simulation.cluster.create(pod_of_api("uncounted"))
    simulation.watch.cut()
    simulation.change_leader()
    for _ in range(3):
        await simulation.run_all()
    assert await list_pods(simulation) == {"b": "web", "uncounted": "api"}


async def test_a_new_guarantee_and_a_new_limit_count_what_runs() -> None:
    simulation = simulate()
    await simulation.create("a", "b")
    await simulation.run_all()
    guaranteed = SERVICES.replace("pool: prod", "pool: prod\n  guaranteed: {standing: {hard: {pods: 2}}}", 1)
    simulation.policy = compile_policy(guaranteed, POOL.replace("pods: 3", "pods: 3, memory: 1Gi"))
    simulation.watch.cut()
    for _ in range(2):
        await simulation.run_all()
    uses = (await simulation.store.snapshot(simulation.plan)).pool
    found = {use.resource: (use.used, use.guarantee and use.guarantee.used) for use in uses}
    assert found == {"pods": (2, 2), "memory": (0, None), "cpu": (2000, None)}
    assert simulation.reported.pool_drift == {"prod": 0}


async def test_a_pod_of_another_service_counts_for_it() -> None:
    simulation = simulate()
    await simulation.create("a")
    await simulation.run_all()
    await simulation.store.observe(simulation.policy.plans["api"], [Sighting("shop", "a", "a", ONE, lives=True)])
    assert await list_pods(simulation) == {"a": "api"}
    await simulation.repair()
    assert await list_pods(simulation) == {"a": "web"}


async def test_refused_resize_counts_no_longer_at_the_second_repair() -> None:
    simulation = simulate()
    await simulation.create("a")
    await simulation.run_all()
    request = Acquire(simulation.plan, "shop", "a", ONE | {"requests.cpu": 9000}, "user:alice", resize_from=ONE)
    assert (await simulation.store.acquire(request)).charged
    for cpu, drift in ((9000, 0), (1000, 1), (1000, 0)):
        await simulation.repair()
        used = (await simulation.store.snapshot(simulation.plan)).pool
        assert ([use.used for use in used], simulation.reported.pool_drift) == ([1, cpu], {"prod": drift})


@pytest.mark.parametrize(
    ("before", "after"),
    [(Resources({}), Resources({"cpu": "4"})), (Resources({"cpu": "1"}), Resources({"cpu": "0"}))],
    ids=["up", "down"],
)
async def test_resize_that_is_not_done_is_no_drift(before: Resources, after: Resources) -> None:
    simulation = simulate()
    new = pod("a")
    simulation.cluster.create(replace(new, spec=PodSpec(containers=(Container("c", before),))))
    kept = ContainerStatus(name="c", resources=before, allocated_resources=before.requests)
    resize = PodCondition(type="PodResizePending", status="True", reason="Infeasible")
    spec = {"containers": (Container("c", after),)}
    simulation.cluster.update("a", spec=spec, container_statuses=(kept,), conditions=(resize,), phase="Running")
    for _ in range(3):
        await simulation.run_all()
    assert simulation.reported.pool_drift == {"prod": 0}


async def test_while_the_store_is_away_nothing_is_marked_and_later_all_is() -> None:
    simulation = simulate()
    await simulation.create("a")
    simulation.set_available(store=False)
    await simulation.watch_all()
    await simulation.send_sightings()
    simulation.set_available(store=True)
    await simulation.controller._drift_repair.round()
    assert not await is_enforced(simulation)
    await simulation.send_sightings()
    await simulation.repair()
    assert await is_enforced(simulation)


def pod_of_api(uid: str) -> Pod:
    return pod(uid, labels=API)
