"""CA rotation: the steps that are due for a stored state, the published bundles and the time, without I/O.

Steps are independent: each may be taken at any time while it is due, in any order, and after each one the state is
read again. So an interrupted rotation continues from the same state, and all state is in the store.

    make      a CA, well before its predecessor expires
    adopt     a CA that is missing from the stored state, but has signed a valid leaf
    publish   exactly the CAs of the stored state, in every bundle
    mark      a CA as read back from every bundle; unmark it if it is missing from one before it signs; a bundle that
              cannot be read changes no mark: its wait would begin again with each call that fails
    issue     a leaf, from the newest CA that has settled
    drop      a CA, once the last leaf that it signed has expired
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeAlias

from cryptography import x509

from certs.ca_generations import Generation, Generations, find_issuer
from certs.lifetimes import Lifetimes, compute_renewal

Bundle: TypeAlias = frozenset[x509.Certificate]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One leaf certificate as it was found, and whether it is usable."""

    certificate: x509.Certificate | None = None
    is_whole: bool = True
    """Its private key is there and matches."""
    is_named: bool = True
    """It has all SANs by which it is called."""


@dataclass(frozen=True, slots=True)
class RotationState:
    """The input of a decision."""

    generations: Generations
    places: Mapping[str, tuple[Bundle, ...]]
    """The bundles in each place (a Secret or a webhook configuration): one for each of its entries."""

    def is_everywhere(self, generation: Generation) -> bool:
        return all(generation.certificate in trust for trusts in self.places.values() for trust in trusts)

    def is_missing(self, generation: Generation) -> bool:
        """Return whether a bundle that was read lacks a CA."""
        return any(
            generation.certificate not in trust
            for place, trusts in self.places.items()
            if place not in self.unread
            for trust in trusts
        )

    leaves: Mapping[str, Leaf]
    """By name; one that does not exist yet is an empty Leaf."""
    others: Bundle = frozenset()
    """Further trusted CAs, which are only adopted if one of them has signed a leaf."""
    used: tuple[x509.Certificate, ...] = ()
    """Earlier leaves that a client may still present: they are not renewed."""
    unread: frozenset[str] = frozenset()
    """Places that cannot be read; their bundles are empty."""


@dataclass(frozen=True, slots=True)
class Make:
    """Create a CA."""


@dataclass(frozen=True, slots=True)
class Adopt:
    """Add a CA of which only the certificate is left."""

    certificate: x509.Certificate
    leaves_end: datetime


@dataclass(frozen=True, slots=True)
class Publish:
    """Write the certificates of all generations to one place."""

    place: str


@dataclass(frozen=True, slots=True)
class MarkPublished:
    """Set when a CA was read back from everywhere, or None."""

    generation: Generation
    at: datetime | None


