"""Short constructors of counter plans."""

from typing import Any

from msgspec.structs import replace

from webhook.core.policy_fields import Mode
from webhook.core.quota import CounterPlan, Limit, StandingPlan, WindowPlan, canonicalize


def window(seconds: int, **hard: int) -> WindowPlan:
    return WindowPlan(
        f"{seconds}s", seconds, tuple(Limit(name, canonicalize(name), value) for name, value in hard.items())
    )


def standing(surge: int = 0, **hard: int) -> StandingPlan:
    """Return limits on live Pods, each with the same surge."""
    return StandingPlan(window(0, **hard).limits, (surge,) * len(hard))


def plan_of(*windows: WindowPlan, **changes: Any) -> CounterPlan:
    plan = CounterPlan("payment-api", "payment-api", False, windows, Mode.ENFORCE, None, Mode.ENFORCE)  # noqa: FBT003
    return replace(plan, **changes)
