"""Limits that schedules put in force."""

import pytest
from msgspec.structs import replace

from tests.core.reviewing import policy_of
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.overrides import apply_overrides
from webhook.core.overrides.loading import load as load_overrides
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota import CounterPlan, DeniedBy, Holder, Receipt, Use
from webhook.core.quota.scheduled_limits import apply_schedules, find_next_change_us, limit_waits

NIGHT, DAY = (parse_microseconds(f"2026-11-30T{hour}:00:00Z") for hour in ("23", "12"))
WINDOWS = "windows: [{window: 1m, hard: {pods: 5, cpu: 2500m}}, {window: 24h, hard: {pods: 100}}]"


def load(effect: str, limits: str = f"{WINDOWS}, standing: {{hard: {{pods: 7}}}}") -> LoadedPolicy:
    times = 'from: "22:00", to: "06:00", timeZone: Europe/Berlin'
    quota = f"{limits}, schedules: [{{name: night, {times}, {effect}}}]"
    return policy_of(f"- {{name: web, match: {{namespaces: [web]}}, quota: {{{quota}}}}}")


def compute_plan(loaded: LoadedPolicy) -> CounterPlan:
    return CompiledPolicy(loaded).plans["web"]


def list_hard(loaded: LoadedPolicy) -> list[int]:
    return [limit.hard for _, _, limit in compute_plan(loaded).limits]


@pytest.mark.parametrize(
    ("effect", "hard"),
    [
        ("factor: 3", [15, 7500, 300, 21]),
        ("factor: 0.5", [2, 1250, 50, 3]),
        ("windows: [{window: 60s, hard: {requests.cpu: 1}}]", [5, 1000, 100, 7]),
        ("windows: [{window: 24h, hard: {pods: 3}}], standing: {hard: {pods: 0}}", [5, 2500, 3, 0]),
    ],
)
def test_limits_are_those_of_the_moment(effect: str, hard: list[int]) -> None:
    loaded = load(effect)
    assert list_hard(apply_schedules(loaded, NIGHT)) == hard
    assert list_hard(apply_schedules(loaded, DAY)) == list_hard(loaded) == [5, 2500, 100, 7]


@pytest.mark.parametrize(
    ("limits", "hard"),
    [("windows: [{window: 1m, hard: {pods: 5}}]", [9]), ("standing: {hard: {pods: 7}}", [9])],
)
def test_hard_replaces_the_only_limits(limits: str, hard: list[int]) -> None:
    assert list_hard(apply_schedules(load("hard: {pods: 9}", limits), NIGHT)) == hard


def test_an_override_multiplies_what_the_schedule_has_rounded_down() -> None:
    entries = load_overrides(
        b"- {service: web, quotaFactor: 3, grant: [{window: 1m, hard: {pods: 1}}],"
        b" until: 2026-12-01T04:00:00Z, reason: r}"
    ).list_live(NIGHT)
    loaded = load("factor: 0.5")
    assert list_hard(apply_overrides(apply_schedules(loaded, NIGHT), entries)) == [7, 3750, 150, 3]
    assert compute_plan(apply_overrides(apply_schedules(loaded, NIGHT), entries)).schedule is not None


def test_the_plan_knows_its_schedule_and_until_when_it_holds() -> None:
    loaded = load("factor: 3")
    timed = apply_schedules(loaded, NIGHT)
    state = compute_plan(timed).schedule
    assert state is not None
    assert str(state) == "night, x3, until 06:00 Europe/Berlin"
    assert find_next_change_us(timed.schedules, NIGHT) == parse_microseconds("2026-12-01T05:00:00Z")
    assert (timed.hash, timed.policy.services[0].quota) != (timed.hash, loaded.policy.services[0].quota)


def test_a_policy_without_schedules_stays_the_same_object() -> None:
    loaded = policy_of(f"- {{name: web, match: {{namespaces: [web]}}, quota: {{{WINDOWS}}}}}")
    assert apply_schedules(loaded, NIGHT) is loaded
    assert apply_schedules(load("factor: 3"), NIGHT, only=()).schedules == {}


def test_a_denial_promises_nothing_beyond_the_next_change() -> None:
    state = compute_plan(apply_schedules(load("factor: 3"), NIGHT)).schedule
    assert state is not None
    assert state.changes_at_us is not None
    soon, late = NIGHT + 1, state.changes_at_us + 1
    over = Use("1m", "pods", 15, 15, asked=1, free_at_us=soon)
    for free_at_us, expected in ((soon, soon), (late, state.changes_at_us), (None, state.changes_at_us)):
        found = limit_waits(
            Receipt(NIGHT, DeniedBy.QUOTA, over=(replace(over, free_at_us=free_at_us),), free_at_us=free_at_us), state
        )
        assert (found.free_at_us, found.over[0].free_at_us) == (expected, expected)
    pool = replace(over, of=Holder.POOL, free_at_us=None)
    assert limit_waits(Receipt(NIGHT, DeniedBy.QUOTA, over=(pool,), free_at_us=None), state).free_at_us is None
