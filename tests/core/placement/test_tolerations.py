"""Tolerations by example: additions, their positions, and those already implied."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.generating.tolerations import tolerations
from tests.core.generating.vocabulary import ODD, UNKNOWN_FIELD, Json
from tests.core.oracle.taints import find_tolerated_seconds, find_toleration_faults
from tests.core.placement.examples import list_operations, pod
from tests.core.rewriting import patch_of, rewrite_pod
from tests.core.strategies import service_of

NOT_READY = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}


def test_longer_toleration_precedes_the_default_one() -> None:
    """DefaultTolerationSeconds runs before webhooks, and eviction goes by the first toleration that fits."""
    raw = pod(tolerations=[{"key": "gpu", "operator": "Exists"}, {**NOT_READY, "tolerationSeconds": 300}])
    service = service_of({"tolerations": [{**NOT_READY, "tolerationSeconds": 3600}]})
    patched = rewrite_pod(raw, service)
    assert find_tolerated_seconds(patched["spec"]["tolerations"], NOT_READY["key"], "", "NoExecute") == 3600
    assert patch_of(patched, service) == ()


GPU = {"key": "gpu", "operator": "Exists", "effect": "NoExecute"}
MAINTENANCE = {"key": "maintenance", "effect": "NoExecute"}


@pytest.mark.parametrize(
    ("own", "wanted", "seconds"),
    [
        (
            [GPU, {**NOT_READY, "tolerationSeconds": 300}],
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600},
            {("gpu", ""): math.inf, (NOT_READY["key"], ""): 600, ("other", ""): 600},
        ),
        (
            [{**MAINTENANCE, "value": "soft"}, {**MAINTENANCE, "value": "hard", "tolerationSeconds": 60}],
            {**MAINTENANCE, "operator": "Exists", "tolerationSeconds": 600},
            {("maintenance", "soft"): math.inf, ("maintenance", "hard"): 600, ("maintenance", ""): 600},
        ),
        (
            [{**GPU, "tolerationSeconds": 60}, {"operator": "Exists"}],
            {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 600},
            {("gpu", ""): 600, ("other", ""): math.inf},
        ),
    ],
)
def test_a_shorter_toleration_of_the_policy_leaves_a_longer_one_of_the_pod_in_force(
    own: list[Json], wanted: Json, seconds: dict[tuple[str, str], float]
) -> None:
    service = service_of({"tolerations": [wanted]})
    patched = rewrite_pod(pod(tolerations=own), service)
    found = patched["spec"]["tolerations"]
    assert {taint: find_tolerated_seconds(found, *taint, "NoExecute") for taint in seconds} == seconds
    assert patch_of(patched, service) == ()


ODD_TOLERATIONS = st.lists(tolerations(ODD), max_size=5)


@given(ODD_TOLERATIONS, ODD_TOLERATIONS)
def test_each_taint_is_tolerated_for_the_longest_time_of_pod_and_policy(own: list[Json], wanted: list[Json]) -> None:
    wanted = [
        {key: value for key, value in toleration.items() if key != UNKNOWN_FIELD and value != ""}
        for toleration in wanted
    ]
    before = pod(tolerations=own)
    service = service_of({"tolerations": wanted})
    after = rewrite_pod(before, service)
    assert list(find_toleration_faults(before, after, {"tolerations": wanted})) == []
    assert patch_of(after, service) == ()


def test_longer_toleration_precedes_a_shorter_one_of_every_key() -> None:
    raw = pod(tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}])
    patched = rewrite_pod(raw, service_of({"tolerations": [{**NOT_READY, "tolerationSeconds": 3600}]}))
    assert find_tolerated_seconds(patched["spec"]["tolerations"], NOT_READY["key"], "", "NoExecute") == 3600


@pytest.mark.parametrize("seconds", [{}, {"tolerationSeconds": 300}, {"tolerationSeconds": 301}])
def test_toleration_that_lasts_long_enough_is_not_added(seconds: Json) -> None:
    raw = pod(tolerations=[{**NOT_READY, **seconds}])
    assert list_operations(raw, tolerations=[{**NOT_READY, "tolerationSeconds": 300}]) == []


def test_negative_time_is_as_long_as_none() -> None:
    raw = pod(tolerations=[{**NOT_READY, "tolerationSeconds": -1}])
    assert list_operations(raw, tolerations=[{**NOT_READY, "tolerationSeconds": 0}]) == []


def test_toleration_covered_by_another_of_the_policy_is_not_added() -> None:
    narrow, broad = {"key": "gpu", "value": "a", "effect": "NoSchedule"}, {"key": "gpu", "operator": "Exists"}
    assert list_operations(pod(), tolerations=[narrow, broad, broad])[0]["value"] == [broad]


@pytest.mark.parametrize(
    ("own", "wanted"),
    [
        ({"operator": "Exists"}, {"key": "gpu", "value": "a"}),
        ({"key": "gpu", "operator": "Exists"}, {"key": "gpu", "value": "a", "effect": "NoSchedule"}),
        ({"key": "gpu", "operator": "Lt", "value": "5"}, {"key": "gpu", "operator": "Lt", "value": "4"}),
        ({"key": "gpu", "value": "a"}, {"key": "gpu", "operator": "Equal", "value": "a"}),
    ],
)
def test_toleration_covered_by_a_wider_one_of_the_user_is_not_added(own: Json, wanted: Json) -> None:
    assert list_operations(pod(tolerations=[own]), tolerations=[wanted]) == []


@pytest.mark.parametrize(
    ("shorter", "wanted", "overlap"),
    [
        ({"operator": "Lt", "value": "5"}, {"operator": "Equal", "value": ""}, False),
        ({"operator": "Lt", "value": "5"}, {"operator": "Equal", "value": "5"}, False),
        ({"operator": "Lt", "value": "5"}, {"operator": "Equal", "value": "4"}, True),
        ({"operator": "Gt", "value": "5"}, {"operator": "Equal", "value": "6"}, True),
        ({"operator": "Lt", "value": "5"}, {"operator": "Gt", "value": "4"}, False),
        ({"operator": "Lt", "value": "5"}, {"operator": "Gt", "value": "3"}, True),
        ({"operator": "Lt", "value": "5"}, {"operator": "Lt", "value": "-5"}, True),
    ],
)
def test_toleration_is_added_before_a_shorter_one_only_if_a_value_matches_both(
    shorter: Json, wanted: Json, *, overlap: bool
) -> None:
    shorter_one = {"key": "gpu", "effect": "NoExecute", "tolerationSeconds": 5, **shorter}
    raw = pod(tolerations=[shorter_one, {"key": "gpu", **wanted}])
    assert bool(list_operations(raw, tolerations=[{"key": "gpu", **wanted}])) is overlap
