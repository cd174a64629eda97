"""The document changed by one entry: what a command writes. Expired entries go, all others stay."""

from collections.abc import Iterable
from typing import Any

import yaml
from msgspec.structs import asdict, replace

from webhook.core.document.scalars import resolved
from webhook.core.overrides.entry import Entry, Grant, PartialModes
from webhook.core.overrides.loading import load
from webhook.core.quota import canonical

_WIDEST = 1 << 20


def placed(entries: Iterable[Entry], new: Entry, now_us: int) -> tuple[Entry, ...]:
    """Return the live entries with `new` as the service's one."""
    return (*cleared(entries, new.service, now_us), new)


def cleared(entries: Iterable[Entry], service: str, now_us: int) -> tuple[Entry, ...]:
    """Return the live entries of all other services."""
    return tuple(entry for entry in entries if entry.until_us > now_us and entry.service != service)


def merged(former: Entry, new: Entry) -> Entry:
    """Return `former` with what `new` says: its until and reason hold, and a grant of the same resource is replaced."""
    return replace(
        new,
        quota_factor=new.quota_factor if new.quota_factor is not None else former.quota_factor,
        modes=_modes(former.modes, new.modes),
        grant=_grants(former.grant, new.grant),
        quota_reset=new.quota_reset if new.quota_reset is not None else former.quota_reset,
        breaker=new.breaker or former.breaker,
        reset_at=new.reset_at or former.reset_at,
    )


def _modes(former: PartialModes | None, new: PartialModes | None) -> PartialModes | None:
    if former is None or new is None:
        return new or former
    return replace(former, **{name: mode for name, mode in asdict(new).items() if mode is not None})


def _grants(former: tuple[Grant, ...], new: tuple[Grant, ...]) -> tuple[Grant, ...]:
    by_window = {grant.window: grant for grant in former}
    for grant in new:
        there = by_window.get(grant.window, grant)
        named = {canonical(resource) for resource in grant.hard}
        kept = {resource: hard for resource, hard in there.hard.items() if canonical(resource) not in named}
        by_window[grant.window] = Grant(there.window, {**kept, **grant.hard})
    return tuple(by_window.values())


def written(entries: Iterable[Entry]) -> bytes:
    """Return the document of some entries."""
    return _text([entry.plain() for entry in entries])


def drafted(plain: dict[str, Any]) -> Entry:
    """Return the entry of these fields, checked as any other; DocumentError with every problem, its path from `[0]`."""
    [entry] = load(_text([plain])).entries
    return entry


class _Dumper(yaml.SafeDumper):
    """Quotes what we would not read as text: 1e3 is none to us, though it is to the library."""


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if isinstance(resolved(text), str) else "'")


_Dumper.add_representer(str, _string)


def _text(plain: list[dict[str, Any]]) -> bytes:
    text: str = yaml.dump(
        plain, Dumper=_Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True, width=_WIDEST
    )
    return text.encode()
