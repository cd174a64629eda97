"""Figures of a candidate: which counts of the store belong to a step."""

import asyncio

import pytest

from tests.controller.controller_simulation import SECOND_US
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_rollout_counts import MemoryRolloutCounts
from webhook.controller.rollout.figure_reader import FigureReader
from webhook.controller.rollout.pod_figures import PodFiguresObserver
from webhook.core.kubernetes.timestamps import format_rfc3339
from webhook.core.rollout.counting import BUCKET_US, REVIEWS, bucket_of
from webhook.core.rollout.state import Phase, RolloutState
from webhook.core.rollout.symptoms import Share

BUCKET_BEGINS_US = bucket_of(1_764_000_000 * SECOND_US) * BUCKET_US


@pytest.mark.parametrize("offset_us", [0, 1, 4_500_000, 9_000_000, 9_000_001, 9_507_000, 9_999_999])
def test_counts_of_the_first_moments_of_a_step_belong_to_it(offset_us: int) -> None:
    began_us = BUCKET_BEGINS_US + offset_us
    clock = VirtualClock(began_us)
    counts = MemoryRolloutCounts(clock)
    state = RolloutState("old", phase=Phase.CANARY, candidate="new", since=format_rfc3339(began_us))
    reader = FigureReader(PodFiguresObserver(clock.now_us), counts, lambda: True, clock.now_us)

    async def read_denied() -> Share | None:
        await counts.add("new", {REVIEWS: 14})
        clock.set(began_us + BUCKET_US)
        await counts.add("new", {REVIEWS: 10})
        return (await reader.read(state)).denied

    assert asyncio.run(read_denied()) == Share(0, 24)
