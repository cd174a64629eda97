"""Effects of live overrides on a policy: windows scaled and granted, modes replaced, nothing else changed."""

import pytest
from msgspec.structs import replace

from webhook.core.breaker import Forcing, State
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose
from webhook.core.document import load as load_policy
from webhook.core.overrides import Override, apply_overrides, list_breaker_resets, list_remarks, list_window_resets
from webhook.core.overrides.loading import load
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_fields import Mode
from webhook.core.quota import EXACT_AMOUNT_MAX, CounterPlan

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
    return load(text.encode()).list_live(0)


def plan(loaded: LoadedPolicy, service: str = "payment-api") -> CounterPlan:
    return CompiledPolicy(loaded).plans[service]


def hard(loaded: LoadedPolicy, service: str = "payment-api") -> dict[tuple[str, str], int]:
    return {
        (window.name, limit.resource): limit.hard for window in plan(loaded, service).windows for limit in window.limits
    }


def build_overridden_policy(*bodies: str) -> LoadedPolicy:
    return apply_overrides(POLICY, entries(*bodies))


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
def test_quota_factor_scales_each_window_limit_and_rounds_down(
    factor: str, pods: int, cpu: int, memory: int, gpus: int
) -> None:
    found = build_overridden_policy(f"service: payment-api, quotaFactor: {factor}")
    assert hard(found) == {
        ("1m", "pods"): pods,
        ("1m", "cpu"): cpu,
        ("1m", "memory"): memory,
        ("24h", "requests.nvidia.com/gpu"): gpus,
    }


def test_grant_adds_to_one_window_under_any_spelling_of_window_and_resource() -> None:
    found = build_overridden_policy("service: payment-api, grant: [{window: 60s, hard: {pods: 100, requests.cpu: 1}}]")
    assert hard(found) == {**hard(POLICY), ("1m", "pods"): 105, ("1m", "cpu"): 1500}


def test_grant_is_added_after_the_quota_factor() -> None:
    found = build_overridden_policy("service: payment-api, quotaFactor: 2, grant: [{window: 1m, hard: {pods: 100}}]")
    assert hard(found)["1m", "pods"] == 110


def test_grant_adds_no_limit_to_an_unlimited_resource() -> None:
    found = build_overridden_policy("service: web, grant: [{window: 1m, hard: {pods: 1, memory: 1Gi}}]")
    assert hard(found, "web") == {("1m", "pods"): 6}


def test_limit_above_the_largest_exact_integer_is_clamped() -> None:
    found = build_overridden_policy(
        "service: web, quotaFactor: 1000, grant: [{window: 1m, hard: {pods: 9007199254740000}}]"
    )
    assert hard(found, "web") == {("1m", "pods"): EXACT_AMOUNT_MAX}


def test_override_replaces_named_modes_only() -> None:
    found = build_overridden_policy("service: payment-api, modes: {quota: Audit, breaker: Disabled}")
    modes = CompiledPolicy(found).services["payment-api"].modes
    assert (modes.placement, modes.resources) == (Mode.WARN, Mode.ENFORCE)
    assert (modes.quota, modes.breaker) == (Mode.AUDIT, Mode.DISABLED)
    assert plan(found).quota_mode is Mode.AUDIT


def test_override_changes_no_pool_no_other_service_and_no_hash() -> None:
    found = build_overridden_policy("service: payment-api, quotaFactor: 3, modes: {quota: Warn}")
    assert found.hash == POLICY.hash
    assert replace(found.policy, services=()) == replace(POLICY.policy, services=())
    assert plan(found).pool == plan(POLICY).pool
    assert [one is other for one, other in zip(found.policy.services, POLICY.policy.services, strict=True)] == [
        False,
        True,
        True,
        True,
    ]


def test_override_keeps_the_counters_of_its_service() -> None:
    before, after = plan(POLICY), plan(build_overridden_policy("service: payment-api, quotaFactor: 3"))
    assert before.key == after.key
    assert [window.seconds for window in before.windows] == [window.seconds for window in after.windows]


def test_override_of_an_unknown_service_changes_nothing() -> None:
    assert build_overridden_policy("service: gone, quotaFactor: 3") is POLICY
    assert apply_overrides(POLICY, {}) is POLICY


