"""Schedules in a server: limits change at their moment, by the store's clock, and reviews compile nothing."""

import json
from typing import NoReturn

import pytest

from tests.core.reviewing import body, pod
from tests.harness.overrides import OverridesRecorder
from tests.harness.policy_checks import ImmediateCheck
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Half
from webhook.core.document.loading import load_again
from webhook.core.kubernetes.timestamps import parse_microseconds
from webhook.core.policy_fields.rollout import CanaryBy
from webhook.core.rollout.selection import Reach
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.policy_in_force import active_policy
from webhook.policy_in_force.active_overrides import ActiveOverrides
from webhook.policy_in_force.active_policy import ActivePolicy, Candidate
from webhook.policy_in_force.policy_receiver import PolicyReceiver

EVENING = parse_microseconds("2026-11-30T20:59:00Z")
NIGHT, MORNING = parse_microseconds("2026-11-30T21:00:00Z"), parse_microseconds("2026-12-01T05:00:00Z")
UNTIL = "2026-12-01T01:00:00Z"


def policy(factor: int = 3, hard: int = 5) -> bytes:
    times = 'from: "22:00", to: "06:00", timeZone: Europe/Berlin'
    return f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {{namespaces: [web]}}
  quota:
    windows: [{{window: 1h, hard: {{pods: {hard}}}}}]
    schedules: [{{name: night, {times}, factor: {factor}}}]
- name: plain
  match: {{namespaces: [plain]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 5}}}}]}}
