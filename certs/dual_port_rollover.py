"""Two doors for one caller, so that its certificate changes behind the one that it does not use. No I/O.

When kube-apiserver sees that its client certificate has changed, it closes all connections that it made with it, and
what is under way on them is lost. But it has a certificate for each port of the Service. So a new one is put behind
the port that is not in use, and the calls turn there once every API server has it.

    put     the newest certificate behind a door that nobody uses, or that lets nobody in
    note    that a door is used no more, or is used again
    turn    all calls to the door that has had the newest certificate for long enough, away from one that has not
"""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

SETTLED_SECONDS = 330
"""A node's writer looks every 20 s or oftener, kube-apiserver at its files every five minutes."""
QUIET_SECONDS = 60
"""After the calls turned away: the last ones are answered, and all API servers know."""
_LAST_SECONDS = 20
"""Before a certificate expires: the other door may not have settled, but here all calls would be lost."""
PORT_DEFAULT = 443


@dataclass(frozen=True, slots=True)
class Door:
    """What is behind one port. Moments are in seconds since the Unix epoch."""

    pem: bytes = field(repr=False)
    """Certificate and key."""
    ends_at: int
    """When that certificate expires."""
    written_at: int
    closed_at: int | None = None
    """Since when no webhook leads there; None while one does."""


@dataclass(frozen=True, slots=True)
class View:
    """All that a decision is made from. `in_use` has the doors, 0 and 1, that webhooks lead to."""

    newest: Door
    """The newest certificate, as it would stand behind a door as of now."""
    doors: tuple[Door | None, Door | None]
    in_use: frozenset[int]
    is_elsewhere: bool = False
    """Some webhook leads to neither door."""


@dataclass(frozen=True, slots=True)
class Put:
    """Behind one door."""

    at: int
    door: Door
    text: str


@dataclass(frozen=True, slots=True)
class Turn:
    """All calls."""

    to: int


Step: TypeAlias = Put | Turn


def due(view: View, now: int) -> Step | None:
    """Return the step that is due, None where all is as it should be."""
    for at, door in enumerate(view.doors):
        if door is None:
            return Put(at, view.newest, "there was nothing")
        if (noted := _noted(door, now, is_used=at in view.in_use)) != door:
            return Put(at, noted, "is in use" if at in view.in_use else "is not in use")
    doors = [door for door in view.doors if door is not None]
    stale = [at for at, door in enumerate(doors) if door.pem != view.newest.pem]
    for at in stale:
        if reason := _free(doors[at], view, now):
            return Put(at, replace(view.newest, closed_at=doors[at].closed_at), reason)
    return _turn(view, doors, stale, now)


def _noted(door: Door, now: int, *, is_used: bool) -> Door:
    if is_used:
        return replace(door, closed_at=None)
    return door if door.closed_at is not None and door.closed_at <= now else replace(door, closed_at=now)


def _free(door: Door, view: View, now: int) -> str:
    """Say why what is behind it may be changed, "" where it may not."""
    if view.is_elsewhere:
        return "webhooks lead elsewhere"
    if door.ends_at <= now:
        return "what was there has expired"
    if door.closed_at is not None and now - door.closed_at >= QUIET_SECONDS:
        return "nobody uses it"
    return ""


def _turn(view: View, doors: list[Door], stale: list[int], now: int) -> Turn | None:
    if view.is_elsewhere or not view.in_use:
        return None
    settled = [at for at in (0, 1) if at not in stale and now - doors[at].written_at >= SETTLED_SECONDS]
    used = min(view.in_use)
    if len(view.in_use) > 1:  # somebody was interrupted, or has applied one of the configurations anew
        return Turn((settled or [at for at in (0, 1) if at in stale] or [used])[0])
    # One in use that has not settled was changed just before somebody applied the webhooks as they were first.
    is_last_moment = used in stale and 1 - used not in stale and doors[used].ends_at - now < _LAST_SECONDS
    return Turn(1 - used) if used not in settled and (1 - used in settled or is_last_moment) else None
