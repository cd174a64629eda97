"""Parts that records of like Pods share: as worked out anew for each Pod."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.core.plans import plan_of, window
from webhook.core.ledger.live_pods import build_live_set_key
from webhook.core.ledger.pod_record import PartsCache, SharedParts, charges_of
from webhook.core.quota import Booking, CounterPlan, PoolPlan

PLAN = plan_of(window(60, pods=9), window(3600, **{"requests.cpu": 9}))
PLANS = (
    PLAN,
    replace(PLAN),
    replace(PLAN, service="web"),
    replace(PLAN, fleet=True),
    replace(PLAN, per_namespace=True),
    replace(PLAN, windows=PLAN.windows[:1]),
    replace(PLAN, windows=(), pool=PoolPlan("shared", PLAN.windows)),
)
COSTS = ({"pods": 1}, {"pods": 1, "requests.cpu": 5}, {"pods": 1, "requests.cpu": 0}, {"requests.cpu": 5})


def booking(namespace: str, cost: dict[str, int], team: str = "") -> Booking:
    return Booking(namespace, "u", cost, 0, team=team)


def build_shared_parts(plan: CounterPlan, namespace: str, cost: dict[str, int]) -> SharedParts:
    scope = namespace if plan.per_namespace else ""
    return SharedParts(namespace, cost, charges_of(plan, scope, cost), build_live_set_key(plan, scope))


@given(st.lists(st.tuples(st.sampled_from(PLANS), st.sampled_from(["a", "b"]), st.sampled_from(COSTS), st.booleans())))
def test_shared_parts_equal_fresh_ones(pods: list[tuple[CounterPlan, str, dict[str, int], bool]]) -> None:
    parts = PartsCache()
    for plan, namespace, cost, is_copied in pods:
        asked = {**cost} if is_copied else cost  # the next copy may have the same identity
        assert parts.get_parts(plan, booking(namespace, asked)) == build_shared_parts(plan, namespace, asked)


def test_pods_of_one_cost_share_their_parts() -> None:
    parts = PartsCache()
    first = parts.get_parts(PLAN, booking("a", COSTS[1]))
    assert parts.get_parts(PLAN, booking("a", COSTS[1])) is first
    assert parts.get_parts(PLAN, booking("a", {**COSTS[1]})) is first, "equal costs of other controllers"


def test_pods_of_a_namespace_that_was_given_to_another_team_have_other_parts() -> None:
    parts, plan = PartsCache(), replace(PLAN, per_namespace=True, team_key="team")
    found = [parts.get_parts(plan, booking("a", COSTS[1], team)).live_set_key[2] for team in ("red", "blue", "red")]
    assert found == ["red", "blue", "red"]
