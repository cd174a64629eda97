"""Selection: against an independent model of one pool, and by properties that hold for any limits."""

from random import Random

import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import compile_policy
from webhook.core.breaker import BreakerView, State
from webhook.core.controller.demand import Demand, compute_demand
from webhook.core.controller.free_capacity import FreeCapacity
from webhook.core.controller.held_controller import (
    ControllerReference,
    CreatedPodTemplate,
    CreatingController,
    TemplatedSpec,
)
from webhook.core.controller.selection import HeldController, select
from webhook.core.kubernetes.pod import Container, PodMetadata, PodSpec
from webhook.core.policy.model import Policy
from webhook.core.quota import Holder, ServiceSnapshot, Use

NOW_US = 1_800_000_000_000_000
SERVICES = """
- {name: gold, slaClass: gold, pool: shared, match: {namespaces: [gold]}, BREAKER}
- {name: bronze, pool: shared, match: {namespaces: [bronze]}, quota: {windows: [{window: 1m, hard: {pods: 9}}]}}
""".replace("BREAKER", "breaker: {quotaExceeded: {}, halfOpen: {probes: 3}}")
POOLS = "pools: [{name: shared, windows: [{window: 1m, hard: {pods: 20}}]}]"
POLICY = compile_policy(SERVICES, POOLS)
DEMANDS = {
    name: compute_demand(CreatingController(PodMetadata(namespace=name), "ReplicaSet"), POLICY, {})
    for name in ("gold", "bronze")
}


def build_held_controller(name: str, service: str, missing: int, refused_us: int = 0, **more: object) -> HeldController:
    demand = DEMANDS[service]
    assert demand is not None
    reference = ControllerReference("ReplicaSet", service, name, name)
    return HeldController(reference, demand, missing, refused_us, **more)  # type: ignore[arg-type]  fields by name


def build_free_capacity(pool_left: int, bronze_left: int = 9, gold_breaker: BreakerView | None = None) -> FreeCapacity:
    """Return the room that is left, in the pool and for `bronze`, which frees more at known moments."""
    capacity = FreeCapacity()
    pool = (Use("1m", "pods", 20 - pool_left, 20, 1, NOW_US + 7, Holder.POOL, "shared"),)
    own = (Use("1m", "pods", 9 - bronze_left, 9, 1, NOW_US + 9),)
    capacity.add(POLICY.parts["gold"], ServiceSnapshot(NOW_US, {}, gold_breaker, pool))
    capacity.add(POLICY.parts["bronze"], ServiceSnapshot(NOW_US, {"": own}, None, pool))
    return capacity


def list_names(woken: object) -> list[str]:
    return [pod.reference.name for pod in woken]  # type: ignore[attr-defined]


def test_demand_names_every_limit_that_denies() -> None:
    assert isinstance(POLICY.policy, Policy)
    gold, bronze = DEMANDS["gold"], DEMANDS["bronze"]
    assert gold is not None
    assert bronze is not None
    assert (gold.priority, bronze.priority, gold.tag) == (100, 10, "shared")
    assert {key[0] for key in gold.amounts} == {"pool", "breaker"}
    assert {key[0] for key in bronze.amounts} == {"pool", "service"}


def test_controller_whose_pods_would_wait_is_woken_without_room() -> None:
    queues = SERVICES.replace("quota: {", "quota: {whenExceeded: Queue, queue: {}, ")
    policy = compile_policy(queues, POOLS.replace("}}]}]", "}}], whenExceeded: Queue}]"))
    demand = compute_demand(CreatingController(PodMetadata(namespace="bronze"), "ReplicaSet"), policy, {})
    assert demand is not None
    assert demand.amounts == {}
    waits = HeldController(ControllerReference("ReplicaSet", "bronze", "a", "a"), demand, 3, NOW_US)
    assert list_names(select([waits], build_free_capacity(0, 0), NOW_US, 100).woken) == ["a"]


