"""Merging of a service's overrides into one."""

from collections.abc import Sequence
from functools import reduce

from msgspec.structs import asdict, replace

from webhook.core.overrides.entry import Grant, Override, PartialModes
from webhook.core.quota import canonicalize


def combine(entries: Sequence[Override]) -> Override:
    """Return one entry with the changes of all; until and reason are those of the last entry."""
    return reduce(merge, entries)


def merge(former: Override, new: Override) -> Override:
    """Return `former` with `new` merged into it; until, reason, and grants of the same resource are those of `new`."""
    return replace(
        new,
        quota_factor=new.quota_factor if new.quota_factor is not None else former.quota_factor,
        modes=_merge_modes(former.modes, new.modes),
        grant=_merge_grants(former.grant, new.grant),
        quota_reset=new.quota_reset if new.quota_reset is not None else former.quota_reset,
        breaker=new.breaker or former.breaker,
        reset_at=new.reset_at or former.reset_at,
        queue=new.queue or former.queue,
        release_pods=tuple({pod.uid: pod for pod in (*former.release_pods, *new.release_pods)}.values()),
    )


def _merge_modes(former: PartialModes | None, new: PartialModes | None) -> PartialModes | None:
    if former is None or new is None:
        return new or former
    return replace(former, **{name: mode for name, mode in asdict(new).items() if mode is not None})


def _merge_grants(former: tuple[Grant, ...], new: tuple[Grant, ...]) -> tuple[Grant, ...]:
    by_window = {grant.window: grant for grant in former}
    for grant in new:
        there = by_window.get(grant.window, grant)
        named = {canonicalize(resource) for resource in grant.hard}
        kept = {resource: hard for resource, hard in there.hard.items() if canonicalize(resource) not in named}
        by_window[grant.window] = Grant(there.window, {**kept, **grant.hard})
    return tuple(by_window.values())
