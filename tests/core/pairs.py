"""Generated pairs of Pod and policy; equal seeds give equal pairs."""

from functools import cache
from typing import TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.core.generating.equivalent_pods import Pair, pairs, real_pairs

_QUIET = list(HealthCheck)


T = TypeVar("T")


def draw_series(count: int, strategy: st.SearchStrategy[T], *, number: int = 1) -> list[T]:
    """Return `count` drawn values, the `number`-th series of them."""
    found: list[T] = []

    @seed(number)
    @settings(max_examples=count, database=None, deadline=None, phases=[Phase.generate], suppress_health_check=_QUIET)
    @given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found[:count]


def draw_pairs(count: int, *, number: int = 1, strategy: st.SearchStrategy[Pair] = pairs) -> list[Pair]:
    return draw_series(count, strategy, number=number)


@cache
def draw_usual_pairs() -> tuple[Pair, ...]:
    """Return pairs for tests that hardly depend on them, drawn once. Do not change them."""
    return tuple(draw_pairs(300, number=2))


def draw_accepted_pairs(count: int, *, number: int = 1) -> list[Pair]:
    """Return pairs whose Pods a real API server accepts, before and after the rewrite.

    It must have the PriorityClasses and RuntimeClasses of `generating.words`, and a Namespace of NAMESPACE's name.
    """
    return draw_pairs(count, number=number, strategy=real_pairs)