def test_demand_is_what_the_rewritten_pod_takes() -> None:
    """Else a controller whose template asks for nothing is woken without room."""
    rewrites = SERVICES.replace("quota: {", "resources: {container: {defaultRequest: {cpu: 250m}}}, quota: {")
    policy = compile_policy(rewrites.replace("pods: 9", "cpu: 9"), POOLS)
    template = CreatedPodTemplate(spec=PodSpec(containers=(Container("a"), Container("b"))))
    controller = CreatingController(
        PodMetadata(namespace="bronze"), "ReplicaSet", spec=TemplatedSpec(template=template)
    )
    demand = compute_demand(controller, policy, {})
    assert demand is not None
    assert {key[-1]: amount for key, amount in demand.amounts.items()} == {"cpu": 500, "pods": 1}


def test_daemon_set_whose_pods_are_exempt_and_unmatched_controllers_demand_nothing() -> None:
    assert compute_demand(CreatingController(PodMetadata(namespace="gold"), "DaemonSet"), POLICY, {}) is None
    assert compute_demand(CreatingController(PodMetadata(namespace="other"), "ReplicaSet"), POLICY, {}) is None


@pytest.mark.parametrize("seed", range(30))
def test_of_one_pool_exactly_the_first_pods_of_the_order_are_woken(seed: int) -> None:
    """Model: a line of single Pods, by class and then by age; the room is for the first of them."""
    random = Random(seed)  # noqa: S311  makes test data
    waiting = [
        (service, random.randrange(10**6), random.randint(1, 5), f"{service}-{number}")
        for number in range(random.randint(1, 12))
        for service in ("gold", "bronze")
    ]
    room = random.randint(0, 20)
    line = [
        name
        for wanted in ("gold", "bronze")
        for service, _, pods, name in sorted(waiting, key=lambda pair: pair[1])
        for _ in range(pods)
        if service == wanted
    ]
    bronze_left = 9
    expected: list[str] = []
    for name in line[:room]:
        if name.startswith("bronze"):
            bronze_left -= 1
            if bronze_left < 0:
                break
        expected.append(name)
    chosen = [
        build_held_controller(name, service, pods, refused)
        for service, refused, pods, name in random.sample(waiting, len(waiting))
    ]
    assert list_names(select(chosen, build_free_capacity(room), NOW_US, 100).woken) == list(dict.fromkeys(expected))


def test_room_of_those_that_were_just_woken_is_reserved() -> None:
    waiting = [
        build_held_controller("old", "gold", 3, settled=False, next_us=NOW_US + 5),
        build_held_controller("new", "gold", 3, refused_us=1),
    ]
    assert list_names(select(waiting, build_free_capacity(3), NOW_US, 100).woken) == []
    assert list_names(select(waiting, build_free_capacity(4), NOW_US, 100).woken) == ["new"]


def test_next_selection_is_due_when_the_first_limit_frees_room() -> None:
    assert select([build_held_controller("a", "gold", 1)], build_free_capacity(0), NOW_US, 100).due_us == {
        "shared": NOW_US + 7
    }
    assert select([build_held_controller("a", "bronze", 1)], build_free_capacity(0, 0), NOW_US, 100).due_us == {
        "shared": NOW_US + 9
    }
    assert select(
        [build_held_controller("a", "gold", 1, next_us=NOW_US + 3)], build_free_capacity(9), NOW_US, 100
    ).due_us == {"shared": NOW_US + 3}
    assert select([build_held_controller("a", "gold", 1)], build_free_capacity(1), NOW_US, 100).due_us == {}


def test_no_more_than_the_bound_are_woken_at_once_and_the_others_soon() -> None:
    flood = [build_held_controller(f"web-{number:04}", "gold", 1, refused_us=number) for number in range(1000)]
    unlimited = FreeCapacity()
    selection = select(flood, unlimited, NOW_US, 50)
    assert list_names(selection.woken) == [f"web-{number:04}" for number in range(50)]
    assert selection.due_us == {"shared": 0}


