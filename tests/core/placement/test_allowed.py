"""Allowed values by example, beside what PodTolerationRestriction and PodNodeSelector of Kubernetes 1.36 decide.

Sources: pkg/util/tolerations (isSuperset), plugin/pkg/admission/podtolerationrestriction and podnodeselector.
"""

from typing import Any

import pytest

from tests.core.oracle_comparison import find_findings
from tests.core.placement.examples import pod
from tests.core.strategies import Json, service_of

ANY: Json = {"operator": "Exists"}
GPU: Json = {"key": "gpu", "operator": "Exists"}
A10: Json = {"key": "gpu", "operator": "Equal", "value": "a10"}
NO_SCHEDULE, PREFERRED, NO_EXECUTE = ({"effect": effect} for effect in ("NoSchedule", "PreferNoSchedule", "NoExecute"))
TOLERATIONS: dict[str, Json] = {
    "*": ANY,
    "*:NoSchedule": ANY | NO_SCHEDULE,
    "*:NoExecute": ANY | NO_EXECUTE,
    "gpu": GPU,
    "gpu:NoSchedule": GPU | NO_SCHEDULE,
    "gpu:PreferNoSchedule": GPU | PREFERRED,
    "gpu:NoExecute": GPU | NO_EXECUTE,
    "gpu:NoExecute 60 s": GPU | NO_EXECUTE | {"tolerationSeconds": 60},
    "gpu:NoExecute 0 s": GPU | NO_EXECUTE | {"tolerationSeconds": 0},
    "gpu=a10": A10,
    "gpu=a10:NoSchedule": A10 | NO_SCHEDULE,
    "gpu=a10:NoExecute": A10 | NO_EXECUTE,
    "gpu=a10:NoExecute 60 s": A10 | NO_EXECUTE | {"tolerationSeconds": 60},
    "gpu=h100:NoSchedule": A10 | NO_SCHEDULE | {"value": "h100"},
    "spot:NoSchedule": GPU | NO_SCHEDULE | {"key": "spot"},
}
GPU_NO_EXECUTE = {"gpu:NoExecute 60 s", "gpu:NoExecute 0 s", "gpu=a10:NoExecute", "gpu=a10:NoExecute 60 s"}
GPU_NO_SCHEDULE = {"gpu=a10:NoSchedule", "gpu=h100:NoSchedule"}
COVERED: dict[str, set[str]] = {
    "*": {*TOLERATIONS} - {"*"},
    "*:NoSchedule": {"gpu:NoSchedule", "spot:NoSchedule", *GPU_NO_SCHEDULE},
    "*:NoExecute": {"gpu:NoExecute", *GPU_NO_EXECUTE},
    "gpu": {name for name in TOLERATIONS if name.startswith("gpu")} - {"gpu"},
    "gpu:NoSchedule": GPU_NO_SCHEDULE,
    "gpu:PreferNoSchedule": set(),
    "gpu:NoExecute": GPU_NO_EXECUTE,
    "gpu:NoExecute 60 s": {"gpu:NoExecute 0 s", "gpu=a10:NoExecute 60 s"},
    "gpu:NoExecute 0 s": set(),
    "gpu=a10": {"gpu=a10:NoSchedule", "gpu=a10:NoExecute", "gpu=a10:NoExecute 60 s"},
    "gpu=a10:NoSchedule": set(),
    "gpu=a10:NoExecute": {"gpu=a10:NoExecute 60 s"},
    "gpu=a10:NoExecute 60 s": set(),
    "gpu=h100:NoSchedule": set(),
    "spot:NoSchedule": set(),
}
"""By listed toleration: those that it covers, besides itself."""


def find_denied(spec: Json, allow: Json, **placement: Any) -> set[str]:
    """Return the fields whose values are not allowed."""
    found = find_findings(pod(**spec), service_of({"allow": allow, **placement}))
    return {field for code, field in found if code == "PlacementNotAllowed"}


def is_allowed(listed: list[Json], *own: Json, **placement: Any) -> bool:
    return not find_denied({"tolerations": list(own)}, {"tolerations": listed}, **placement)


