import pytest

from tests.core.reviewing import Gate, policy_of
from webhook.core.admission.decision import Verdict
from webhook.core.findings import Code
from webhook.core.quota import Acquire, DeniedBy, Receipt, Use
from webhook.errors import StoreUnavailableError

QUOTA = "quota: {windows: [{window: 1m, hard: {pods: 2}}]%s}"
BREAKER = "breaker: {quotaExceeded: {}}"


class GateWithoutStore(Gate):
    """A gate whose store gives no answer."""

    def __init__(self, service: str) -> None:
        super().__init__(policy_of(f"- {{name: web, match: {{namespaces: [shop]}}, {service}}}"))

        async def acquire(_: Acquire) -> Receipt:
            raise StoreUnavailableError("no answer within 50 ms")

        self.store.acquire = acquire  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("service", "admitted"),
    [
        ("failureMode: Closed, " + QUOTA % "", False),
        ("failureMode: Open, " + QUOTA % "", True),
        ("failureMode: Closed, " + QUOTA % ", whenStoreUnavailable: Allow", True),
        ("failureMode: Open, " + QUOTA % ", whenStoreUnavailable: Deny", False),
        ("failureMode: Closed, quota: {windows: [{window: 1m, hard: {pods: 2}}]}, modes: {quota: Disabled}", True),
        ("failureMode: Closed", True),
        ("modes: {quota: Warn}, failureMode: Closed, " + QUOTA % "", True),
        ("modes: {quota: Audit}, failureMode: Closed, " + QUOTA % "", True),
    ],
)
async def test_failure_mode_and_when_store_unavailable_decide_on_the_pod(service: str, *, admitted: bool) -> None:
    gate = GateWithoutStore(service)
    decision = await gate.validate(object=gate.build_owned_pod("u"))
    assert (decision.verdict is Verdict.ADMIT, decision.charge.uncounted) == (admitted, admitted)
    if not admitted:
        assert (decision.status.code, decision.status.reason) == (503, "ServiceUnavailable")
        message = "StoreUnavailable: service web: the counters are unavailable (no answer within 50 ms): try again soon"
        assert decision.status.message == message


async def test_warn_mode_warns_that_the_store_is_unavailable() -> None:
    gate = GateWithoutStore("modes: {quota: Warn}, failureMode: Closed, " + QUOTA % "")
    decision = await gate.validate(object=gate.build_owned_pod("u"))
    assert [warning.partition(":")[0] for warning in decision.warnings] == [Code.STORE_UNAVAILABLE]


async def test_mutation_and_update_need_no_store() -> None:
    gate = GateWithoutStore("failureMode: Closed, " + QUOTA % "")
    sent = gate.build_owned_pod("u")
    assert (await gate.mutate(object=sent)).allowed
    assert (await gate.validate(operation="UPDATE", object=sent, oldObject=sent)).allowed


@pytest.mark.parametrize(
    ("service", "admitted"),
    [
        ("failureMode: Closed, " + QUOTA % ", whenStoreUnavailable: Allow", 1),
        ("failureMode: Open, " + QUOTA % ", whenStoreUnavailable: Deny", 0),
        ("modes: {quota: Audit}, " + QUOTA % ", whenStoreUnavailable: Deny", 1),
        ("failureMode: Closed", 1),
        ("failureMode: Closed, " + BREAKER, 0),
        ("failureMode: Open, " + BREAKER, 1),
        ("failureMode: Closed, modes: {breaker: Audit}, " + BREAKER, 1),
    ],
)
async def test_pod_admitted_without_the_store_is_kept_as_uncounted(service: str, admitted: int) -> None:
    gate = GateWithoutStore(service)
    decision = await gate.validate(object=gate.build_owned_pod("u"))
    assert decision.charge.uncounted == bool(admitted)
    assert [request.uid for request in gate.uncounted] == ["u"] * admitted


async def test_denial_by_a_share_of_the_limit_says_so() -> None:
    gate = GateWithoutStore("failureMode: Closed, " + QUOTA % "")
    over = (Use("1m", "pods", used=1, hard=1, asked=1, free_at_us=2_000_000),)

    async def acquire(_: Acquire) -> Receipt:
        return Receipt(1_000_000, refused=DeniedBy.QUOTA, over=over, free_at_us=2_000_000, local=True)

    gate.store.acquire = acquire  # type: ignore[method-assign]
    decision = await gate.validate(object=gate.build_owned_pod("u"))
    assert decision.status.code == 429
    assert decision.status.message == (
        "QuotaExceeded: service web: pods in 1m: hard 1, used 1, asked 1; could pass from 1970-01-01T00:00:02.000Z,"
        " or when the counters are available again; until then these are this replica's shares of the limits"
    )
