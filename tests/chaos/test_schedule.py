"""Schedules and acts: the seed alone decides them, and no target is hit twice at once."""

from collections import Counter
from itertools import combinations

import pytest

from tests.chaos.acts import draw_workload
from tests.chaos.effects import BUILDS
from tests.chaos.fault_kinds import CLUSTER, EFFECTS, FAMILIES, KINDS
from tests.chaos.lab import LINKS, PARTS
from tests.chaos.policies import SERVICES, build_policies, hash_policy
from tests.chaos.schedule import draw_schedule
from webhook.core.document import Purpose, load


def test_a_seed_draws_the_same_schedule_and_acts_each_time() -> None:
    assert (
        draw_schedule(7, 90, PARTS, LINKS) == draw_schedule(7, 90, PARTS, LINKS) != draw_schedule(8, 90, PARTS, LINKS)
    )
    assert draw_workload(7, 90, 3) == draw_workload(7, 90, 3) != draw_workload(8, 90, 3)


@pytest.mark.parametrize("seed", range(20))
def test_no_target_has_two_faults_at_once(seed: int) -> None:
    schedule = draw_schedule(seed, 600, PARTS, LINKS)
    for one, other in combinations(schedule, 2):
        is_same = one.parts == other.parts and (CLUSTER not in one.parts or one.kind == other.kind)
        assert not is_same or one.until <= other.after or other.until <= one.after, (one, other)


def test_each_kind_is_drawn_and_no_family_more_often_than_others() -> None:
    schedule = [fault for seed in range(20) for fault in draw_schedule(seed, 600, PARTS, LINKS)]
    family_of = {kind.name: kind.family for kind in KINDS}
    assert {fault.kind for fault in schedule} == {kind.name for kind in KINDS}
    counts = Counter(family_of[fault.kind] for fault in schedule)
    assert {*counts} == {*FAMILIES}
    assert max(counts.values()) < 1.5 * min(counts.values()), counts


def test_each_kind_has_an_effect_and_a_text() -> None:
    names = {kind.name for kind in KINDS}
    assert names == {*BUILDS} == {*EFFECTS}


def test_the_policies_are_good_and_have_the_hashes_of_the_plan() -> None:
    for text in build_policies():
        loaded = load(text.encode(), Purpose.SERVE).policy
        assert loaded.hash == hash_policy(text)
        assert [service.name for service in loaded.policy.services] == [*SERVICES]
