"""The rewrite of any Pod under any policy: hundreds of random pairs here, ten thousand in `make soak`."""

from hypothesis import given

from tests.core.oracle_comparison import find_problems
from tests.core.pairs import draw_accepted_pairs, draw_pairs
from tests.core.strategies import Pair, class_pairs, examples, pairs, range_pairs, tenants_pairs, whole_pairs


@examples(150)
@given(pairs | whole_pairs)
def test_rewrite_is_correct_minimal_and_idempotent(pair: Pair) -> None:
    assert find_problems(pair) == []


@examples(1500)
@given(tenants_pairs)
def test_labels_and_what_a_pod_may_bring_or_keep_are_correct_minimal_and_idempotent(pair: Pair) -> None:
    assert find_problems(pair) == []


@examples(600)
@given(class_pairs)
def test_tolerations_by_qos_class_are_correct_minimal_and_idempotent(pair: Pair) -> None:
    assert find_problems(pair) == []


@examples(300)
@given(range_pairs)
def test_resources_are_correct_and_idempotent(pair: Pair) -> None:
    assert find_problems(pair) == []


def test_pair_series_is_deterministic() -> None:
    assert draw_pairs(8, number=3) == draw_pairs(8, number=3)
    assert draw_accepted_pairs(8) == draw_accepted_pairs(8)
    assert draw_accepted_pairs(8) != draw_accepted_pairs(8, number=2)
