"""Helpers of the `stores_agree` tests that other tests use, too."""

from msgspec.structs import replace

from webhook.core.quota import CounterPlan


def plan_of_example(plan: CounterPlan, name: str) -> CounterPlan:
    """Return the plan for a service without counters."""
    pool = replace(plan.pool, name=f"{plan.pool.name}-{name}") if plan.pool else None
    return replace(plan, service=f"{plan.service}-{name}", tag=f"{plan.tag}-{name}", pool=pool)