@dataclass(frozen=True, slots=True)
class Issue:
    """Issue a leaf."""

    name: str
    signer: Generation
    reason: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Remove a CA."""

    generation: Generation


Step: TypeAlias = Make | Adopt | Publish | MarkPublished | Issue | Drop


def find_due_steps(state: RotationState, lifetimes: Lifetimes, now: datetime) -> tuple[Step, ...]:
    """Return the steps that are due, most urgent first."""
    adopted = tuple(_find_adoptions(state, now))
    if adopted:
        return adopted  # before anything is published without it
    newest = next(
        (
            generation
            for generation in reversed(state.generations)
            if generation.key is not None and generation.is_valid(now)
        ),
        None,
    )
    makes = [Make()] if newest is None or now >= lifetimes.compute_succession(newest.certificate) else []
    if not state.generations:
        return tuple(makes)
    if state.unread and any(_list_unsigned(state, _list_usable(state, now))):
        # The unreadable place may hold the CA of that leaf: until it is known, publish nothing and replace no leaf.
        return (*makes, *(Publish(place) for place in sorted(state.unread)))
    steps: list[Step] = [*makes, *_find_publications(state, now), *_find_issues(state, newest, lifetimes, now)]
    return (*steps, *_find_drops(state, now))


def _find_adoptions(state: RotationState, now: datetime) -> Iterator[Adopt]:
    trusted = [*(ca for trusts in state.places.values() for trust in trusts for ca in trust), *state.others]
    for leaf in _list_unsigned(
        state, [*_list_usable(state, now), *(used for used in state.used if _is_valid(used, now))]
    ):
        if (ca := find_issuer(leaf, trusted)) is not None:
            yield Adopt(ca, leaf.not_valid_after_utc)
            return


def _list_usable(state: RotationState, now: datetime) -> list[x509.Certificate]:
    """Return the leaves that are valid and have their key."""
    whole = [leaf.certificate for leaf in state.leaves.values() if leaf.certificate is not None and leaf.is_whole]
    return [certificate for certificate in whole if _is_valid(certificate, now)]


def _list_unsigned(state: RotationState, leaves: Iterable[x509.Certificate]) -> Iterator[x509.Certificate]:
    """Yield the leaves that no CA of the stored state has signed."""
    known = [generation.certificate for generation in state.generations]
    return (leaf for leaf in leaves if find_issuer(leaf, known) is None)


def _find_publications(state: RotationState, now: datetime) -> Iterator[Step]:
    for generation in state.generations:
        is_right = generation.published_at is None or (
            not state.is_missing(generation) and generation.published_at <= now
        )
        if not is_right and not generation.is_signing:
            yield MarkPublished(generation, None)
            return  # must precede publishing, which would hide that it was missing
    wanted = frozenset(generation.certificate for generation in state.generations)
    for place, trusts in state.places.items():
        if any(trust != wanted for trust in trusts):
            yield Publish(place)
    for generation in state.generations:
        if generation.published_at is None and state.is_everywhere(generation):
            yield MarkPublished(generation, now)


def _find_issues(
    state: RotationState, newest: Generation | None, lifetimes: Lifetimes, now: datetime
) -> Iterator[Issue]:
    able = [generation for generation in state.generations if generation.key is not None and generation.is_valid(now)]
    settled = [
        generation
        for generation in able
        if generation.is_signing or _has_settled(generation, state, lifetimes.settle, now)
    ]
    signer = settled[-1] if settled else None
    for name, leaf in state.leaves.items():
        issuer = _find_generation(leaf.certificate, state.generations) if leaf.certificate is not None else None
        if (unusable := _find_unusable_reason(leaf, issuer, now)) and (usable := signer or newest) is not None:
            yield Issue(name, usable, unusable)  # there is no usable leaf to lose: the CA need not have settled
        elif leaf.certificate is not None and issuer is not None and signer is not None:
            if not leaf.is_named:
                yield Issue(name, signer, "it lacks a SAN")
            elif state.generations.index(signer) > state.generations.index(issuer):
                yield Issue(name, signer, "a new CA has taken over")
            elif now >= compute_renewal(leaf.certificate) and _is_longer(signer, leaf.certificate, lifetimes, now):
                yield Issue(name, signer, "two thirds of its lifetime are over")


def _find_drops(state: RotationState, now: datetime) -> Iterator[Drop]:
    last = max((at for at, generation in enumerate(state.generations) if generation.is_signing), default=0)
    cas = [generation.certificate for generation in state.generations]
    in_use = {find_issuer(leaf.certificate, cas) for leaf in state.leaves.values() if leaf.certificate is not None}
    for generation in state.generations[:last]:
        if (generation.leaves_end is None or generation.leaves_end <= now) and generation.certificate not in in_use:
            yield Drop(generation)


def _find_unusable_reason(leaf: Leaf, issuer: Generation | None, now: datetime) -> str:
    """Return why a leaf cannot be used, "" if it can."""
    if leaf.certificate is None:
        return "it is missing"
    if not leaf.is_whole:
        return "its key is missing or does not match"
    if not _is_valid(leaf.certificate, now):
        return "it is not valid now"
    return "" if issuer is not None else "no trusted CA has signed it"


def _find_generation(leaf: x509.Certificate, generations: Iterable[Generation]) -> Generation | None:
    by_certificate = {generation.certificate: generation for generation in generations}
    found = find_issuer(leaf, list(by_certificate))
    return by_certificate[found] if found is not None else None


def _has_settled(generation: Generation, state: RotationState, settle: timedelta, now: datetime) -> bool:
    return (
        state.is_everywhere(generation)
        and generation.published_at is not None
        and settle <= now - generation.published_at
    )


def _is_longer(signer: Generation, leaf: x509.Certificate, lifetimes: Lifetimes, now: datetime) -> bool:
    """Return whether a new leaf would expire later than this one: no leaf outlives its CA."""
    return min(now + lifetimes.leaf, signer.certificate.not_valid_after_utc) > leaf.not_valid_after_utc


def _is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc
