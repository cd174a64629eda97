"""Active policy: the policy in force under the active overrides, compiled in advance.

A policy of a thousand services takes a tenth of a second to compile. It is compiled before the swap, a few services per
turn of the event loop; the swap is an assignment, and no review compiles a policy. Overrides concern a few services:
only these are recompiled, and the others are shared.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from webhook.core.compiled_policy import (
    CompiledPolicy,
    CompiledService,
    breakers_open_max,
    compile_overridden,
    compile_services,
    with_overrides,
)
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy
from webhook.ports import Overrides
from webhook.support.garbage_collection import put_off

AT_A_TIME = 20
"""Services compiled per turn of the event loop: about a millisecond."""
_POLICIES_KEPT = 8


class _Active(NamedTuple):
    """A compiled policy under override `entries`; `changed`: the services that they change."""

    entries: Mapping[str, tuple[Override, ...]]
    changed: Mapping[str, CompiledService]
    compiled: CompiledPolicy

    def known(self, entries: Mapping[str, tuple[Override, ...]]) -> dict[str, CompiledService]:
        """Return the changed services that are the same under other entries."""
        return {
            name: one
            for name, one in self.changed.items()
            if name in entries and entries[name] == self.entries.get(name)
        }


class ActivePolicy:
    """Compiled policies by hash: the one in force, recent ones, and the next one."""

    def __init__(self, overrides: Overrides) -> None:
        self._overrides = overrides
        self._bases: dict[str, CompiledPolicy] = {}
        """Policies without overrides."""
        self._active: dict[str, _Active] = {}
        self._coming: dict[str, _Active] = {}
        """Policies compiled in advance, under overrides that become active next."""

    async def prepare(self, loaded: LoadedPolicy) -> None:
        """Compile a policy before it is in force, in parts."""
        with put_off():
            base = self._bases.pop(loaded.hash, None) or CompiledPolicy(
                loaded, await _in_parts(compile_services(loaded))
            )
            self._keep(base)  # as the newest, even if it was in force before
            await self._prepare(base, self._overrides.current().entries)

    async def prepare_overrides(self, entries: Mapping[str, tuple[Override, ...]]) -> None:
        """Compile the kept policies under new overrides before these are active, in parts."""
        for base in tuple(self._bases.values()):
            await self._prepare(base, entries)
            await asyncio.sleep(0)

    def compiled(self, loaded: LoadedPolicy) -> CompiledPolicy:
        """Return a policy under the active overrides. If it was not prepared, compile it now."""
        entries = self._overrides.current().entries
        active = self._active.get(loaded.hash)
        if active is None or active.entries is not entries:
            active = self._active[loaded.hash] = self._settled(loaded, entries)
        return active.compiled

    def _settled(self, loaded: LoadedPolicy, entries: Mapping[str, tuple[Override, ...]]) -> _Active:
        coming = self._coming.pop(loaded.hash, None)
        if coming is not None and coming.entries == entries:
            return coming._replace(entries=entries)
        base = self._bases.get(loaded.hash) or self._keep(CompiledPolicy(loaded))
        known = self._known(base, entries)
        parts = {one.service.name: one for one in compile_overridden(base, entries, known)}
        return _active(base, entries, {**known, **parts})

    async def _prepare(self, base: CompiledPolicy, entries: Mapping[str, tuple[Override, ...]]) -> None:
        known = self._known(base, entries)
        parts = await _in_parts(compile_overridden(base, entries, known))
        if base.hash in self._bases:  # else newer policies have displaced it meanwhile
            self._coming[base.hash] = _active(base, entries, {**known, **parts})

    def _known(self, base: CompiledPolicy, entries: Mapping[str, tuple[Override, ...]]) -> dict[str, CompiledService]:
        """Return services compiled already; none if the limit on open breakers, part of every plan, has changed."""
        active = self._active.get(base.hash)
        if active is None or breakers_open_max(active.compiled.policy) != breakers_open_max(base.policy):
            return {}
        return active.known(entries)

    def _keep(self, base: CompiledPolicy) -> CompiledPolicy:
        if len(self._bases) >= _POLICIES_KEPT:
            oldest = next(iter(self._bases))
            for kept in (self._bases, self._active, self._coming):
                kept.pop(oldest, None)
        self._bases[base.hash] = base
        return base


def _active(
    base: CompiledPolicy, entries: Mapping[str, tuple[Override, ...]], changed: Mapping[str, CompiledService]
) -> _Active:
    return _Active(entries, changed, with_overrides(base, entries, changed))


async def _in_parts(compile_services: Iterator[CompiledService]) -> dict[str, CompiledService]:
    found: dict[str, CompiledService] = {}
    for one in compile_services:
        found[one.service.name] = one
        if len(found) % AT_A_TIME == 0:
            await asyncio.sleep(0)
    return found