""".encode()


class Replica:
    """A server whose own clock may be wrong; schedules go by the clock of the store."""

    def __init__(self, store_clock: VirtualClock, ahead_us: int = 0, store: MemoryStore | None = None) -> None:
        own = VirtualClock(store_clock.now_us() + ahead_us)
        self.wall = own
        self.overrides = ActiveOverrides(OverridesRecorder(), own, "here")
        self.active = ActivePolicy(self.overrides, own)
        self.active.read_time_us = store_clock.now_us
        self.overrides.prepare = self.active.prepare
        self.policies = PolicyReceiver(Observers(), own, ImmediateCheck(), active=self.active)
        store = store or MemoryStore(store_clock)
        self.interceptor = Interceptor(self.policies, store, FixedNamespaces(), Observers())

    def find_hard(self, service: str = "web") -> int:
        compiled = self.policies.get_current()
        assert compiled is not None
        return compiled.plans[service].windows[0].limits[0].hard

    async def create(self, name: str) -> str:
        """Validate a Pod; return the message of a denial, "" for none."""
        asked = body(namespace="web", object=pod(uid=name))
        answer = json.loads((await self.interceptor.review(Half.VALIDATE, asked)).body)
        return "" if answer["response"]["allowed"] else answer["response"]["status"]["message"]


def fail(*_: object) -> NoReturn:
    raise AssertionError("a review compiles")


async def test_limits_change_at_their_microsecond_and_reviews_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock(EVENING)
    replica = Replica(clock)
    await replica.policies.on_document(policy(), "p.yaml")
    plain = replica.policies.get_current().parts["plain"]  # type: ignore[union-attr]
    monkeypatch.setattr(active_policy, "compile_services", fail)
    for at_us, hard in ((NIGHT - 1, 5), (NIGHT, 15)):
        clock.set(at_us)
        assert replica.find_hard() == hard
    monkeypatch.undo()
    await replica.active.look_ahead()
    for at_us, hard in ((MORNING - 1, 15), (MORNING, 5)):
        clock.set(at_us)
        assert replica.find_hard() == hard
    assert replica.policies.get_current().parts["plain"] is plain  # type: ignore[union-attr]


async def test_replicas_agree_by_the_stores_clock_whatever_their_own_say() -> None:
    clock = VirtualClock(EVENING)
    store = MemoryStore(clock)
    replicas = [Replica(clock, ahead_us, store) for ahead_us in (-3_600_000_000, 0, 7_200_000_000)]
    for replica in replicas:
        await replica.policies.on_document(policy(), "p.yaml")
    for at_us, hard in ((NIGHT - 1, 5), (NIGHT, 15)):
        clock.set(at_us)
        assert [replica.find_hard() for replica in replicas] == [hard] * 3
    answers = [await replicas[number % 3].create(f"p{number}") for number in range(16)]
    assert [bool(answer) for answer in answers] == [False] * 15 + [True], "what all admit is the night's limit"


async def test_a_denial_names_the_schedule_and_promises_nothing_beyond_it() -> None:
    clock = VirtualClock(NIGHT)
    replica = Replica(clock)
    await replica.policies.on_document(policy(), "p.yaml")
    assert [await replica.create(f"p{number}") for number in range(15)] == [""] * 15
    early = await replica.create("early")
    assert "hard 15, used 15, asked 1 (schedule: night, x3, until 06:00 Europe/Berlin); could pass from" in early
    clock.set(MORNING - 600_000_000)
    assert [await replica.create(f"q{number}") for number in range(15)] == [""] * 15
    late = await replica.create("late")
    assert late.endswith("cannot pass before 2026-12-01T05:00:00.000Z, when the limits change: no schedule")
    clock.set(MORNING)
    await replica.active.look_ahead()
    day = await replica.create("day")
    assert "hard 5, used 15, asked 1 (schedule: none until Tue 22:00 Europe/Berlin, then night, x3);" in day


async def test_overrides_multiply_the_schedule_in_force() -> None:
    clock = VirtualClock(EVENING)
    replica = Replica(clock)
    await replica.policies.on_document(policy(), "p.yaml")
    entry = f"- {{service: web, quotaFactor: 2, until: {UNTIL}, reason: r}}"
    await replica.overrides.on_document(entry.encode(), "o.yaml")
    assert replica.find_hard() == 10
    clock.set(NIGHT)
    assert replica.find_hard() == 30
    replica.wall.set(parse_microseconds(UNTIL))
    assert replica.find_hard() == 15


async def test_a_clock_that_was_wrong_is_corrected() -> None:
    clock = VirtualClock(NIGHT)
    replica = Replica(clock)
    replica.active.read_time_us = lambda: EVENING
    await replica.policies.on_document(policy(), "p.yaml")
    assert replica.find_hard() == 5, "the store's clock is not known yet"
    replica.active.read_time_us = clock.now_us
    await replica.active.look_ahead()
    assert replica.find_hard() == 15


async def test_changes_that_came_while_nothing_was_prepared_are_found() -> None:
    clock = VirtualClock(EVENING)
    replica = Replica(clock)
    await replica.policies.on_document(policy(), "p.yaml")
    clock.set(MORNING + 1)  # the process was suspended for the night
    await replica.active.look_ahead()
    assert replica.find_hard() == 5


@pytest.mark.parametrize(("percent", "hard"), [(0, (5, 15)), (100, (10, 20))])
async def test_both_policies_of_a_canary_have_the_same_limits_at_any_time(percent: int, hard: tuple[int, int]) -> None:
    clock = VirtualClock(EVENING)
    replica = Replica(clock)
    stable, candidate = load_again(policy()), load_again(policy(factor=2, hard=10))
    reach = Reach(CanaryBy.SERVICE, percent=percent)
    await replica.active.swap(stable, Candidate(candidate, reach))
    for at_us, expected in ((EVENING, hard[0]), (NIGHT, hard[1])):
        clock.set(at_us)
        for policy_hash in (stable.hash, candidate.hash):
            found = replica.active.find_by_hash(policy_hash)
            assert found is not None
            assert found.plans["web"].windows[0].limits[0].hard == expected
    await replica.active.look_ahead()
    clock.set(MORNING)
    assert replica.find_hard() == hard[0]


async def test_a_shadow_has_its_own_schedules() -> None:
    clock = VirtualClock(EVENING)
    replica = Replica(clock)
    await replica.active.swap(load_again(policy()), Candidate(load_again(policy(factor=2))))
    clock.set(NIGHT)
    shadow = replica.active.get_shadow()
    assert shadow is not None
    assert (replica.find_hard(), shadow.plans["web"].windows[0].limits[0].hard) == (15, 10)


async def test_without_schedules_nothing_is_prepared() -> None:
    clock = VirtualClock(EVENING)
    replica = Replica(clock)
    await replica.policies.on_document(policy().replace(b"    schedules", b"    # schedules"), "p.yaml")
    before = replica.policies.get_current()
    clock.set(NIGHT)
    await replica.active.look_ahead()
    assert replica.policies.get_current() is before
