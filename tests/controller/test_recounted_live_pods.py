"""Live Pods counted again when a policy counts them elsewhere, or by other resources."""

import pytest

from tests.controller.controller_simulation import ControllerSimulation, compile_policy
from webhook.core.kubernetes.pod import Container, Resources

SERVICE = """
- name: web
  match: {namespaces: [shop]}
  pool: POOL
  quota: {windows: [{window: 24h, hard: {pods: 1000, cpu: 1000}}], standing: {hard: {pods: 100, cpu: 20}}}
"""
ALONE = SERVICE.replace("  pool: POOL\n", "")
PODS_ONLY = ALONE.replace("{pods: 100, cpu: 20}", "{pods: 100}")
APART = ALONE.replace("quota: {", "quota: {per: Namespace, ")
IN_POOL = SERVICE.replace("POOL", "prod")
POOL = "pools:\n- name: prod\n  standing: {hard: {pods: 3000, cpu: 100}}\n"


async def apply(simulation: ControllerSimulation, services: str, head: str = "") -> None:
    simulation.policy = compile_policy(services, head)
    assert simulation.tracker.needs_new_list()
    simulation.watch.list_again()
    for _ in range(3):
        await simulation.run_all()


async def list_used(simulation: ControllerSimulation) -> dict[str, dict[str, int]]:
    """Return the use of limits on live Pods, by scope."""
    uses = (await simulation.store.snapshot(simulation.plan)).uses
    return {scope: {use.resource: use.used for use in of if use.window == "standing"} for scope, of in uses.items()}


def resize(simulation: ControllerSimulation, uid: str, cpu: str) -> None:
    simulation.cluster.update(uid, spec={"containers": (Container("c", Resources({"cpu": cpu})),)})


async def test_new_resource_that_a_window_limits_already_is_counted_for_running_pods() -> None:
    simulation = ControllerSimulation(PODS_ONLY)
    await simulation.create("a", "b")
    await simulation.run_all()
    await apply(simulation, ALONE)
    assert await list_used(simulation) == {"": {"pods": 2, "cpu": 2000}}


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((APART, ""), (ALONE, "")),
        ((ALONE, ""), (APART, "")),
        ((IN_POOL, POOL), (ALONE, "")),
        ((ALONE, ""), (PODS_ONLY, "")),
    ],
    ids=["namespaces", "as-one", "pool", "resources"],
)
async def test_pod_resized_under_another_policy_counts_rightly_after_the_way_back(
    first: tuple[str, str], second: tuple[str, str]
) -> None:
    simulation = ControllerSimulation(*first)
    await simulation.create("a", cpu="10")
    await simulation.run_all()
    await apply(simulation, *second)
    resize(simulation, "a", "1")
    await simulation.run_all()
    await apply(simulation, *first)
    (used,) = (await list_used(simulation)).values()
    assert used == {"pods": 1, "cpu": 1000}
    pooled = (await simulation.store.snapshot(simulation.plan)).pool
    assert [use.used for use in pooled] in ([], [1, 1000])


async def test_list_that_begins_anew_under_the_former_policy_counts_the_pods_again() -> None:
    simulation = ControllerSimulation(ALONE)
    await simulation.create("a", cpu="10")
    await simulation.run_all()
    for services in (PODS_ONLY, ALONE):
        simulation.policy = compile_policy(services)
        await simulation.tracker.on_list_begun()  # the first one is cut off
    simulation.watch.list_again()
    await simulation.watch.step(simulation.tracker)
    assert simulation.tracker.pending.list_uids("web") == ["a"]


async def test_lists_send_no_pod_again_whose_limits_have_other_amounts_alone() -> None:
    simulation = ControllerSimulation(ALONE)
    await simulation.create("a")
    await simulation.run_all()
    simulation.policy = compile_policy(ALONE.replace("cpu: 20}", "cpu: 30}"))
    simulation.watch.list_again()
    await simulation.watch.step(simulation.tracker)
    assert simulation.tracker.pending.list_uids("web") == []
