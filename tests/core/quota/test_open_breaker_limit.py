"""The limit on open breakers: a percentage of those that deny Pods, at least three."""

import pytest
from msgspec.structs import replace

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy.model import BreakerGuard, LoadedPolicy, Match, Modes, Policy, Service
from webhook.core.policy_fields import Breaker, Mode, QuotaExceeded, WhenOpen

BREAKER = Breaker(quota_exceeded=QuotaExceeded())
ENFORCED = Service("s", Match(any_namespace=True), breaker=BREAKER)
WARNS = replace(ENFORCED, modes=Modes(breaker=Mode.WARN))
DEGRADES = replace(ENFORCED, breaker=replace(BREAKER, when_open=WhenOpen.DEGRADE))
WITHOUT = replace(ENFORCED, breaker=None)


def list_open_max(guard: BreakerGuard | None, *services: Service) -> list[int | None]:
    named = tuple(replace(service, name=f"s{number}") for number, service in enumerate(services))
    policy = Policy("podgate.io/v1alpha1", "Policy", named, breaker_guard=guard)
    plans = CompiledPolicy(LoadedPolicy(policy, "")).plans.values()
    return [plan.breaker.open_max if plan.breaker else None for plan in plans]


@pytest.mark.parametrize(
    ("percent", "breakers", "allowed"), [(30, 1, 3), (30, 13, 3), (30, 14, 4), (100, 20, 20), (1, 400, 4)]
)
def test_limit_is_a_percentage_rounded_down_and_at_least_three(percent: int, breakers: int, allowed: int) -> None:
    assert list_open_max(BreakerGuard(percent), *[ENFORCED] * breakers) == [allowed] * breakers


def test_breakers_that_deny_no_pods_are_neither_counted_nor_limited() -> None:
    found = list_open_max(BreakerGuard(50), *[ENFORCED] * 8, *[WARNS, DEGRADES, WITHOUT] * 8)
    assert found == [4] * 8 + [None] * 24


def test_without_the_guard_no_breaker_is_limited() -> None:
    assert list_open_max(None, ENFORCED, WARNS) == [None, None]
