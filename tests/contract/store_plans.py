"""Plans that compare stores: every kind of limit, and a sensitive breaker."""

from msgspec.structs import replace

from tests.contract.counter_store import BREAKER, SECOND_US, HandClock
from tests.core.plans import plan_of, standing, window
from webhook.core.breaker import BreakerPlan, Forcing, State, UnschedulablePlan
from webhook.core.policy_fields import Mode
from webhook.core.quota import STANDING as STANDING_WINDOW
from webhook.core.quota import PoolGuarantees, PoolPlan, StandingPlan, WindowPlan

START_US = HandClock().us + 123_456
LATE_US = 300_000
EAGER = replace(
    BREAKER,
    error_rate=replace(BREAKER.error_rate, minimum=1, consecutive=2),
    latency=replace(BREAKER.latency, consecutive=2),
    open_for_us=3 * SECOND_US,
    probes=2,
    probe_timeout_us=4 * SECOND_US,
)
WITHOUT_OUTCOMES = replace(EAGER, has_outcomes=False, error_rate=None, latency=None)
VARIANT = BreakerPlan(
    has_outcomes=True,
    error_rate=UnschedulablePlan(1, SECOND_US, 1, 1, 300 * SECOND_US),
    latency=None,
    quota=None,
    open_for_us=3 * SECOND_US,
    probes=1,
    probe_timeout_us=4 * SECOND_US,
)
"""As that of a variant of a placement's shares, whose Pods find no node."""
FORCINGS = (
    Forcing(State.FORCED_OPEN, START_US + 8 * SECOND_US, "INC-1"),
    Forcing(State.FORCED_CLOSED, START_US + 8 * SECOND_US, "INC-2"),
    Forcing(State.FORCED_OPEN, START_US + 20_000 * SECOND_US, "INC-3"),
)
POOL = PoolPlan("shared", (window(1, pods=3), window(64, pods=6, memory=100)))
GUARANTEES = PoolGuarantees(
    {
        (1, "pods"): (("payment-api", 2),),
        (64, "pods"): (("payment-api", 2), ("web", 1)),
        (64, "requests.memory"): (("web", 60),),
        (0, "pods"): (("payment-api", 1), ("web", 1)),
        (0, "requests.cpu"): (("web", 300),),
    }
)


def guaranteed_pool(service: str) -> PoolPlan:
    """Return the pool as it is for one of its members, with guarantees."""
    return PoolPlan(POOL.name, tuple(GUARANTEES.bind(shared, service) for shared in POOL.windows))


def live(**hard: int) -> WindowPlan:
    """Return limits on the live Pods of a pool."""
    return replace(window(0, **hard), name=STANDING_WINDOW)


def bind_standing(pool: PoolPlan, service: str) -> PoolPlan:
    """Return a pool as it is for one of its members, with guarantees in its limits on live Pods alone, or in all."""
    assert pool.standing is not None
    windows = tuple(GUARANTEES.bind(shared, service) for shared in pool.windows)
    return PoolPlan(pool.name, windows if service != "free" else pool.windows, GUARANTEES.bind(pool.standing, service))