@pytest.mark.parametrize("listed", TOLERATIONS)
def test_toleration_covers_those_that_it_covers_in_pod_toleration_restriction(listed: str) -> None:
    covered = {name for name, own in TOLERATIONS.items() if is_allowed([TOLERATIONS[listed]], own)}
    assert covered == {listed, *COVERED[listed]}


@pytest.mark.parametrize(
    ("listed", "own", "expected"),
    [
        (["gpu=a10:NoSchedule", "gpu=h100:NoSchedule"], ["gpu=h100:NoSchedule", "gpu=a10:NoSchedule"], True),
        (["gpu=a10:NoSchedule"], ["gpu=a10:NoSchedule"] * 2, True),
        (["gpu=a10:NoSchedule"], ["gpu=a10:NoSchedule", "gpu=h100:NoSchedule"], False),
        (["*:NoSchedule", "*:NoExecute"], ["*"], False),
        (["gpu=a10"], [], True),
    ],
)
def test_each_toleration_is_covered_by_one_of_the_list(listed: list[str], own: list[str], *, expected: bool) -> None:
    assert is_allowed([TOLERATIONS[name] for name in listed], *(TOLERATIONS[name] for name in own)) is expected


@pytest.mark.parametrize(
    ("listed", "own", "expected"),
    [
        (["low"], "low", True),
        (["low"], "low-2", False),
        (["batch-*"], "batch-low", True),
        (["batch-*"], "batch", False),
        (["*-low"], "batch-low", True),
        (["*-low"], "batch-low-2", False),
        (["gold", "*-low"], "batch-low", True),
    ],
)
@pytest.mark.parametrize("field", ["priorityClassName", "schedulerName", "runtimeClassName"])
def test_name_is_allowed_exactly_or_by_one_end(field: str, listed: list[str], own: str, *, expected: bool) -> None:
    assert find_denied({field: own}, {f"{field}s": listed}) == (set() if expected else {f"spec.{field}"})


# Where Podgate decides otherwise


def test_missing_operator_is_equal() -> None:
    """The API server stores it as it is, and tolerates by it as by Equal; the plugin compares the texts."""
    assert is_allowed([A10], {"key": "gpu", "value": "a10"})
    assert is_allowed([{"key": "gpu", "value": "a10"}], A10)


@pytest.mark.parametrize(("own", "expected"), [("5", True), ("4", True), ("6", False)])
def test_lower_bound_of_lt_is_covered(own: str, *, expected: bool) -> None:
    """The plugin covers no Lt and Gt but by Exists, and by the very same."""
    at_most_5 = {"key": "sla", "operator": "Lt", "value": "5"}
    assert is_allowed([at_most_5], at_most_5 | {"value": own}) is expected
    assert is_allowed([{"key": "sla", "operator": "Exists"}], at_most_5 | {"value": own})
    assert not is_allowed([at_most_5], at_most_5 | {"operator": "Gt", "value": own})


def test_empty_list_allows_nothing() -> None:
    """The plugins read an empty list as none."""
    assert not is_allowed([], TOLERATIONS["gpu=a10:NoSchedule"])
    assert find_denied({"nodeSelector": {"disk": "ssd"}}, {"nodeSelectorKeys": []})


def test_what_the_policy_sets_need_not_be_listed() -> None:
    """The plugins compare their own defaults with the whitelist, too."""
    assert is_allowed([], GPU, tolerations=[GPU])
    assert not find_denied({"nodeSelector": {"disk": "ssd"}}, {"nodeSelectorKeys": []}, nodeSelector={"disk": "ssd"})


def test_values_of_node_labels_are_free() -> None:
    """PodNodeSelector compares the values."""
    assert not find_denied({"nodeSelector": {"disk": "hdd"}}, {"nodeSelectorKeys": ["disk"]})
    assert find_denied({"nodeSelector": {"disk": "ssd", "zone": "b"}}, {"nodeSelectorKeys": ["disk"]}) == {
        "spec.nodeSelector"
    }
