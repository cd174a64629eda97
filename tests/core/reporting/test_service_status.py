"""Content of a ServiceStatus: the whole view, without values that change with time alone."""

from webhook.core.breaker import BreakerView, State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy.model import LoadedPolicy, Match, Modes, Policy, Service
from webhook.core.policy_fields import Breaker, HalfOpen, Mode, QuotaExceeded
from webhook.core.quota import CounterPlan
from webhook.core.reporting.status_parts import render_service_status

NOW_US = 1_800_000_000_000_000
BREAKER = Breaker(quota_exceeded=QuotaExceeded(), half_open=HalfOpen(probes=2))


def plan(mode: Mode = Mode.ENFORCE, breaker: Breaker | None = BREAKER) -> CounterPlan:
    service = Service("s", Match(any_namespace=True), modes=Modes(breaker=mode), breaker=breaker)
    return CompiledPolicy(LoadedPolicy(Policy("podgate.io/v1alpha1", "Policy", (service,)), "")).plans["s"]


def test_status_of_an_open_breaker_has_its_state_and_end() -> None:
    view = BreakerView(
        State.OPEN,
        7,
        NOW_US,
        NOW_US + 180_000_000,
        "because",
        tripped_at_us=NOW_US - 5_000_000,
        tripped_by="it",
        early=2,
    )
    assert render_service_status(plan(), view) == {
        "breaker": {
            "state": "OPEN",
            "mode": "Enforce",
            "since": "2027-01-15T08:00:00.000Z",
            "reason": "because",
            "generation": 7,
            "trippedAt": "2027-01-15T07:59:55.000Z",
            "trippedBy": "it",
            "openUntil": "2027-01-15T08:03:00.000Z",
            "probes": {"needed": 2, "leased": 0, "succeeded": 0, "early": 2},
        }
    }


def test_status_of_an_untripped_breaker_omits_absent_fields() -> None:
    assert render_service_status(plan(Mode.AUDIT), BreakerView(State.CLOSED, 0, 0)) == {
        "breaker": {
            "state": "CLOSED",
            "mode": "Audit",
            "generation": 0,
            "probes": {"needed": 2, "leased": 0, "succeeded": 0, "early": 0},
        }
    }


def test_status_is_empty_without_a_breaker_in_force() -> None:
    for without in (plan(breaker=None), plan(Mode.DISABLED)):
        assert render_service_status(without, BreakerView(State.OPEN, 7, NOW_US)) == {}
