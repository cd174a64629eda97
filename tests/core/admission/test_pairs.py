"""Any Pod under any policy, judged in every way at once: hundreds here, ten thousand in `make soak`."""

from hypothesis import given

from tests.core.oracle_comparison import disagreements, found_wrong, not_needed
from tests.core.pairs import accepted, drawn
from tests.core.rewriting import patch_of, rewritten
from tests.core.strategies import Pair, examples, pairs, whole_pairs


def troubles(pair: Pair) -> list[str]:
    """Return everything that is wrong with how a Pod is rewritten and judged."""
    after = rewritten(pair.pod, pair.service)
    again = patch_of(after, pair.service)
    twice = [f"not idempotent: {again}"] if again else []
    return [*found_wrong(pair, after), *disagreements(after, pair), *not_needed(pair), *twice]


@examples(150)
@given(pairs | whole_pairs)
def test_a_pod_is_rewritten_rightly_minimally_and_once(pair: Pair) -> None:
    assert troubles(pair) == []


def test_a_series_of_pairs_is_the_same_every_time() -> None:
    assert drawn(8, number=3) == drawn(8, number=3)
    assert accepted(8) == accepted(8)
    assert accepted(8) != accepted(8, number=2)