@pytest.mark.parametrize(
    ("body", "expected"),
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
def test_override_without_effect_is_reported_and_is_no_error(body: str, expected: list[str]) -> None:
    [[entry]] = entries(body).values()
    assert list(list_remarks(POLICY.policy, entry)) == expected


def test_quota_resets_are_due_from_their_timestamp() -> None:
    live_entries = entries(
        "service: a, quotaReset: {at: 2026-12-01T03:00:00Z}",
        "service: b, quotaReset: {at: 2026-12-01T03:00:01Z, window: 90s}",
        "service: c, quotaFactor: 2",
    ).values()
    found = [entry for [entry] in live_entries]
    assert list_window_resets(found, AT_US - 1) == ()
    assert list_window_resets(found, AT_US) == (("a", AT_US, None),)
    assert list_window_resets(found, AT_US + 1_000_000) == (("a", AT_US, None), ("b", AT_US + 1_000_000, 90))
    assert list_breaker_resets(found, AT_US + 1_000_000) == {}


def test_breaker_resets_are_due_from_their_timestamp() -> None:
    live_entries = entries(
        "service: a, resetAt: 2026-12-01T03:00:00Z, breaker: Automatic",
        "service: b, resetAt: 2026-12-01T03:00:01Z",
        "service: c, breaker: ForcedOpen",
    ).values()
    found = [entry for [entry] in live_entries]
    assert list_breaker_resets(found, AT_US - 1) == {}
    assert list_breaker_resets(found, AT_US) == {"a": AT_US}
    assert list_breaker_resets(found, AT_US + 1_000_000) == {"a": AT_US, "b": AT_US + 1_000_000}
    assert list_window_resets(found, END_US) == ()


@pytest.mark.parametrize(
    ("manual_state", "state"),
    [("ForcedOpen", State.FORCED_OPEN), ("ForcedClosed", State.FORCED_CLOSED), ("Automatic", None)],
)
def test_manual_breaker_state_is_in_the_plan_of_its_service_until_the_entry_ends(
    manual_state: str, state: State | None
) -> None:
    found = build_overridden_policy(f"service: tripping, breaker: {manual_state}", "service: web, quotaFactor: 2")
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
def test_forced_open_breaker_is_enforced_unless_its_entry_sets_a_mode(body: str, mode: Mode) -> None:
    assert plan(build_overridden_policy(f"service: tripping, {body}"), "tripping").breaker_mode is mode


def test_disabled_breaker_can_be_forced_open() -> None:
    [*others, tripping] = POLICY.policy.services
    disabled = replace(tripping, modes=replace(tripping.modes, breaker=Mode.DISABLED))
    policy = LoadedPolicy(replace(POLICY.policy, services=(*others, disabled)), POLICY.hash)
    found = plan(apply_overrides(policy, entries("service: tripping, breaker: ForcedOpen")), "tripping")
    assert found.breaker is not None
    assert (found.breaker_mode, found.breaker.forcing) == (Mode.ENFORCE, Forcing(State.FORCED_OPEN, END_US, "INC-1"))
    [[forced_closed]] = entries("service: tripping, breaker: ForcedClosed").values()
    assert list_remarks(policy.policy, forced_closed) == ("breaker: modes.breaker is Disabled",)


def test_entries_of_one_service_combine_and_a_forcing_keeps_its_end_and_reason() -> None:
    text = """\
- {service: tripping, quotaFactor: 2, until: 2026-12-01T03:10:00Z, reason: INC-2}
- {service: tripping, breaker: ForcedClosed, until: 2026-12-01T04:00:00Z, reason: INC-1}
- {service: tripping, grant: [{window: 1m, hard: {pods: 1}}], until: 2026-12-01T03:30:00Z, reason: INC-3}
"""
    found = apply_overrides(POLICY, load(text.encode()).list_live(0))
    assert hard(found, "tripping") == {("1m", "pods"): 11}
    breaker = plan(found, "tripping").breaker
    assert breaker is not None
    assert breaker.forcing == Forcing(State.FORCED_CLOSED, END_US, "INC-1")


IN_PAYMENTS = "workload: {namespace: payments, kind: Deployment, name: web}"


def test_an_exception_leaves_the_service_as_it_is() -> None:
    found = entries(f"service: payment-api, {IN_PAYMENTS}, quotaFactor: 3, modes: {{quota: Audit}}")
    assert apply_overrides(POLICY, found) is POLICY


@pytest.mark.parametrize(
    ("body", "remarks"),
    [
        (f"service: payment-api, {IN_PAYMENTS}, quotaFactor: 3", ()),
        (
            "service: web, pods: {namespace: shop, selector: {matchLabels: {a: b}}}, modes: {breaker: Audit}",
            ("the service has no Pods in namespace shop", "modes.breaker: the service has no breaker"),
        ),
        (f"service: jobs, {IN_PAYMENTS}, quotaFactor: 3", ("workload.kind: the service has no Pods of a Deployment",)),
        (f"service: jobs, {IN_PAYMENTS.replace('Deployment', 'CronJob')}, quotaFactor: 3", ()),
    ],
)
def test_an_exception_without_effect_is_remarked(body: str, remarks: tuple[str, ...]) -> None:
    jobs = load_policy(
        b"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n- name: jobs\n"
        b"  match: {anyNamespace: true, ownerKinds: [Job]}\n  quota: {windows: [{window: 1m, hard: {pods: 5}}]}\n",
        Purpose.LINT,
    ).policy
    [[entry]] = entries(body).values()
    both = replace(POLICY.policy, services=(*POLICY.policy.services, *jobs.policy.services))
    assert list_remarks(both, entry) == remarks
