"""Rotation, without I/O: from what is kept, what is published and the time, to the steps that are due.

Each step may be done by itself, at any time while it is due, and in any order: after each one everything is looked at
anew. So whoever is interrupted goes on where it was, and nothing is remembered that is not written down.

    make      a CA, well before its predecessor ends
    adopt     a CA that nobody remembers, but whose leaf lives
    publish   exactly the CAs of the line, wherever they must stand
    mark      a CA as read back from everywhere; unmark it if it is missing somewhere before it signs
    issue     a leaf, from the newest CA that has settled
    drop      a CA, once the last leaf that it signed has expired
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from cryptography import x509

from certs.ca_generations import Generation, Line, issuer_of
from certs.lifetimes import Lifetimes, renewal

Bundle: TypeAlias = frozenset[x509.Certificate]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf as it was found, and whether it is what is wanted."""

    certificate: x509.Certificate | None = None
    is_whole: bool = True
    """Its key is there, and its own."""
    is_named: bool = True
    """It bears all the names that it is called by."""


@dataclass(frozen=True, slots=True)
class View:
    """All that a decision is made from."""

    line: Line
    places: Mapping[str, tuple[Bundle, ...]]
    """What is trusted in each place that there is: one bundle for each entry that it has."""

    def is_everywhere(self, one: Generation) -> bool:
        return all(one.certificate in trust for trusts in self.places.values() for trust in trusts)

    leaves: Mapping[str, Leaf]
    """By name; one that is not there yet is an empty Leaf."""
    others: Bundle = frozenset()
    """Who is trusted as well, and no concern of ours unless a leaf is theirs."""
    used: tuple[x509.Certificate, ...] = ()
    """Leaves beside those, which somebody may still show: none is issued in their place."""
    unread: frozenset[str] = frozenset()
    """Places of which nobody can tell whom they trust; their bundles are empty."""


@dataclass(frozen=True, slots=True)
class Make:
    """A new CA."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """A CA of which only the certificate is left."""

    certificate: x509.Certificate
    leaves_end: datetime


@dataclass(frozen=True, slots=True)
class Publish:
    """The line's certificates."""

    place: str


@dataclass(frozen=True, slots=True)
class Mark:
    """When a CA was read back from everywhere."""

    generation: Generation
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Issue:
    """A leaf."""

    name: str
    signer: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class Drop:
    """A CA."""

    generation: Generation


Step: TypeAlias = Make | Adopt | Publish | Mark | Issue | Drop


def due(view: View, lifetimes: Lifetimes, now: datetime) -> tuple[Step, ...]:
    """Return the steps that are due, most urgent first; none where all is as it should be."""
    adopted = tuple(_adopted(view, now))
    if adopted:
        return adopted  # before anything is published without it
    newest = next((one for one in reversed(view.line) if one.key is not None and one.is_valid(now)), None)
    makes = [Make()] if newest is None or now >= lifetimes.succession(newest.certificate) else []
    if not view.line:
        return tuple(makes)
    if view.unread and any(_strays(view, _usable(view, now))):
        # A place that cannot be read may trust its CA: without that one nothing is published, and no leaf replaced.
        return (*makes, *(Publish(place) for place in sorted(view.unread)))
    steps: list[Step] = [*makes, *_published(view, now), *_issued(view, newest, lifetimes, now)]
    return (*steps, *_dropped(view, now))


def _adopted(view: View, now: datetime) -> Iterator[Adopt]:
    trusted = [*(ca for trusts in view.places.values() for trust in trusts for ca in trust), *view.others]
    for leaf in _strays(view, [*_usable(view, now), *(one for one in view.used if _is_valid(one, now))]):
        if (ca := issuer_of(leaf, trusted)) is not None:
            yield Adopt(ca, leaf.not_valid_after_utc)
            return


def _usable(view: View, now: datetime) -> list[x509.Certificate]:
    """Return the leaves that both ends can use."""
    whole = [leaf.certificate for leaf in view.leaves.values() if leaf.certificate is not None and leaf.is_whole]
    return [certificate for certificate in whole if _is_valid(certificate, now)]


def _strays(view: View, leaves: Iterable[x509.Certificate]) -> Iterator[x509.Certificate]:
    """Yield those that no CA of the line has signed."""
    known = [one.certificate for one in view.line]
    return (leaf for leaf in leaves if issuer_of(leaf, known) is None)


def _published(view: View, now: datetime) -> Iterator[Step]:
    for one in view.line:
        is_right = one.published_at is None or (view.is_everywhere(one) and one.published_at <= now)
        if not is_right and not one.is_signing:
            yield Mark(one, None)
            return  # before it is published again, and nobody knows any more that it was missing
    wanted = frozenset(one.certificate for one in view.line)
    for place, trusts in view.places.items():
        if any(trust != wanted for trust in trusts):
            yield Publish(place)
    for one in view.line:
        if one.published_at is None and view.is_everywhere(one):
            yield Mark(one, now)


def _issued(view: View, newest: Generation | None, lifetimes: Lifetimes, now: datetime) -> Iterator[Issue]:
    able = [one for one in view.line if one.key is not None and one.is_valid(now)]
    settled = [one for one in able if one.is_signing or _has_settled(one, view, lifetimes.settle, now)]
    signer = settled[-1] if settled else None
    for name, leaf in view.leaves.items():
        issuer = _issuer(leaf.certificate, view.line) if leaf.certificate is not None else None
        if (useless := _useless(leaf, issuer, now)) and (at_hand := signer or newest) is not None:
            yield Issue(name, at_hand, useless)  # nothing to lose: it need not have settled
        elif leaf.certificate is not None and issuer is not None and signer is not None:
            if not leaf.is_named:
                yield Issue(name, signer, "it lacks a name that it is called by")
            elif view.line.index(signer) > view.line.index(issuer):
                yield Issue(name, signer, "a new CA has taken over")
            elif now >= renewal(leaf.certificate) and _longer(signer, leaf.certificate, lifetimes, now):
                yield Issue(name, signer, "two thirds of its life are over")


def _dropped(view: View, now: datetime) -> Iterator[Drop]:
    last = max((at for at, one in enumerate(view.line) if one.is_signing), default=0)
    cas = [one.certificate for one in view.line]
    in_use = {issuer_of(leaf.certificate, cas) for leaf in view.leaves.values() if leaf.certificate is not None}
    for one in view.line[:last]:
        if (one.leaves_end is None or one.leaves_end <= now) and one.certificate not in in_use:
            yield Drop(one)


def _useless(leaf: Leaf, issuer: Generation | None, now: datetime) -> str:
    """Say why nobody can be served with it, "" where it serves."""
    if leaf.certificate is None:
        return "there is none"
    if not leaf.is_whole:
        return "its key is missing, or another's"
    if not _is_valid(leaf.certificate, now):
        return "it is not valid now"
    return "" if issuer is not None else "no CA that is trusted has signed it"


def _issuer(leaf: x509.Certificate, line: Iterable[Generation]) -> Generation | None:
    by_certificate = {one.certificate: one for one in line}
    found = issuer_of(leaf, list(by_certificate))
    return by_certificate[found] if found is not None else None


def _has_settled(one: Generation, view: View, settle: timedelta, now: datetime) -> bool:
    return view.is_everywhere(one) and one.published_at is not None and settle <= now - one.published_at


def _longer(signer: Generation, leaf: x509.Certificate, lifetimes: Lifetimes, now: datetime) -> bool:
    """Return whether a new leaf would outlive this one: none outlives its CA."""
    return min(now + lifetimes.leaf, signer.certificate.not_valid_after_utc) > leaf.not_valid_after_utc


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
