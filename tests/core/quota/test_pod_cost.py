"""A Pod's cost, by computed examples and a slow oracle that simulates its containers."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.strategies import PROPERTY, Json, draw_fields
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.policy.model import Match, Service
from webhook.core.policy_fields import Quota, Window
from webhook.core.quota import CounterPlan
from webhook.core.quota.pod_cost import compute_cost as taken_of
from webhook.core.quota.pod_cost import format_amount, list_counted


def list_taken(spec: Json, *resources: str) -> dict[str, int]:
    hard = {resource: Quantity.parse("1") for resource in resources}
    quota = Quota(windows=(Window(Duration.parse("1m"), hard),))
    plan = CounterPlan.from_service(Service("s", Match(any_namespace=True), quota=quota))
    return dict(taken_of(msgspec.convert({"metadata": {}, "spec": spec}, Pod), list_counted(plan)))


def find_cpu(spec: Json) -> int:
    return list_taken(spec, "cpu")["requests.cpu"]


def container(request: str | None = None, limit: str | None = None, **more: Any) -> Json:
    resources: Json = {}
    if request is not None:
        resources["requests"] = {"cpu": request}
    if limit is not None:
        resources["limits"] = {"cpu": limit}
    return {"name": "c", "resources": resources, **more}


def sidecar(request: str) -> Json:
    return container(request, restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "millicores"),
    [
        ({}, 0),
        ({"containers": [container("100m"), container("250m")]}, 350),
        ({"containers": [container("1"), container("1")], "initContainers": [container("3")]}, 3000),
        ({"containers": [container("1"), container("1")], "initContainers": [container("1500m")]}, 2000),
        # a sidecar runs beside all that starts after it, and beside the containers
        ({"containers": [container("1")], "initContainers": [sidecar("500m"), container("2")]}, 2500),
        ({"containers": [container("1")], "initContainers": [container("2"), sidecar("500m")]}, 2000),
        ({"containers": [container("2")], "initContainers": [container("2"), sidecar("500m")]}, 2500),
        (
            {
                "containers": [container("1")],
                "initContainers": [sidecar("1"), container("2"), sidecar("1"), container("2")],
            },
            4000,
        ),
        ({"containers": [container(limit="2")]}, 2000),
        ({"containers": [container("1", "2")]}, 1000),
        ({"containers": [container("0", "2")]}, 0),
        ({"containers": [container("1")], "overhead": {"cpu": "250m"}}, 1250),
        ({"containers": [container("1")], "resources": {"requests": {"cpu": "3"}}, "overhead": {"cpu": "250m"}}, 3250),
        ({"containers": [container("5")], "resources": {"requests": {"cpu": "3"}}}, 3000),
        ({"containers": [container("5")], "resources": {"requests": {"memory": "1Gi"}}}, 5000),
        ({"containers": [container()], "resources": {"limits": {"cpu": "4"}}}, 4000),
        ({"containers": [container("1")], "resources": {"limits": {"cpu": "4"}}}, 1000),
        # 0 is an amount: the API server fills in the limit only where no container names the resource
        ({"containers": [container("0")], "resources": {"limits": {"cpu": "4"}}}, 0),
        (
            {
                "containers": [container()],
                "initContainers": [container(limit="0")],
                "resources": {"limits": {"cpu": "4"}},
            },
            0,
        ),
        ({"containers": [container("0.1m"), container("0.1m")]}, 1),
        ({"containers": [container("1e-3")]}, 1),
        ({"containers": [{"name": "c", "resources": {"requests": {"cpu": 2}}}]}, 2000),
        ({"containers": [{"name": "c", "resources": {"requests": {"cpu": 0.5}}}]}, 500),
        ({"containers": [{"name": "c"}, {"name": "d", "resources": {}}], "initContainers": None}, 0),
    ],
)
def test_cpu_cost_equals_the_sum_of_the_scheduler(spec: Json, millicores: int) -> None:
    assert find_cpu(spec) == millicores


def test_each_resource_is_counted_in_its_own_unit() -> None:
    spec = {
        "containers": [
            {
                "name": "c",
                "resources": {
                    "requests": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "2", "hugepages-2Mi": "4Mi"},
                    "limits": {"cpu": "3", "memory": "2Gi", "nvidia.com/gpu": "2"},
                },
            }
        ],
        "overhead": {"cpu": "1", "memory": "1Mi"},
    }
    names = ["pods", "cpu", "memory", "requests.nvidia.com/gpu", "limits.cpu", "limits.memory", "hugepages-2Mi"]
    assert list_taken(spec, *names) == {
        "pods": 1,
        "requests.cpu": 2000,
        "requests.memory": 2**30 + 2**20,
        "requests.nvidia.com/gpu": 2,
        "limits.cpu": 4000,
        "limits.memory": 2**31 + 2**20,
        "hugepages-2Mi": 4 * 2**20,
    }


def test_overhead_adds_no_limit_to_a_pod_without_limits() -> None:
    spec = {"containers": [container("1")], "overhead": {"cpu": "1"}}
    assert list_taken(spec, "limits.cpu") == {"limits.cpu": 0}


def test_error_of_an_invalid_amount_names_resource_and_value() -> None:
    with pytest.raises(ValueError, match=r"^cpu: 'much': not a Kubernetes quantity: .* such as 500m"):
        find_cpu({"containers": [container("much")]})
    with pytest.raises(ValueError, match=r"^cpu: '-1': a quantity must not be negative"):
        find_cpu({"containers": [container("-1")]})


amounts = st.integers(0, 5000)
drawn_containers = draw_fields(
    resources=draw_fields(
        requests=st.dictionaries(st.just("cpu"), amounts.map(lambda milli: f"{milli}m")),
        limits=st.dictionaries(st.just("cpu"), amounts.map(lambda milli: f"{milli}m")),
    )
)
drawn_init_containers = st.builds(
    lambda init, is_sidecar: {**init, **({"restartPolicy": "Always"} if is_sidecar else {})},
    drawn_containers,
    st.booleans(),
)


def _milli(drawn: Json) -> int:
    resources = drawn.get("resources") or {}
    for side in ("requests", "limits"):
        if "cpu" in (resources.get(side) or {}):
            return int(resources[side]["cpu"].removesuffix("m"))
    return 0


def compute_peak(containers: list[Json], init_containers: list[Json]) -> int:
    """Return the largest sum of containers that run at the same time."""
    moments = []
    sidecars: list[Json] = []
    for container in init_containers:
        moments.append([*sidecars, container])
        if container.get("restartPolicy") == "Always":
            sidecars.append(container)
    moments.append([*sidecars, *containers])
    return max(sum(_milli(container) for container in moment) for moment in moments)


@PROPERTY
@given(st.lists(drawn_containers, max_size=4), st.lists(drawn_init_containers, max_size=5), st.none() | amounts)
def test_cost_is_the_peak_of_the_containers_that_run_together(
    containers: list[Json], init_containers: list[Json], overhead: int | None
) -> None:
    spec: Json = {"containers": containers, "initContainers": init_containers}
    if overhead is not None:
        spec["overhead"] = {"cpu": f"{overhead}m"}
    assert find_cpu(spec) == compute_peak(containers, init_containers) + (overhead or 0)


@pytest.mark.parametrize(
    ("resource", "amount", "text"),
    [
        ("pods", 50, 50),
        ("cpu", 40_000, "40"),
        ("requests.cpu", 1_500, "1500m"),
        ("memory", 2**34, "16Gi"),
        ("limits.memory", 3 * 2**29, "1536Mi"),
        ("memory", 1000, "1000"),
        ("memory", 0, "0"),
        ("requests.nvidia.com/gpu", 4, 4),
        ("hugepages-2Mi", 2**21, "2Mi"),
    ],
)
def test_amounts_are_shown_as_kubernetes_writes_them(resource: str, amount: int, text: int | str) -> None:
    assert format_amount(resource, amount) == text
