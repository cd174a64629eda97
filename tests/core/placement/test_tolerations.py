"""Tolerations by example: additions, their positions, and those already implied."""

import pytest

from tests.core.generating.vocabulary import Json
from tests.core.oracle.taints import seconds_tolerated
from tests.core.placement.examples import operations, pod
from tests.core.rewriting import patch_of, rewritten
from tests.core.strategies import service_of

NOT_READY = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}


def test_a_longer_toleration_stands_before_the_default_one_which_would_win() -> None:
    """DefaultTolerationSeconds runs before webhooks, and eviction goes by the first toleration that fits."""
    raw = pod(tolerations=[{"key": "gpu", "operator": "Exists"}, {**NOT_READY, "tolerationSeconds": 300}])
    service = service_of({"tolerations": [{**NOT_READY, "tolerationSeconds": 3600}]})
    patched = rewritten(raw, service)
    assert seconds_tolerated(patched["spec"]["tolerations"], NOT_READY["key"], "", "NoExecute") == 3600
    assert patch_of(patched, service) == ()


def test_a_longer_toleration_stands_before_a_shorter_one_of_every_key() -> None:
    raw = pod(tolerations=[{"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}])
    patched = rewritten(raw, service_of({"tolerations": [{**NOT_READY, "tolerationSeconds": 3600}]}))
    assert seconds_tolerated(patched["spec"]["tolerations"], NOT_READY["key"], "", "NoExecute") == 3600


@pytest.mark.parametrize("seconds", [{}, {"tolerationSeconds": 300}, {"tolerationSeconds": 301}])
def test_what_the_pod_bears_long_enough_is_not_added_again(seconds: Json) -> None:
    raw = pod(tolerations=[{**NOT_READY, **seconds}])
    assert operations(raw, tolerations=[{**NOT_READY, "tolerationSeconds": 300}]) == []


def test_a_toleration_that_another_one_covers_is_not_added() -> None:
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
def test_a_wider_toleration_of_the_users_is_enough(own: Json, wanted: Json) -> None:
    assert operations(pod(tolerations=[own]), tolerations=[wanted]) == []


@pytest.mark.parametrize(
    ("shorter", "wanted", "meet"),
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
def test_a_shorter_toleration_in_front_matters_only_where_a_value_fits_both(
    shorter: Json, wanted: Json, *, meet: bool
) -> None:
    brief = {"key": "gpu", "effect": "NoExecute", "tolerationSeconds": 5, **shorter}
    raw = pod(tolerations=[brief, {"key": "gpu", **wanted}])
    assert bool(operations(raw, tolerations=[{"key": "gpu", **wanted}])) is meet