@pytest.mark.parametrize(
    ("view", "woken", "due_us"),
    [
        (BreakerView(State.OPEN, 1, 0, NOW_US + 4), 0, NOW_US + 4),
        (BreakerView(State.FORCED_OPEN, 1, 0, NOW_US + 4), 0, NOW_US + 4),
        (BreakerView(State.HALF_OPEN, 1, 0, probes_leased=1), 2, 0),
        (BreakerView(State.HALF_OPEN, 1, 0, probes_leased=1, probes_succeeded=2), 0, 0),
        (BreakerView(State.CLOSED, 1, 0), 5, None),
    ],
)
def test_breaker_lets_as_many_be_woken_as_it_admits(view: BreakerView, woken: int, due_us: int | None) -> None:
    waiting = [build_held_controller(f"web-{number}", "gold", 1) for number in range(5)]
    selection = select(waiting, build_free_capacity(20, gold_breaker=view), NOW_US, 100)
    assert len(selection.woken) == woken
    assert selection.due_us.get("shared") == due_us


def test_what_the_pool_frees_is_kept_for_the_first_even_if_a_later_pod_is_smaller() -> None:
    key = ("pool", "shared", "", "1m", "requests.cpu")
    pool = (Use("1m", "requests.cpu", 8, 10, 1, NOW_US + 7, Holder.POOL, "shared"),)

    def build_held(name: str, priority: int, cpu: int) -> HeldController:
        demand = Demand(name, "shared", name, priority, "", {key: cpu})
        return HeldController(ControllerReference("ReplicaSet", name, name, name), demand, 1, 0)

    def select_names(*waiting: HeldController) -> list[str]:
        capacity = FreeCapacity()
        capacity.add(POLICY.parts["gold"], ServiceSnapshot(NOW_US, pool=pool))
        return list_names(select(waiting, capacity, NOW_US, 100).woken)

    assert select_names(build_held("large", 100, 4), build_held("small", 10, 1)) == []
    assert select_names(build_held("impossible", 100, 11), build_held("small", 10, 1)) == ["small"]
    assert select_names(build_held("large", 10, 4), build_held("small", 100, 1)) == ["small"]


@pytest.mark.parametrize("seed", range(30))
def test_never_more_than_there_is_room_for_and_no_room_is_left_unused(seed: int) -> None:
    """Any limits of services: woken Pods fit all of them together; the others do not fit in the rest."""
    random = Random(seed)  # noqa: S311  makes test data
    limits = [("service", f"s{number}", "", "1m", "pods") for number in range(4)]
    left = {key: random.randint(0, 12) for key in limits}
    capacity = FreeCapacity()
    for key, amount in left.items():
        part = POLICY.parts["bronze"]
        part = part._replace(plan=replace(part.plan, service=key[1]))
        capacity.add(part, ServiceSnapshot(NOW_US, {"": (Use("1m", "pods", 12 - amount, 12),)}))
    waiting = [
        HeldController(
            ControllerReference("Job", "shop", str(number), str(number)),
            Demand(
                "s",
                "s",
                "shop",
                random.randrange(3),
                "",
                {key: random.randint(1, 4) for key in random.sample(limits, 2)},
            ),
            random.randint(1, 4),
            random.randrange(9),
        )
        for number in range(15)
    ]
    chosen = select(waiting, capacity, NOW_US, 100).woken
    rest = dict(left)
    for waiting_pod in chosen:
        pods = min(waiting_pod.missing, *(rest[key] // amount for key, amount in waiting_pod.demand.amounts.items()))
        assert pods >= 1
        for key, amount in waiting_pod.demand.amounts.items():
            rest[key] -= pods * amount
    for waiting_pod in waiting:
        if waiting_pod not in chosen:
            assert any(amount > rest[key] for key, amount in waiting_pod.demand.amounts.items())
