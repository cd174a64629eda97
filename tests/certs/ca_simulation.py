"""A simulation with its own clock: one sequence of CAs, its trust bundles, and late readers."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from random import Random
from typing import Generic, TypeVar

from cryptography import x509

from certs.authority import Authority, KeyPair, server_names
from certs.ca_generations import Generation, Generations, changed, signing
from certs.inspection import signed_by
from certs.lifetimes import Lifetimes
from certs.rotation import Adopt, Bundle, Drop, Issue, Leaf, Make, MarkPublished, Publish, RotationState, Step, due

T = TypeVar("T")
START = datetime(2026, 1, 1, tzinfo=UTC)
LEAF = "leaf"
NAME = "podgate.podgate-system.svc"
PLACES = ("mutating", "validating", "policy")


class Overtaken(Exception):  # noqa: N818  it is no error
    """Somebody has written since it was read."""


@dataclass
class Cell(Generic[T]):
    """One object of the API server: its versions, and since when each stood there."""

    versions: list[tuple[datetime, T]]

    def at(self, moment: datetime) -> tuple[int, T]:
        """Return what stood there then, and the number of its version."""
        number = max((at for at, (since, _) in enumerate(self.versions) if since <= moment), default=0)
        return number, self.versions[number][1]

    def within(self, since: datetime) -> list[T]:
        """Return all that stood there at any time since then."""
        first, _ = self.at(since)
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
class World:
    """All of it. `delay` is how late the other ends read; `calm_at` is when they have read what is right again."""

    lifetimes: Lifetimes
    delay: timedelta
    now: datetime = START
    line: Cell[Generations] = field(default_factory=lambda: Cell([(START, ())]))
    places: dict[str, Cell[Bundle]] = field(
        default_factory=lambda: {name: Cell([(START, frozenset())]) for name in PLACES}
    )
    leaf: Cell[KeyPair | None] = field(default_factory=lambda: Cell([(START, None)]))
    names: tuple[x509.GeneralName, ...] = server_names(NAME)
    calm_at: datetime = START
    done: list[tuple[datetime, Step]] = field(default_factory=list)

    def view(self, places_at: datetime | None = None, line_at: datetime | None = None) -> RotationState:
        leaf = self.leaf.at(places_at or self.now)[1]
        is_named = leaf is not None and set(self.names) <= set(names_of(leaf.certificate))
        return RotationState(
            self.line.at(line_at or self.now)[1],
            {name: (cell.at(places_at or self.now)[1],) for name, cell in self.places.items()},
            {LEAF: Leaf(leaf.certificate, is_named=is_named) if leaf is not None else Leaf()},
        )

    def due(self) -> tuple[Step, ...]:
        return due(self.view(), self.lifetimes, self.now)

    def take(
        self, step: Step, places_at: datetime | None = None, line_at: datetime | None = None, *, dies: bool = False
    ) -> None:
        """Take a step that was decided on what stood there then; one that `dies` is interrupted between two writes."""
        read, line = self.line.at(line_at or self.now)

        def keep(kept: Generations) -> None:
            self.line.write(self.now, kept, read)

        match step:
            case Make():
                made = Authority.create("ca", self.lifetimes.ca, self.now).key_pair
                keep((*line, Generation(made.certificate, made.key)))
            case Adopt(certificate, ends):
                keep((Generation(certificate, None, self.now, ends), *line))
            case Publish(place):
                cell = self.places[place]
                cell.write(self.now, frozenset(one.certificate for one in line), cell.at(places_at or self.now)[0])
            case MarkPublished(one, at):
                keep(changed(line, one, replace(one, published_at=at)))
            case Issue(_, signer, _):
                issued = signer.authority().issue_server(NAME, self.names, self.lifetimes.leaf, self.now)
                found, _ = self.leaf.at(places_at or self.now)
                keep(signing(line, signer, issued.certificate))
                if not dies:
                    self.leaf.write(self.now, issued, found)
            case Drop(one):
                keep(changed(line, one, None))
        self.done.append((self.now, step))

    def settle(self, choose: Callable[[Sequence[Step]], Step] = lambda steps: steps[0]) -> None:
        """Do all that is due."""
        for _ in range(40):
            steps = self.due()
            if not steps:
                return
            self.take(choose(steps))
        raise AssertionError(f"no end of it: {self.due()}")

    def pass_by(self, span: timedelta) -> None:
        self.now += span

    def forget_the_past(self) -> None:
        """Have nobody read what stood there in what is now the future."""
        for cell in (self.line, self.leaf):
            cell.forget(self.now)
        for place in self.places.values():
            place.forget(self.now)

    def disturb(self) -> None:
        """Say that nothing can be expected before all have been set right, and read what is right."""
        self.calm_at = self.now + self.lifetimes.settle + self.delay

    def failing(self) -> str:
        """Say which two ends would not understand each other now, "" where all do, however late they read."""
        since = max(self.now - self.delay, self.calm_at)
        for leaf in self.leaf.within(since):
            if leaf is None:
                return "there is no leaf"
            certificate = leaf.certificate
            if not certificate.not_valid_before_utc <= self.now < certificate.not_valid_after_utc:
                return f"a leaf in use is valid until {certificate.not_valid_after_utc}, now is {self.now}"
            for name, cell in self.places.items():
                for bundle in cell.within(since):
                    if not any(is_valid(ca, self.now) and has_signed(ca, certificate) for ca in bundle):
                        return f"{name} trusts {len(bundle)} CAs, none of which has signed a leaf in use"
        return ""


@lru_cache(maxsize=4096)
def has_signed(ca: x509.Certificate, leaf: x509.Certificate) -> bool:
    return signed_by(leaf, ca)


def is_valid(certificate: x509.Certificate, now: datetime) -> bool:
    return certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc


def names_of(certificate: x509.Certificate) -> list[x509.GeneralName]:
    return list(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)


def mishap(simulation: World, random: Random) -> None:
    """Look once, as one who is interrupted, reads late, or was overtaken while it thought."""
    lag = simulation.lifetimes.leaf * random.choice((0.0, 0.0, 0.1, 1.0))
    places_at = simulation.now - lag * random.random()
    line_at = places_at + (simulation.now - places_at) * random.random()
    steps = due(simulation.view(places_at, line_at), simulation.lifetimes, line_at)
    if steps:
        with suppress(Overtaken):
            simulation.take(random.choice(steps), places_at, line_at, dies=random.random() < 0.5)
