"""Completeness of a group: whether all of its members wait, and what is missing if not."""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from webhook.core.groups.membership import Membership


class WaitingMember(NamedTuple):
    """A waiting Pod of a group."""

    uid: str
    membership: Membership
    since_us: int


class Size(Struct, frozen=True):
    """The size of a group as another object has it; `problem` says why it is not known."""

    pods: int = 0
    problem: str = ""


class Completeness(Struct, frozen=True):
    """The members that are released together, none while some are missing, and `lacks`, which says what is missing."""

    complete: tuple[str, ...] = ()
    lacks: str = ""
    is_short: bool = False
    """Whether it only lacks members."""


def find_completeness(
    members: Sequence[WaitingMember], known: Size | None, size_max: int, succeeded: int = 0
) -> Completeness:
    """Return whether a group's waiting members are all of it. `known` is its size where its Pods do not carry it.

    Of Pods with the same index only the oldest counts. Pods beyond the size are surplus: they follow singly. Members
    that have `succeeded` are not made again.
    """
    own = sorted({member.membership.size for member in members if member.membership.size})
    if len(own) > 1:
        sizes = " and ".join(map(str, own))
        return Completeness(lacks=f"its Pods disagree on the size of their group ({sizes}): give all of them one size")
    if not own and (known is None or known.problem):
        return Completeness(lacks=known.problem if known is not None else "the size of its group is not known yet")
    wanted = own[0] if own else known.pods if known is not None else 0
    if not wanted:
        return Completeness(lacks="what makes its group asks for no Pods now")
    if wanted > size_max:
        remedy = "make the group smaller, or have an admin raise maxSize"
        return Completeness(lacks=f"its group has {wanted} Pods, above quota.queue.groups.maxSize {size_max}: {remedy}")
    distinct: dict[str, WaitingMember] = {}
    for member in sorted(members, key=lambda member: (member.since_us, member.uid)):
        distinct.setdefault(member.membership.index or member.uid, member)
    left = max(1, wanted - succeeded)
    if len(distinct) < left:
        beside = f"; {succeeded} of {wanted} {'has' if succeeded == 1 else 'have'} succeeded" if succeeded else ""
        return Completeness(lacks=f"{len(distinct)} of {left} members of its group are here{beside}", is_short=True)
    return Completeness(tuple(member.uid for member in distinct.values())[:left])