STANDING_POOL = PoolPlan("shared", POOL.windows, live(pods=3, cpu=600, memory=100))
SMALL = plan_of(window(1, pods=2), window(64, pods=5, cpu=300), breaker=EAGER)
PLANS = (
    SMALL,
    plan_of(window(64, pods=3, cpu=700), window(2, cpu=900, memory=50), breaker=EAGER),
    replace(SMALL, breaker=WITHOUT_OUTCOMES),
    replace(
        SMALL, breaker=replace(EAGER, quota=None, probes=1, error_rate=replace(EAGER.error_rate, interval_us=500_000))
    ),
    replace(SMALL, quota_mode=Mode.AUDIT, breaker_mode=Mode.WARN),
    replace(SMALL, per_namespace=True),
    plan_of(breaker=EAGER),
    plan_of(window(64, pods=4), remember_us=5 * SECOND_US),
    plan_of(),
    replace(SMALL, fleet=True),
    *(
        replace(SMALL, service=service, tag="shared", per_namespace=per_namespace, pool=POOL)
        for service, per_namespace in (("payment-api", False), ("web", True))
    ),
    plan_of(service="batch", tag="shared", pool=PoolPlan("shared", (window(1, pods=1),)), breaker=WITHOUT_OUTCOMES),
    # Limits on live Pods, and their changes with a policy: limits, surge, namespaces, modes, fleet.
    STANDING := replace(SMALL, standing=standing(pods=3, cpu=500)),
    replace(STANDING, standing=StandingPlan(window(0, cpu=400, pods=2, memory=90).limits, (200, 2, 0))),
    replace(STANDING, per_namespace=True, standing=standing(2, pods=1)),
    replace(STANDING, quota_mode=Mode.WARN, standing=standing(1, pods=1)),
    replace(STANDING, fleet=True, standing=standing(1, pods=2)),
    plan_of(standing=standing(1, pods=2)),
    replace(SMALL, service="web", tag="shared", pool=POOL, standing=standing(1, pods=2, memory=70)),
    # Overrides, trips held by the guard, and Degrade.
    *(replace(SMALL, breaker=replace(EAGER, forcing=forcing)) for forcing in FORCINGS),
    replace(SMALL, breaker=replace(EAGER, open_max=0)),
    replace(SMALL, breaker=replace(EAGER, open_max=1)),
    replace(SMALL, breaker=replace(EAGER, degrades=True)),
    # Guarantees: of two members, and one without.
    *(
        replace(SMALL, service=service, tag="shared", per_namespace=per_namespace, pool=guaranteed_pool(service))
        for service, per_namespace in (("payment-api", False), ("web", True), ("free", False))
    ),
    # Breakers of variants, which limit nothing.
    *(
        plan_of(service="batch/spot", tag="variants", breaker=replace(VARIANT, probes=probes, forcing=forcing))
        for probes, forcing in ((1, None), (2, None), (1, FORCINGS[0]), (1, FORCINGS[1]))
    ),
    # Limits on the live Pods of a pool: beside those of its members, in several modes, and on all clusters together.
    *(
        replace(SMALL, service=service, tag="shared", per_namespace=per_namespace, pool=STANDING_POOL, standing=own)
        for service, per_namespace, own in (
            ("payment-api", False, None),
            ("web", True, standing(1, pods=2, memory=70)),
            ("free", False, standing(pods=1)),
        )
    ),
    plan_of(service="batch", tag="shared", pool=PoolPlan("shared", (), live(cpu=300, pods=2)), quota_mode=Mode.AUDIT),
    plan_of(service="batch", tag="shared", pool=PoolPlan("shared", (), live(pods=2)), fleet=True),
    *(
        replace(SMALL, service=service, tag="shared", per_namespace=per_namespace, pool=pool)
        for service, per_namespace, windows in (
            ("payment-api", False, POOL.windows),
            ("web", True, ()),
            ("free", False, POOL.windows),
        )
        for pool in (bind_standing(PoolPlan("shared", windows, STANDING_POOL.standing), service),)
    ),
)

LIVE_PLANS = tuple(number for number, plan in enumerate(PLANS) if plan.limits_live_pods)
BREAKER_PLANS = tuple(
    number for number, plan in enumerate(PLANS) if plan.breaker is not None and plan.breaker.error_rate is not None
)
GUARDED = (
    *(
        replace(plan, breaker=replace(plan.breaker, open_max=1))
        for plan in PLANS[:1] + tuple(plan for plan in PLANS if plan.tag == "shared" and not plan.limits_live_pods)
        if plan.breaker is not None
    ),
    plan_of(service="batch/spot", tag="variants", breaker=VARIANT),
)
"""Services of which one may be open at a time, and a variant, which does not count."""
