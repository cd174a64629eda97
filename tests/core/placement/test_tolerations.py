"""Tolerations by example: additions, their positions, and those already implied."""

import pytest

from tests.core.generating.vocabulary import Json
from tests.core.oracle.taints import seconds_tolerated
from tests.core.placement.examples import operations, pod
from tests.core.rewriting import patch_of, rewritten
from tests.core.strategies import service_of

NOT_READY = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}


def test_longer_toleration_precedes_the_default_one() -> None:
    """DefaultTolerationSeconds runs before webhooks, and eviction goes by the first toleration that fits."""
    raw = pod(tolerations=[{"key": "gpu", "operator": "Exists"}, {**NOT_READY, "tolerationSeconds": 300}])
    service = service_of({"tolerations": [{**NOT_READY, "tolerationSeconds": 3600}]})
    patched = rewritten(raw, service)
    assert seconds_tolerated(patched["spec"]["tolerations"], NOT_READY["key"], "", "NoExecute") == 3600
    assert patch_of(patched, service) == ()


def test_longer_toleration_precedes_a_shorter_one_of_every_key() -> None:
    raw = pod(tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}])
    patched = rewritten(raw, service_of({"tolerations": [{**NOT_READY, "tolerationSeconds": 3600}]}))
    assert seconds_tolerated(patched["spec"]["tolerations"], NOT_READY["key"], "", "NoExecute") == 3600


@pytest.mark.parametrize("seconds", [{}, {"tolerationSeconds": 300}, {"tolerationSeconds": 301}])
def test_toleration_that_lasts_long_enough_is_not_added(seconds: Json) -> None:
    raw = pod(tolerations=[{**NOT_READY, **seconds}])
    assert operations(raw, tolerations=[{**NOT_READY, "tolerationSeconds": 300}]) == []


def test_negative_time_is_as_long_as_none() -> None:
    raw = pod(tolerations=[{**NOT_READY, "tolerationSeconds": -1}])
    assert operations(raw, tolerations=[{**NOT_READY, "tolerationSeconds": 0}]) == []


def test_toleration_covered_by_another_of_the_policy_is_not_added() -> None:
    narrow, broad = {"key": "gpu", "value": "a", "effect": "NoSchedule"}, {"key": "gpu", "operator": "Exists"}
    assert operations(pod(), tolerations=[narrow, broad, broad])[0]["value"] == [broad]


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
    assert operations(pod(tolerations=[own]), tolerations=[wanted]) == []


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
    assert bool(operations(raw, tolerations=[{"key": "gpu", **wanted}])) is overlap
