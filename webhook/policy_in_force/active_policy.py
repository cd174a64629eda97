"""Active policy: the policy in force under the active overrides, compiled in advance.

It is compiled before the swap, a few services per turn of the event loop, so that reviews come in between; the swap is
an assignment. Overrides change a few services: only these are recompiled, and the others are shared. They are compiled
for the overrides now and for those after the next end of an entry, so that an end is an assignment too. No review
compiles anything: `get_current` and `find_by_hash` only select.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from webhook.ports import Clock, Overrides
from webhook.support.process_memory import defer_collection

SERVICES_PER_TURN_MAX = 20
"""Services compiled per turn of the event loop. More would delay reviews."""


class _Overridden(NamedTuple):
    """A policy under overrides; `open_max`: breakerGuard's limit; `changed`: the services that they change."""

    open_max: int | None
    changed: Mapping[str, CompiledService]
    compiled: CompiledPolicy


class _PreparedPolicy:
    """A policy without overrides, and under each prepared state of the overrides."""

    def __init__(self, base: CompiledPolicy) -> None:
        self.base = base
        self.hash = base.hash
        self.under: dict[LiveOverrides, _Overridden] = {}


class ActivePolicy:
    """The policy in force and recent ones, each under the prepared states of the overrides."""

    def __init__(self, overrides: Overrides, clock: Clock) -> None:
        self._overrides = overrides
        self._clock = clock
        self._history: PolicyHistory[_PreparedPolicy] = PolicyHistory()
        # Policies and overrides are prepared one after the other, so that each preparation covers the result of the one
        # before it. A caller swaps what it has prepared before it awaits again, so the next one cannot begin earlier.
        self._preparing = asyncio.Lock()

    @property
    def since_us(self) -> int:
        """Time at which the policy was swapped in; 0 without one."""
        return self._history.since_us

    def get_loaded(self) -> LoadedPolicy | None:
        """Return the policy in force without overrides."""
        return None if self._history.current is None else self._history.current.base.loaded

    def get_current(self) -> CompiledPolicy | None:
        """Return the policy in force under the active overrides."""
        policy = self._history.current
        return None if policy is None else policy.under[self._overrides.get_current()].compiled

    def find_by_hash(self, policy_hash: str) -> CompiledPolicy | None:
        """Return a policy of the last 60 s under the active overrides."""
        policy = self._history.find_by_hash(policy_hash, self._clock.now_us())
        return None if policy is None else policy.under[self._overrides.get_current()].compiled

    async def swap(self, loaded: LoadedPolicy) -> None:
        """Compile a policy, in parts, and put it into force."""
        async with self._preparing:
            with defer_collection():
                policy = self._history.find_by_hash(loaded.hash, self._clock.now_us()) or _PreparedPolicy(
                    CompiledPolicy(loaded, await _compile_in_parts(compile_services(loaded)))
                )
                await _prepare(policy, self._overrides.list_prepared())
            self._history.take(policy, self._clock.now_us())

    async def prepare(self, coming: Sequence[LiveOverrides]) -> None:
        """Compile the policies in use, in parts, for states of the overrides that are not active yet."""
        async with self._preparing:
            for policy in self._history.list_kept(self._clock.now_us()):
                await _prepare(policy, (*self._overrides.list_prepared(), *coming))
                await asyncio.sleep(0)


async def _prepare(policy: _PreparedPolicy, states: Iterable[LiveOverrides]) -> None:
    """Compile a policy for each of the states that it is not compiled for, and forget all other states."""
    wanted = dict.fromkeys(states)
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
    return _Overridden(open_max, changed, replace_services(base, loaded, changed))


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
