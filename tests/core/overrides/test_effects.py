"""Effects of live overrides on a policy: windows scaled and granted, modes replaced, nothing else changed."""

import pytest
from msgspec.structs import replace

from webhook.core.breaker import Forcing, State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose
from webhook.core.document import load as load_policy
from webhook.core.overrides import Override, breaker_resets, overridden, remarks, resets
from webhook.core.overrides_document import load
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_spec import Mode
from webhook.core.quota import LARGEST_EXACT, CounterPlan

POLICY = load_policy(
    b"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools: [{name: prod, windows: [{window: 1m, hard: {pods: 300}}]}]
services:
- name: payment-api
  match: {namespaces: [payments]}
  pool: prod
  modes: {placement: Warn, quota: Enforce}
  placement: {schedulerName: mine}
  quota:
    windows:
    - {window: 1m, hard: {pods: 5, cpu: 500m, memory: 1Gi}}
    - {window: 24h, hard: {requests.nvidia.com/gpu: 3}}
- name: web
  match: {namespaces: [web]}
  quota: {windows: [{window: 1m, hard: {pods: 5}}]}
- name: free
  match: {namespaces: [free]}
- name: tripping
  match: {namespaces: [tripping]}
  modes: {breaker: Warn, quota: Enforce}
  quota: {windows: [{window: 1m, hard: {pods: 5}}]}
  breaker: {quotaExceeded: {}}
""",
    Purpose.LINT,
).policy
GI = 1 << 30
AT_US = 1_796_094_000_000_000
END_US = AT_US + 3_600_000_000


def entries(*bodies: str) -> dict[str, tuple[Override, ...]]:
    text = "".join(f"- {{{body}, until: 2026-12-01T04:00:00Z, reason: INC-1}}\n" for body in bodies)
    return load(text.encode()).live(0)


def plan(loaded: LoadedPolicy, service: str = "payment-api") -> CounterPlan:
    return CompiledPolicy(loaded).plans[service]


def hard(loaded: LoadedPolicy, service: str = "payment-api") -> dict[tuple[str, str], int]:
    return {
        (window.name, limit.resource): limit.hard for window in plan(loaded, service).windows for limit in window.limits
    }


def under(*bodies: str) -> LoadedPolicy:
    return overridden(POLICY, entries(*bodies))


@pytest.mark.parametrize(
    ("factor", "pods", "cpu", "memory", "gpus"),
    [
        ("3", 15, 1500, 3 * GI, 9),
        ("1.5", 7, 750, GI * 3 // 2, 4),
        ("0.1", 0, 50, GI // 10, 0),
        ("0.333333333", 1, 166, 357_913_940, 0),
        ("1", 5, 500, GI, 3),
    ],
)
def test_a_factor_scales_each_own_limit_exactly_and_rounds_down(
    factor: str, pods: int, cpu: int, memory: int, gpus: int
) -> None:
    found = under(f"service: payment-api, quotaFactor: {factor}")
    assert hard(found) == {
        ("1m", "pods"): pods,
        ("1m", "cpu"): cpu,
        ("1m", "memory"): memory,
        ("24h", "requests.nvidia.com/gpu"): gpus,
    }


def test_a_grant_adds_to_one_window_whatever_its_limits_are_called_and_written() -> None:
    found = under("service: payment-api, grant: [{window: 60s, hard: {pods: 100, requests.cpu: 1}}]")
    assert hard(found) == {**hard(POLICY), ("1m", "pods"): 105, ("1m", "cpu"): 1500}


def test_a_grant_comes_on_top_of_the_factor() -> None:
    found = under("service: payment-api, quotaFactor: 2, grant: [{window: 1m, hard: {pods: 100}}]")
    assert hard(found)["1m", "pods"] == 110


def test_a_grant_never_limits_what_had_no_limit() -> None:
    found = under("service: web, grant: [{window: 1m, hard: {pods: 1, memory: 1Gi}}]")
    assert hard(found, "web") == {("1m", "pods"): 6}


def test_a_limit_beyond_what_counters_can_hold_is_clamped() -> None:
    found = under("service: web, quotaFactor: 1000, grant: [{window: 1m, hard: {pods: 9007199254740000}}]")
    assert hard(found, "web") == {("1m", "pods"): LARGEST_EXACT}


def test_modes_that_are_named_hold_and_the_others_stay() -> None:
    found = under("service: payment-api, modes: {quota: Audit, breaker: Disabled}")
    modes = CompiledPolicy(found).services["payment-api"].modes
    assert (modes.placement, modes.resources) == (Mode.WARN, Mode.ENFORCE)
    assert (modes.quota, modes.breaker) == (Mode.AUDIT, Mode.DISABLED)
    assert plan(found).quota_mode is Mode.AUDIT


def test_pools_other_services_and_the_hash_stay_as_they_are() -> None:
    found = under("service: payment-api, quotaFactor: 3, modes: {quota: Warn}")
    assert found.hash == POLICY.hash
    assert replace(found.policy, services=()) == replace(POLICY.policy, services=())
    assert plan(found).pool == plan(POLICY).pool
    assert [one is other for one, other in zip(found.policy.services, POLICY.policy.services, strict=True)] == [
        False,
        True,
        True,
        True,
    ]


def test_counters_go_on_where_they_were() -> None:
    before, after = plan(POLICY), plan(under("service: payment-api, quotaFactor: 3"))
    assert before.key == after.key
    assert [window.seconds for window in before.windows] == [window.seconds for window in after.windows]


def test_entries_for_nobody_change_nothing() -> None:
    assert under("service: gone, quotaFactor: 3") is POLICY
    assert overridden(POLICY, {}) is POLICY


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("service: gone, quotaFactor: 3", ["no such service in the policy in force"]),
        ("service: free, quotaFactor: 3", ["quotaFactor: the service has no windows of its own"]),
        (
            "service: free, modes: {quota: Audit, placement: Audit}",
            ["modes.placement: the service has no placement", "modes.quota: the service has no quota"],
        ),
        (
            "service: payment-api, grant: [{window: 2m, hard: {pods: 1}}, {window: 24h, hard: {pods: 1}}]",
            ["grant: the service has no window 2m, it has 1m, 24h", "grant: the window 24h does not limit pods"],
        ),
        (
            "service: web, quotaReset: {at: 2026-12-01T03:00:00Z, window: 2m}",
            ["quotaReset: the service has no window 2m, it has 1m"],
        ),
        (
            "service: free, quotaReset: {at: 2026-12-01T03:00:00Z}",
            ["quotaReset: the service has no windows of its own"],
        ),
        ("service: payment-api, quotaFactor: 2, modes: {quota: Audit}, grant: [{window: 1m, hard: {cpu: 1}}]", []),
        (
            "service: web, breaker: ForcedOpen, resetAt: 2026-12-01T03:00:00Z",
            ["breaker: the service has no breaker", "resetAt: the service has no breaker"],
        ),
        ("service: tripping, breaker: Automatic, resetAt: 2026-12-01T03:00:00Z", []),
        (
            "service: tripping, breaker: ForcedOpen, modes: {breaker: Disabled}",
            ["breaker: modes.breaker is Disabled"],
        ),
    ],
)
def test_what_has_no_effect_under_the_policy_is_said_and_is_no_error(body: str, said: list[str]) -> None:
    [[entry]] = entries(body).values()
    assert list(remarks(POLICY.policy, entry)) == said


def test_resets_are_reported_by_their_moment_and_not_before_it() -> None:
    lived = entries(
        "service: a, quotaReset: {at: 2026-12-01T03:00:00Z}",
        "service: b, quotaReset: {at: 2026-12-01T03:00:01Z, window: 90s}",
        "service: c, quotaFactor: 2",
    ).values()
    found = [entry for [entry] in lived]
    assert resets(found, AT_US - 1) == ()
    assert resets(found, AT_US) == (("a", AT_US, None),)
    assert resets(found, AT_US + 1_000_000) == (("a", AT_US, None), ("b", AT_US + 1_000_000, 90))
    assert breaker_resets(found, AT_US + 1_000_000) == {}


def test_breakers_are_reset_by_the_moment_too() -> None:
    lived = entries(
        "service: a, resetAt: 2026-12-01T03:00:00Z, breaker: Automatic",
        "service: b, resetAt: 2026-12-01T03:00:01Z",
        "service: c, breaker: ForcedOpen",
    ).values()
    found = [entry for [entry] in lived]
    assert breaker_resets(found, AT_US - 1) == {}
    assert breaker_resets(found, AT_US) == {"a": AT_US}
    assert breaker_resets(found, AT_US + 1_000_000) == {"a": AT_US, "b": AT_US + 1_000_000}
    assert resets(found, END_US) == ()


@pytest.mark.parametrize(
    ("word", "state"), [("ForcedOpen", State.FORCED_OPEN), ("ForcedClosed", State.FORCED_CLOSED), ("Automatic", None)]
)
def test_a_hand_on_a_breaker_reaches_its_plan_until_the_entrys_end_and_no_other(word: str, state: State | None) -> None:
    found = under(f"service: tripping, breaker: {word}", "service: web, quotaFactor: 2")
    forcing = None if state is None else Forcing(state, END_US, "INC-1")
    breaker = plan(found, "tripping").breaker
    assert breaker is not None
    assert breaker.forcing == forcing
    assert breaker == replace(plan(POLICY, "tripping").breaker, forcing=forcing)
    assert plan(found, "web").breaker is None


@pytest.mark.parametrize(
    ("body", "mode"),
    [
        ("breaker: ForcedOpen", Mode.ENFORCE),
        ("breaker: ForcedOpen, modes: {quota: Audit}", Mode.ENFORCE),
        ("breaker: ForcedOpen, modes: {breaker: Audit}", Mode.AUDIT),
        ("breaker: ForcedClosed", Mode.WARN),
        ("breaker: Automatic", Mode.WARN),
    ],
)
def test_who_opens_a_breaker_means_it_unless_the_same_entry_says_another_mode(body: str, mode: Mode) -> None:
    assert plan(under(f"service: tripping, {body}"), "tripping").breaker_mode is mode


def test_a_breaker_that_the_policy_disables_can_be_opened_manually() -> None:
    [*others, tripping] = POLICY.policy.services
    disabled = replace(tripping, modes=replace(tripping.modes, breaker=Mode.DISABLED))
    policy = LoadedPolicy(replace(POLICY.policy, services=(*others, disabled)), POLICY.hash)
    found = plan(overridden(policy, entries("service: tripping, breaker: ForcedOpen")), "tripping")
    assert found.breaker is not None
    assert (found.breaker_mode, found.breaker.forcing) == (Mode.ENFORCE, Forcing(State.FORCED_OPEN, END_US, "INC-1"))
    [[closes]] = entries("service: tripping, breaker: ForcedClosed").values()
    assert remarks(policy.policy, closes) == ("breaker: modes.breaker is Disabled",)


def test_several_entries_for_one_service_act_together_and_a_forced_state_has_its_own_end_and_reason() -> None:
    text = """\
- {service: tripping, quotaFactor: 2, until: 2026-12-01T03:10:00Z, reason: INC-2}
- {service: tripping, breaker: ForcedClosed, until: 2026-12-01T04:00:00Z, reason: INC-1}
- {service: tripping, grant: [{window: 1m, hard: {pods: 1}}], until: 2026-12-01T03:30:00Z, reason: INC-3}
"""
    found = overridden(POLICY, load(text.encode()).live(0))
    assert hard(found, "tripping") == {("1m", "pods"): 11}
    breaker = plan(found, "tripping").breaker
    assert breaker is not None
    assert breaker.forcing == Forcing(State.FORCED_CLOSED, END_US, "INC-1")
