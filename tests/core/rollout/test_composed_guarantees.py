"""Guarantees in a canary: a pool guarantees no more than it has, and both policies judge by the same."""

from collections.abc import Mapping
from typing import NamedTuple

import pytest
from msgspec import convert
from msgspec.structs import replace

from tests.core.reviewing import policy_of
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_store import MemoryStore
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.overrides import Override, apply_overrides
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_fields.rollout import CanaryBy
from webhook.core.quota import Acquire, CounterPlan
from webhook.core.rollout.canary import BasePolicy, pair
from webhook.core.rollout.composition import compose
from webhook.core.rollout.selection import Reach

OVERRIDE = {"modes": {"placement": "Audit"}, "until": "2030-01-01T00:00:00Z", "reason": "a test"}


class PoolOf(NamedTuple):
    """A pool with a limit of Pods, and what of it is guaranteed to its members."""

    hard: int
    members: Mapping[str, int]

    def load(self, policy_hash: str) -> LoadedPolicy:
        window = "windows: [{{window: 1m, hard: {{pods: {}}}}}]"
        kept = {name: f", guaranteed: {{{window.format(most)}}}" if most else "" for name, most in self.members.items()}
        services = (f"- {{name: {name}, match: {{namespaces: [{name}]}}, pool: p{kept[name]}}}\n" for name in kept)
        return replace(
            policy_of("".join(services), f"pools: [{{name: p, {window.format(self.hard)}}}]"), hash=policy_hash
        )


OUTSIDE = replace(policy_of("- {name: a, match: {namespaces: [a]}}\n"), hash="0" * 16)


def put_together(stable: LoadedPolicy, candidate: LoadedPolicy, reach: Reach) -> BasePolicy:
    composed = compose(stable, candidate, reach)
    return pair(stable.policy, candidate.policy, reach)(*map(CompiledPolicy, (composed.base, composed.canary)))


def list_limits(plans: Mapping[str, CounterPlan]) -> dict[str, list[tuple[int, int, int]]]:
    """Return `hard` of each service's limits, and what of it is guaranteed to the service and to others."""
    return {
        name: [
            (limit.hard, found.hard, sum(most for _, most in found.others))
            for (_, _, limit), found in zip(plan.limits, plan.guarantees, strict=True)
            if found is not None
        ]
        for name, plan in plans.items()
    }


@pytest.mark.parametrize("by", list(CanaryBy))
@pytest.mark.parametrize("guaranteed", [0, 10])
async def test_a_new_member_takes_nothing_that_is_guaranteed_in_force(by: CanaryBy, guaranteed: int) -> None:
    stable, candidate = PoolOf(10, {"a": 6}).load("0" * 16), PoolOf(20, {"a": 6, "b": guaranteed}).load("1" * 16)
    both = put_together(stable, candidate, Reach(by))
    store, admitted = MemoryStore(VirtualClock(1_800_000_000_000_000)), {"b": 0, "a": 0}
    for name, count in (("b", 10), ("a", 6)):
        for uid in range(count):
            receipt = await store.acquire(Acquire(both.plans[name], name, f"{name}-{uid}", {"pods": 1}, "x"))
            admitted[name] += receipt.refused is None
    assert admitted == {"b": 4, "a": 6}


def test_a_removed_member_has_its_guarantee_until_its_pool_has_moved() -> None:
    stable, candidate = PoolOf(10, {"a": 6}).load("0" * 16), PoolOf(8, {"b": 8}).load("1" * 16)
    both = put_together(stable, candidate, Reach(CanaryBy.WORKLOAD, percent=50))
    assert list_limits(both.plans) == {"a": [(10, 6, 0)], "b": [(10, 0, 6)]}
    moved = put_together(stable, candidate, Reach(CanaryBy.SERVICE, percent=100))
    assert list_limits(moved.plans) == {"a": [(8, 0, 8)], "b": [(8, 8, 0)]}


def test_a_guarantee_in_a_pool_of_the_candidate_alone_holds() -> None:
    candidate = PoolOf(10, {"b": 8}).load("1" * 16)
    both = put_together(OUTSIDE, candidate, Reach(CanaryBy.WORKLOAD, percent=50))
    assert list_limits(both.plans) == {"a": [], "b": [(10, 8, 0)]}


def test_guarantees_of_both_policies_count_under_overrides() -> None:
    stable, candidate = PoolOf(10, {"a": 6}).load("0" * 16), PoolOf(10, {"b": 8}).load("1" * 16)
    composed = compose(stable, candidate, Reach(CanaryBy.WORKLOAD, percent=50))
    entry = convert({**OVERRIDE, "service": "b"}, Override)
    overridden = apply_overrides(composed.canary, {"b": (entry,)})
    assert overridden.overrides
    assert list_limits(CompiledPolicy(overridden).plans) == {"b": [(10, 0, 6)]}
