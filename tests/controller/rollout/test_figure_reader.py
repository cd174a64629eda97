"""Figures of a candidate: which counts of the store belong to a step, and which Pods to the rollout."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import SECOND_US, compile_policy, format_moment, pod
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_rollout_counts import MemoryRolloutCounts
from webhook.controller.rollout.figure_reader import FigureReader
from webhook.controller.rollout.pod_figures import PodFiguresObserver
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.kubernetes.pod import Pod, PodStatus
from webhook.core.kubernetes.timestamps import format_rfc3339
from webhook.core.pods.ownership import find_ownership
from webhook.core.policy_fields.rollout import Rollout
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


BEGAN_US = 1_764_000_000 * SECOND_US + 400_000


@pytest.mark.parametrize(
    ("began_us", "since_us", "created_us", "is_counted"),
    [
        (BEGAN_US, BEGAN_US, BEGAN_US, True),
        (BEGAN_US, BEGAN_US, BEGAN_US + 599_999, True),
        (BEGAN_US, BEGAN_US, BEGAN_US - 400_001, False),
        (BEGAN_US, BEGAN_US + 600 * SECOND_US, BEGAN_US + SECOND_US, True),
        (BEGAN_US, BEGAN_US + 600 * SECOND_US, BEGAN_US - SECOND_US, False),
        (BEGAN_US + 3_600 * SECOND_US, BEGAN_US, BEGAN_US, True),
        (None, BEGAN_US, BEGAN_US - 86_400 * SECOND_US, True),
    ],
    ids=["first", "same-second", "before", "in-a-later-step", "before-the-steps", "wrong-clock", "older-version"],
)
@pytest.mark.parametrize("is_listed_first", [False, True])
def test_pods_that_the_candidate_judged_before_the_rollout_do_not_count(
    began_us: int | None, since_us: int, created_us: int, *, is_counted: bool, is_listed_first: bool
) -> None:
    """Creation is in whole seconds, rounded down; the state's times are rounded up."""
    clock, policy = VirtualClock(since_us + 600 * SECOND_US), compile_policy()
    observer = PodFiguresObserver(clock.now_us)
    reader = FigureReader(observer, MemoryRolloutCounts(clock), lambda: True, clock.now_us)
    state = RolloutState("old", phase=Phase.CANARY, candidate="new", since=format_rfc3339(since_us))
    if began_us is not None:
        state = replace(state, began=format_rfc3339(began_us))

    def list_pods() -> None:
        for policy_hash in ("old", "new"):
            made = pod(policy_hash, annotations={HASH_ANNOTATION: policy_hash})
            created = format_moment(created_us // SECOND_US * SECOND_US)
            made = Pod(replace(made.metadata, creation_timestamp=created), made.spec, PodStatus("Running"))
            observer.on_changed(made, find_ownership(made, policy, {}))
        observer.on_list_complete()

    if is_listed_first:
        list_pods()
    reader.follow(state, Rollout())
    if not is_listed_first:
        list_pods()
    figures = asyncio.run(reader.read(state))
    assert figures.pending == Share(0, int(is_counted))
    assert len(observer) == 1 + is_counted
