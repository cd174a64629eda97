"""Active policy: the policy in force under the active overrides, compiled in advance.

It is compiled before the swap, a few services per turn of the event loop, so that reviews come in between; the swap is
an assignment. Overrides change a few services: only these are recompiled, and the others are shared. They are compiled
for the overrides now and for those after the next end of an entry, so that an end is an assignment too. No review
compiles anything: `get_current` and `find_by_hash` only select. Limits of schedules are prepared in the same way, for
now and for after their next change, by the store's clock, which all replicas share.

A candidate is compiled with the policy in force, and swapped in with it. For a canary both have the same counters. In
a shadow the candidate stays as it is, and judges only copies of reviews.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.core.compiled_policy import (
    CompiledException,
    CompiledPolicy,
    CompiledService,
    compile_services,
    compute_breakers_open_max,
    find_changed_services,
    replace_services,
)
from webhook.core.overrides import LiveOverrides, apply_overrides, select_lasting
from webhook.core.overrides.exceptions import compile_exceptions
from webhook.core.policy.history import PolicyHistory
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy.schedules import ScheduleState
from webhook.core.quota.scheduled_limits import apply_schedules, find_next_change_us, has_schedules
from webhook.core.rollout.canary import BasePolicy, pair
from webhook.core.rollout.composition import compose
from webhook.core.rollout.selection import Reach
from webhook.policy_in_force.policy_states import PolicyState, ScheduledStates
from webhook.ports import Clock, Overrides
from webhook.support.process_memory import defer_collection

SERVICES_PER_TURN_MAX = 20
"""Services compiled per turn of the event loop. More would delay reviews."""

_CHECK_US = 1_000_000


class Candidate(NamedTuple):
    """A policy beside the one in force: judging what `reach` says, or without it as a shadow."""

    loaded: LoadedPolicy
    reach: Reach | None = None


class _Beside(NamedTuple):
    """The candidate of a prepared policy, and the function that puts both together."""

    canary: "_PreparedPolicy"
    pair: Callable[[CompiledPolicy, CompiledPolicy], BasePolicy]


class _PreparedPolicy:
    """A policy without overrides, and under each prepared state of the overrides. `loaded`: as its document says."""

    def __init__(self, loaded: LoadedPolicy, base: CompiledPolicy, beside: _Beside | None = None) -> None:
        self.loaded = loaded
        self.base = base
        self.hash = base.hash
        self.beside = beside
        self.has_schedules: bool = has_schedules(loaded) or (beside is not None and beside.canary.has_schedules)
        self.under: dict[LiveOverrides, PolicyState | ScheduledStates] = {}

    @property
    def is_as_written(self) -> bool:
        """Return whether its counters are those of its document: it is no part of a canary."""
        return self.base.loaded is self.loaded and self.beside is None


class ActivePolicy:
    """The policy in force and recent ones, each under the prepared states of the overrides."""

    def __init__(self, overrides: Overrides, clock: Clock) -> None:
        self._overrides = overrides
        self._clock = clock
        self.read_time_us: Callable[[], int] = clock.now_us
        """Returns the time by which schedules change: with a shared store its own, so that replicas agree."""
        self._history: PolicyHistory[_PreparedPolicy] = PolicyHistory()
        self._shadow: _PreparedPolicy | None = None
        # Policies and overrides are prepared one after the other, so that each preparation covers the result of the one
        # before it. A caller swaps what it has prepared before it awaits again, so the next one cannot begin earlier.
        self._preparing = asyncio.Lock()

    @property
    def since_us(self) -> int:
        """Time at which the policy was swapped in; 0 without one."""
        return self._history.since_us

    def get_loaded(self) -> LoadedPolicy | None:
        """Return the policy in force without overrides, as its document says."""
        return None if self._history.current is None else self._history.current.loaded

    def get_current(self) -> CompiledPolicy | None:
        """Return the policy in force under the active overrides."""
        policy = self._history.current
        return None if policy is None else policy.under[self._overrides.get_current()].compiled

    def get_shadow(self) -> CompiledPolicy | None:
        """Return the candidate that judges copies of reviews, under the active overrides; None without one."""
        return None if self._shadow is None else self._shadow.under[self._overrides.get_current()].compiled

    def find_by_hash(self, policy_hash: str) -> CompiledPolicy | None:
        """Return a policy of the last 60 s, or the candidate of a canary, under the active overrides."""
        current = self.get_current()
        if current is not None and (chosen := current.choose_by_hash(policy_hash)).hash == policy_hash:
            return chosen
        policy = self._history.find_by_hash(policy_hash, self._clock.now_us())
        return None if policy is None else policy.under[self._overrides.get_current()].compiled

    async def swap(self, loaded: LoadedPolicy, candidate: Candidate | None = None) -> None:
        """Compile a policy, in parts, and put it into force, with its candidate."""
        async with self._preparing:
            shadow = canary = None
            with defer_collection():
                if candidate is None or candidate.reach is None:
                    policy = await self._compile(loaded)
                    shadow = None if candidate is None else await self._compile(candidate.loaded)
                else:
                    beside = candidate.loaded, candidate.reach
                    policy, canary = await _compile_canary(loaded, *beside, self._find_former())
                for prepared in (policy, shadow):
                    if prepared is not None:
                        await self._prepare(prepared, self._overrides.list_prepared())
                        await self._prepare_schedules(prepared)
            await asyncio.sleep(0)  # observers are called in the turn of the swap
            self._history.take(policy, self._clock.now_us(), canary)
            self._shadow = shadow

    async def _compile(self, loaded: LoadedPolicy) -> _PreparedPolicy:
        """Return a policy as its document says, compiled again only if it was not in use lately."""
        known = (self._history.find_by_hash(loaded.hash, self._clock.now_us()), self._shadow)
        for policy in known:
            if policy is not None and policy.hash == loaded.hash and policy.is_as_written:
                return policy
        compiled = await _compile_policy(loaded, self._find_former())
        await asyncio.sleep(0)
        return _PreparedPolicy(loaded, compiled)

    def _find_former(self) -> CompiledPolicy | None:
        """Return the policy in force, some of whose services may be compiled for the next one, too."""
        return None if self._history.current is None else self._history.current.base

    async def prepare(self, coming: Sequence[LiveOverrides]) -> None:
        """Compile the policies in use, in parts, for states of the overrides that are not active yet."""
        async with self._preparing:
            for policy in self._list_kept():
                await self._prepare(policy, (*self._overrides.list_prepared(), *coming))
                await self._prepare_schedules(policy)
                await asyncio.sleep(0)

    async def run(self) -> None:
        """Prepare the limits after the next change of a schedule, until cancelled."""
        while True:
            await self.look_ahead()
            ends = [state.until_us for policy in self._list_kept() for state in _list_scheduled(policy)]
            rest_us = min((end - self.read_time_us() for end in ends if end is not None), default=_CHECK_US)
            await asyncio.sleep(min(_CHECK_US, max(0, rest_us)) / 1e6)

    async def look_ahead(self) -> None:
        """Prepare what schedules put in force next, and correct what a wrong clock has put in force."""
        async with self._preparing:
            for policy in self._list_kept():
                await self._prepare_schedules(policy)

    def _list_kept(self) -> tuple[_PreparedPolicy, ...]:
        kept = self._history.list_kept(self._clock.now_us())
        return kept if self._shadow is None else (*kept, self._shadow)

    async def _prepare(self, policy: _PreparedPolicy, states: Iterable[LiveOverrides]) -> None:
        """Compile a policy for each of the states that it is not compiled for, and forget all other states."""
        wanted = dict.fromkeys(states)
        if policy.beside is not None:
            await self._prepare(policy.beside.canary, wanted)
        policy.under = {live: found for live, found in policy.under.items() if live in wanted}
        for live in wanted:
            if live not in policy.under:
                found = await _compile_overridden(policy, live, self.read_time_us())
                policy.under[live] = ScheduledStates(found, self.read_time_us) if policy.has_schedules else found

    async def _prepare_schedules(self, policy: _PreparedPolicy) -> None:
        if policy.beside is not None:
            await self._prepare_schedules(policy.beside.canary)
        for live, found in tuple(policy.under.items()):
            if not isinstance(found, ScheduledStates):
                continue
            now_us, _ = self.read_time_us(), found.compiled
            if not found.current.holds_at(now_us):
                found.current, found.coming = await _compile_overridden(policy, live, now_us), None
            until_us = found.current.until_us
            if until_us is not None and (found.coming is None or found.coming.at_us != until_us):
                coming = await _compile_overridden(policy, live, until_us)
                if found.current.until_us == until_us:  # otherwise a change has come meanwhile
                    found.coming = coming


async def _compile_canary(
    loaded: LoadedPolicy, candidate: LoadedPolicy, reach: Reach, former: CompiledPolicy | None
) -> tuple[_PreparedPolicy, _PreparedPolicy]:
    """Return the policy in force and its candidate, with the same counters."""
    # In a thread: a long policy would delay reviews.
    composed = await asyncio.to_thread(compose, loaded, candidate, reach)
    put_together = await asyncio.to_thread(pair, loaded.policy, candidate.policy, reach)
    base = await _compile_policy(composed.base, former)
    canary = await _compile_policy(composed.canary, base)
    prepared = _PreparedPolicy(candidate, canary)
    return _PreparedPolicy(loaded, base, _Beside(prepared, put_together)), prepared


async def _compile_policy(loaded: LoadedPolicy, former: CompiledPolicy | None) -> CompiledPolicy:
    await _compile_rules(loaded)
    parts = await _compile_in_parts(compile_services(loaded, former=former))
    await asyncio.sleep(0)  # what follows grows with the number of services, too
    return CompiledPolicy(loaded, parts)


async def _compile_rules(loaded: LoadedPolicy) -> None:
    """Compile the rules in CEL beside the event loop, one service after the other: they stay with their services.

    The first rules of a process import the library, which takes longer than a review may wait.
    """
    for service in loaded.policy.services:
        if service.rules:
            await asyncio.to_thread(getattr, service, "rule_plan")


async def _compile_overridden(policy: _PreparedPolicy, live: LiveOverrides, at_us: int) -> PolicyState:
    """Return a policy under overrides, with the limits that its schedules put in force at a moment."""
    base, timed = policy.base, policy.base.loaded
    if policy.has_schedules:
        # In a thread: a long policy would delay reviews.
        timed = await asyncio.to_thread(apply_schedules, base.loaded, at_us)
    loaded = apply_overrides(timed, live.entries)
    open_max = compute_breakers_open_max(loaded.policy)
    known = _find_compiled(policy, live, open_max, loaded.schedules)
    missing = find_changed_services(base, loaded, {*select_lasting(live.entries), *loaded.schedules}).difference(known)
    changed = {**known, **await _compile_in_parts(compile_services(loaded, missing))}
    compiled = replace_services(base, loaded, changed)
    exceptions = await _compile_exceptions(policy, live, open_max, compiled, timed)
    compiled = compiled.with_exceptions([found for own in exceptions.values() for found in own])
    until_us = find_next_change_us(loaded.schedules, at_us)
    if policy.beside is not None:
        canary = await _compile_overridden(policy.beside.canary, live, at_us)
        compiled = policy.beside.pair(compiled, canary.compiled)
        until_us = min((end for end in (until_us, canary.until_us) if end is not None), default=None)
    return PolicyState(open_max, changed, exceptions, compiled, at_us, until_us)


async def _compile_exceptions(
    policy: _PreparedPolicy, live: LiveOverrides, open_max: int | None, compiled: CompiledPolicy, timed: LoadedPolicy
) -> dict[str, list[CompiledException]]:
    """Return the exceptions by service, as far as possible those that are compiled already for another state."""
    found: dict[str, list[CompiledException]] = {}
    schedules = compiled.loaded.schedules
    for other, states in policy.under.items():
        for state in states.states if live.entries else ():
            for name, own in state.exceptions.items():
                is_same = state.open_max == open_max and other.entries.get(name) == live.entries.get(name)
                if is_same and all(each.part.plan.schedule == schedules.get(name) for each in own):
                    found[name] = list(own)
    missing = {name: own for name, own in live.entries.items() if name not in found}
    services = {service.name: service for service in timed.policy.services if service.name in missing}
    for count, exception in enumerate(compile_exceptions(services, compiled, missing), 1):
        found.setdefault(exception.part.service.name, []).append(exception)
        if count % SERVICES_PER_TURN_MAX == 0:
            await asyncio.sleep(0)
    return found


def _find_compiled(
    policy: _PreparedPolicy, live: LiveOverrides, open_max: int | None, schedules: Mapping[str, ScheduleState]
) -> dict[str, CompiledService]:
    """Return the changed services that are compiled already for another state, where they are the same."""
    return {
        name: service
        for other, found in policy.under.items()
        for state in found.states
        if state.open_max == open_max
        for name, service in state.changed.items()
        if other.entries.get(name) == live.entries.get(name) and service.plan.schedule == schedules.get(name)
    }


def _list_scheduled(policy: _PreparedPolicy) -> Iterator[PolicyState]:
    return (found.current for found in policy.under.values() if isinstance(found, ScheduledStates))


async def _compile_in_parts(compile_services: Iterator[CompiledService]) -> dict[str, CompiledService]:
    found: dict[str, CompiledService] = {}
    for compiled in compile_services:
        found[compiled.service.name] = compiled
        if len(found) % SERVICES_PER_TURN_MAX == 0:
            await asyncio.sleep(0)
    return found
