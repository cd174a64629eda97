"""One line of CAs, its leaf, and all places where it is trusted, as objects of a cluster; and each step on them."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certs import ca_generations as lines
from certs.authority import Authority, Credentials
from certs.ca_generations import Generation, Line
from certs.cluster.api import Api
from certs.cluster.secrets import Kept, Vault
from certs.cluster.tasks import MADE, OTHER, Done
from certs.cluster.webhooks import Configuration
from certs.errors import CertsError
from certs.lifetimes import Lifetimes
from certs.rotation import Adopt, Bundle, Drop, Issue, Leaf, Make, Mark, Publish, Step, View
from certs.tokens.issuer import key_pem

LINE = "line.json"
CERTIFICATE, KEY = "tls.crt", "tls.key"
FORMER = "former.crt"
"""The leaf of before: whoever reads late shows it for some minutes more."""
PEMS = ("first.pem", "second.pem")
"""Leaves that the API server has for one port each, where it has two."""


@dataclass(frozen=True, slots=True)
class Held:
    """A Secret by its name, as it was found."""

    name: str
    kept: Kept

    def line(self) -> Line:
        text = self.kept.data.get(LINE)
        return lines.read(text, f"Secret {self.name}: {LINE}") if text is not None else ()

    def names(self) -> tuple[x509.GeneralName, ...]:
        """Return what its leaf bears."""
        found = _leaf(self.kept, frozenset()).certificate
        return _names(found) if found is not None else ()


@dataclass(frozen=True, slots=True)
class Side:
    """What belongs to one line of CAs. `leaf` is None where it may not be touched; then none is issued."""

    api: Api
    ca: Held
    line: Line
    lifetimes: Lifetimes
    leaf: Held | None
    issue: Callable[[Authority, datetime], Credentials]
    trusted_in: Held
    """The Secret whose `trusted_key` is the bundle for the other end."""
    trusted_key: str
    others: Bundle = frozenset()
    """Whom else that bundle holds, at the operator's wish."""
    leaf_kind: str = "Opaque"
    beside_leaf: Mapping[str, bytes] = field(default_factory=dict)
    """What the leaf's Secret is made with, when it is made."""
    names: frozenset[x509.GeneralName] = frozenset()
    """Every name that the leaf has to bear."""
    configurations: Mapping[str, Configuration] = field(default_factory=dict)
    unknown: Mapping[str, CertsError] = field(default_factory=dict)
    """Why nobody can tell who is trusted there."""

    def view(self) -> View:
        places: dict[str, tuple[Bundle, ...]] = dict.fromkeys(self.unknown, (frozenset(),))
        places |= {place: _trusts(found) for place, found in self.configurations.items()}
        if self.trusted_in.kept.exists:
            trusted = certificates(self.trusted_in.kept.data.get(self.trusted_key, b""))
            # Without those others; but one that is missing makes the bundle one that has to be published.
            places[self.trusted_in.name] = (trusted ^ self.others,)
        leaves = {self.leaf.name: _leaf(self.leaf.kept, self.names)} if self.leaf is not None else {}
        kept = self.leaf.kept.data if self.leaf is not None else {}
        used = tuple(one for key in (FORMER, *PEMS) for one in certificates(kept.get(key, b"")))
        return View(self.line, places, leaves, self.others, used, frozenset(self.unknown))

    def ends(self) -> Iterator[tuple[str, datetime]]:
        """Yield when what is kept expires, by Secret."""
        if self.line:
            yield self.ca.name, self.line[-1].certificate.not_valid_after_utc
        if self.leaf is not None and (found := _leaf(self.leaf.kept, frozenset()).certificate) is not None:
            yield self.leaf.name, found.not_valid_after_utc

    async def take(self, step: Step, now: datetime) -> Done:
        """Take one step that is due. Whatever comes of it is looked at anew."""
        match step:
            case Make():
                return await self._make(now)
            case Adopt(certificate, ends):
                await self._keep((Generation(certificate, None, now, ends), *self.line))
                return Done(OTHER, self.ca.name, f"adopted {_name(certificate)}: it has signed a leaf in use")
            case Publish(place):
                return await self._publish(place)
            case Mark(one, at):
                await self._keep(lines.changed(self.line, one, replace(one, published_at=at)))
                text = "is trusted everywhere" if at else "is not trusted everywhere"
                return Done(OTHER, self.ca.name, f"{_name(one.certificate)} {text}")
            case Issue(_, signer, reason):
                return await self._issue(signer, reason, now)
            case Drop(one):
                await self._keep(lines.changed(self.line, one, None))
                return Done(OTHER, self.ca.name, f"dropped {_name(one.certificate)}: all that it signed has expired")

    async def _make(self, now: datetime) -> Done:
        made = Authority.create(self.ca.name, self.lifetimes.ca, now).credentials
        await self._keep((*self.line, Generation(made.certificate, made.key)))
        return Done(MADE, self.ca.name, f"made {_name(made.certificate)}")

    async def _publish(self, place: str) -> Done:
        bundle = lines.bundle(self.line)
        if (why := self.unknown.get(place)) is not None:
            raise why
        if place == self.trusted_in.name:
            others = lines.pem(*sorted(self.others, key=lambda one: one.subject.rfc4514_string()))
            await Vault(self.api).put(place, self.trusted_in.kept, {self.trusted_key: bundle + others})
        else:
            await self.configurations[place].publish(self.api, bundle)
        return Done(OTHER, place, f"published {len(self.line)} CA(s) of {self.ca.name}")

    async def _issue(self, signer: Generation, reason: str, now: datetime) -> Done:
        if self.leaf is None:
            raise LookupError("no leaf is due where none may be touched")
        issued = self.issue(signer.authority(), now)
        line = lines.signing(self.line, signer, issued.certificate)
        # First it is written down that this CA has signed it: a leaf that nobody knows of would outlive its CA.
        await self._keep(line)
        data = {
            CERTIFICATE: lines.pem(issued.certificate),
            KEY: key_pem(issued.key),
            self.trusted_key: lines.bundle(line),
        }
        former = _leaf(self.leaf.kept, frozenset()).certificate
        if former is not None:
            data[FORMER] = lines.pem(former)
        if not self.leaf.kept.exists:
            if any(not value for value in self.beside_leaf.values()):
                raise CertsError(
                    f"Secret {self.leaf.name} waits for the other CA", "see what keeps that one from being made"
                )
            data = {**self.beside_leaf, **data}
        await Vault(self.api).put(self.leaf.name, self.leaf.kept, data, self.leaf_kind)
        ends = f"{issued.certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
        return Done(MADE, self.leaf.name, f"issued by {_name(signer.certificate)}, until {ends}: {reason}")

    async def _keep(self, line: Line) -> None:
        await Vault(self.api).put(self.ca.name, self.ca.kept, {LINE: lines.written(line), "ca.crt": lines.bundle(line)})


def _trusts(found: Configuration) -> tuple[Bundle, ...]:
    """Return whom it trusts; and nobody, for it is not right yet, where cert-manager's injector writes it too."""
    return found.trusts if found.injected_from is None else (*found.trusts, frozenset())


def certificates(text: bytes) -> Bundle:
    try:
        return frozenset(x509.load_pem_x509_certificates(text))
    except ValueError:
        return frozenset()


def _leaf(kept: Kept, names: frozenset[x509.GeneralName]) -> Leaf:
    try:
        certificate = x509.load_pem_x509_certificate(kept.data[CERTIFICATE])
    except (KeyError, ValueError):
        return Leaf()
    try:
        key = load_pem_private_key(kept.data[KEY], password=None)
        return Leaf(certificate, key.public_key() == certificate.public_key(), names <= {*_names(certificate)})
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
        return Leaf(certificate, is_whole=False)


def _names(certificate: x509.Certificate) -> tuple[x509.GeneralName, ...]:
    try:
        return tuple(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return ()


def _name(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string()
