"""Simulation of CA rotation with a virtual clock: CA generations, trust bundles and late readers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Generic, TypeVar

from cryptography import x509

from certs.authority import Authority, KeyPair, list_server_names
from certs.ca_generations import Generation, Generations, record_signing, replace_generation
from certs.inspection import is_signed_by
from certs.lifetimes import Lifetimes
from certs.rotation import (
    Adopt,
    Bundle,
    Drop,
    Issue,
    Leaf,
    Make,
    MarkPublished,
    Publish,
    RotationState,
    Step,
    find_due_steps,
)

T = TypeVar("T")
START = datetime(2026, 1, 1, tzinfo=UTC)
LEAF = "leaf"
NAME = "podgate.podgate-system.svc"
PLACES = ("mutating", "validating", "policy")


class Overtaken(Exception):  # noqa: N818  not an error
    """The object was changed after the read."""


@dataclass
class VersionedObject(Generic[T]):
    """One object of the API server: its versions with their start times."""

    versions: list[tuple[datetime, T]]

    def find_version(self, moment: datetime) -> tuple[int, T]:
        """Return the number and the value of the version at that time."""
        number = max((at for at, (since, _) in enumerate(self.versions) if since <= moment), default=0)
        return number, self.versions[number][1]

    def list_values(self, since: datetime) -> list[T]:
        """Return all values since that time."""
        first, _ = self.find_version(since)
        return [value for _, value in self.versions[first:]]

    def write(self, now: datetime, value: T, read: int | None = None) -> None:
        if read is not None and read != len(self.versions) - 1:
            raise Overtaken
        self.versions.append((now, value))

    def forget(self, now: datetime) -> None:
        self.versions = [(now, self.now)]

    @property
    def now(self) -> T:
        return self.versions[-1][1]


@dataclass
class CaSimulation:
    """All objects. Peers read them late by up to `delay`; from `settled_at` on, all have consistent ones."""

    lifetimes: Lifetimes
    delay: timedelta
    now: datetime = START
    generations: VersionedObject[Generations] = field(default_factory=lambda: VersionedObject([(START, ())]))
    places: dict[str, VersionedObject[Bundle]] = field(
        default_factory=lambda: {name: VersionedObject([(START, frozenset())]) for name in PLACES}
    )
    leaf: VersionedObject[KeyPair | None] = field(default_factory=lambda: VersionedObject([(START, None)]))
    names: tuple[x509.GeneralName, ...] = list_server_names(NAME)
    settled_at: datetime = START
    done: list[tuple[datetime, Step]] = field(default_factory=list)

    def view(self, places_at: datetime | None = None, generations_at: datetime | None = None) -> RotationState:
        leaf = self.leaf.find_version(places_at or self.now)[1]
        is_named = leaf is not None and set(self.names) <= set(names_of(leaf.certificate))
        return RotationState(
            self.generations.find_version(generations_at or self.now)[1],
            {name: (versioned.find_version(places_at or self.now)[1],) for name, versioned in self.places.items()},
            {LEAF: Leaf(leaf.certificate, is_named=is_named) if leaf is not None else Leaf()},
        )

    def due(self) -> tuple[Step, ...]:
        return find_due_steps(self.view(), self.lifetimes, self.now)

    def apply(
        self,
        step: Step,
        places_at: datetime | None = None,
        generations_at: datetime | None = None,
        *,
        is_interrupted: bool = False,
    ) -> None:
        """Apply a step that was decided on earlier reads; `is_interrupted` ends it between two writes."""
        read, generations_read = self.generations.find_version(generations_at or self.now)

        def write_generations(generations: Generations) -> None:
            self.generations.write(self.now, generations, read)

        match step:
            case Make():
                key_pair = Authority.create("ca", self.lifetimes.ca, self.now).key_pair
                write_generations((*generations_read, Generation(key_pair.certificate, key_pair.key)))
            case Adopt(certificate, ends):
                write_generations((Generation(certificate, None, self.now, ends), *generations_read))
            case Publish(place):
                versioned = self.places[place]
                versioned.write(
                    self.now,
                    frozenset(generation.certificate for generation in generations_read),
                    versioned.find_version(places_at or self.now)[0],
                )
            case MarkPublished(generation, at):
                write_generations(
                    replace_generation(generations_read, generation, replace(generation, published_at=at))
                )
            case Issue(_, signer, _):
                issued = signer.build_authority().issue_server(NAME, self.names, self.lifetimes.leaf, self.now)
                version, _ = self.leaf.find_version(places_at or self.now)
                write_generations(record_signing(generations_read, signer, issued.certificate))
                if not is_interrupted:
                    self.leaf.write(self.now, issued, version)
            case Drop(generation):
                write_generations(replace_generation(generations_read, generation, None))
        self.done.append((self.now, step))

    def settle(self, choose: Callable[[Sequence[Step]], Step] = lambda steps: steps[0]) -> None:
        """Apply steps until none is due."""
        for _ in range(40):
            steps = self.due()
            if not steps:
                return
            self.apply(choose(steps))
        raise AssertionError(f"the steps do not end: {self.due()}")

    def advance(self, span: timedelta) -> None:
        self.now += span

    def forget_history(self) -> None:
        """Drop the earlier versions, which are in the future after the clock was set back."""
        for versioned in (self.generations, self.leaf):
            versioned.forget(self.now)
        for place in self.places.values():
            place.forget(self.now)

    def postpone_checks(self) -> None:
        """Check nothing before the objects are correct and all peers have read them."""
        self.settled_at = self.now + self.lifetimes.settle + self.delay

    def failure(self) -> str:
        """Return why a peer would reject the other one now, or "" if all accept each other despite late reads."""
        since = max(self.now - self.delay, self.settled_at)
        for leaf in self.leaf.list_values(since):
            if leaf is None:
                return "there is no leaf"
            certificate = leaf.certificate
            if not certificate.not_valid_before_utc <= self.now < certificate.not_valid_after_utc:
                return f"a leaf in use is valid until {certificate.not_valid_after_utc}, now is {self.now}"
            for name, versioned in self.places.items():
                for bundle in versioned.list_values(since):
                    if not any(is_valid(ca, self.now) and has_signed(ca, certificate) for ca in bundle):
                        return f"{name} trusts {len(bundle)} CAs, none of which has signed a leaf in use"
        return ""


@lru_cache(maxsize=4096)
def has_signed(ca: x509.Certificate, leaf: x509.Certificate) -> bool:
    return is_signed_by(leaf, ca)


def is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def names_of(certificate: x509.Certificate) -> list[x509.GeneralName]:
    return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


def faulty_round(simulation: CaSimulation, random: Random) -> None:
    """Run one round that is interrupted, reads late, or conflicts with another writer."""
    lag = simulation.lifetimes.leaf * random.choice((0.0, 0.0, 0.1, 1.0))
    places_at = simulation.now - lag * random.random()
    generations_at = places_at + (simulation.now - places_at) * random.random()
    steps = find_due_steps(simulation.view(places_at, generations_at), simulation.lifetimes, generations_at)
    if steps:
        with suppress(Overtaken):
            simulation.apply(random.choice(steps), places_at, generations_at, is_interrupted=random.random() < 0.5)
