"""Active policy: the policy in force under the active overrides, compiled in advance.

It is compiled before the swap, a few services per turn of the event loop, so that reviews come in between; the swap is
an assignment. Overrides change a few services: only these are recompiled, and the others are shared. They are compiled
for the overrides now and for those after the next end of an entry, so that an end is an assignment too. No review
compiles anything: `get_current` and `find_by_hash` only select.

A candidate is compiled with the policy in force, and swapped in with it. For a canary both have the same counters. In
a shadow the candidate stays as it is, and judges only copies of reviews.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from webhook.core.compiled_policy import (
    CompiledPolicy,
    CompiledService,
    compile_services,
    compute_breakers_open_max,
    find_changed_services,
    replace_services,
)
from webhook.core.overrides import LiveOverrides, apply_overrides
from webhook.core.policy.history import PolicyHistory
from webhook.core.policy.model import LoadedPolicy
from webhook.core.rollout.canary import BasePolicy, pair
from webhook.core.rollout.composition import compose
from webhook.core.rollout.selection import Reach
from webhook.ports import Clock, Overrides
from webhook.support.process_memory import defer_collection

SERVICES_PER_TURN_MAX = 20
"""Services compiled per turn of the event loop. More would delay reviews."""


class _Overridden(NamedTuple):
    """A policy under overrides; `open_max`: breakerGuard's limit; `changed`: the services that they change."""

    open_max: int | None
    changed: Mapping[str, CompiledService]
    compiled: CompiledPolicy


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
        self.under: dict[LiveOverrides, _Overridden] = {}

    @property
    def is_as_written(self) -> bool:
        """Return whether its counters are those of its document: it is no part of a canary."""
        return self.base.loaded is self.loaded and self.beside is None


class ActivePolicy:
    """The policy in force and recent ones, each under the prepared states of the overrides."""

    def __init__(self, overrides: Overrides, clock: Clock) -> None:
        self._overrides = overrides
        self._clock = clock
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
                    policy, canary = await _compile_canary(loaded, candidate.loaded, candidate.reach)
                for prepared in (policy, shadow):
                    if prepared is not None:
                        await _prepare(prepared, self._overrides.list_prepared())
            self._history.take(policy, self._clock.now_us(), canary)
            self._shadow = shadow

    async def _compile(self, loaded: LoadedPolicy) -> _PreparedPolicy:
        """Return a policy as its document says, compiled again only if it was not in use lately."""
        known = (self._history.find_by_hash(loaded.hash, self._clock.now_us()), self._shadow)
        for policy in known:
            if policy is not None and policy.hash == loaded.hash and policy.is_as_written:
                return policy
        return _PreparedPolicy(loaded, await _compile_policy(loaded))

    async def prepare(self, coming: Sequence[LiveOverrides]) -> None:
        """Compile the policies in use, in parts, for states of the overrides that are not active yet."""
        async with self._preparing:
            kept = self._history.list_kept(self._clock.now_us())
            for policy in kept if self._shadow is None else (*kept, self._shadow):
                await _prepare(policy, (*self._overrides.list_prepared(), *coming))
                await asyncio.sleep(0)


async def _compile_canary(
    loaded: LoadedPolicy, candidate: LoadedPolicy, reach: Reach
) -> tuple[_PreparedPolicy, _PreparedPolicy]:
    """Return the policy in force and its candidate, with the same counters."""
    # In a thread: a long policy would delay reviews.
    composed = await asyncio.to_thread(compose, loaded, candidate, reach)
    put_together = await asyncio.to_thread(pair, loaded.policy, candidate.policy, reach)
    base, canary = await _compile_policy(composed.base), await _compile_policy(composed.canary)
    prepared = _PreparedPolicy(candidate, canary)
    return _PreparedPolicy(loaded, base, _Beside(prepared, put_together)), prepared


async def _compile_policy(loaded: LoadedPolicy) -> CompiledPolicy:
    await _compile_rules(loaded)
    return CompiledPolicy(loaded, await _compile_in_parts(compile_services(loaded)))


async def _compile_rules(loaded: LoadedPolicy) -> None:
    """Compile the rules in CEL beside the event loop, one service after the other: they stay with their services.

    The first rules of a process import the library, which takes longer than a review may wait.
    """
    for service in loaded.policy.services:
        if service.rules:
            await asyncio.to_thread(getattr, service, "rule_plan")


async def _prepare(policy: _PreparedPolicy, states: Iterable[LiveOverrides]) -> None:
    """Compile a policy for each of the states that it is not compiled for, and forget all other states."""
    wanted = dict.fromkeys(states)
    if policy.beside is not None:
        await _prepare(policy.beside.canary, wanted)
    policy.under = {live: found for live, found in policy.under.items() if live in wanted}
    for live in wanted:
        if live not in policy.under:
            policy.under[live] = await _compile_overridden(policy, live)


async def _compile_overridden(policy: _PreparedPolicy, live: LiveOverrides) -> _Overridden:
    base = policy.base
    loaded = apply_overrides(base.loaded, live.entries)
    open_max = compute_breakers_open_max(loaded.policy)
    known = _find_compiled(policy, live, open_max)
    missing = find_changed_services(base, loaded, live.entries).difference(known)
    changed = {**known, **await _compile_in_parts(compile_services(loaded, missing))}
    compiled = replace_services(base, loaded, changed)
    if policy.beside is not None:
        compiled = policy.beside.pair(compiled, policy.beside.canary.under[live].compiled)
    return _Overridden(open_max, changed, compiled)


def _find_compiled(policy: _PreparedPolicy, live: LiveOverrides, open_max: int | None) -> dict[str, CompiledService]:
    """Return the changed services that are compiled already for another state, where they are the same."""
    return {
        name: service
        for other, found in policy.under.items()
        if found.open_max == open_max
        for name, service in found.changed.items()
        if other.entries.get(name) == live.entries.get(name)
    }


async def _compile_in_parts(compile_services: Iterator[CompiledService]) -> dict[str, CompiledService]:
    found: dict[str, CompiledService] = {}
    for compiled in compile_services:
        found[compiled.service.name] = compiled
        if len(found) % SERVICES_PER_TURN_MAX == 0:
            await asyncio.sleep(0)
    return found
