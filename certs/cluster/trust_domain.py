"""Trust domain in a cluster: the generations of one CA, its leaf, the bundles that trust it, and the rotation steps."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from certs import ca_generations
from certs.authority import Authority, KeyPair
from certs.ca_generations import Generation, Generations
from certs.cluster.api import Api
from certs.cluster.loop import MADE, OTHER, Action
from certs.cluster.secrets import SecretStore, StoredSecret
from certs.cluster.webhooks import WebhookConfiguration
from certs.errors import CertsError
from certs.lifetimes import Lifetimes
from certs.rotation import Adopt, Bundle, Drop, Issue, Leaf, Make, MarkPublished, Publish, RotationState, Step
from certs.token_issuer import encode_key

GENERATIONS = "line.json"
CERTIFICATE, KEY = "tls.crt", "tls.key"
FORMER = "former.crt"
"""The former leaf: a client that reloads late still presents it for some minutes."""
PEMS = ("first.pem", "second.pem")
"""The API server's leaf for each port, if it calls two."""


@dataclass(frozen=True, slots=True)
class NamedSecret:
    """A Secret with its name, as it was read."""

    name: str
    secret: StoredSecret

    def read_generations(self) -> Generations:
        text = self.secret.data.get(GENERATIONS)
        return ca_generations.decode(text, f"Secret {self.name}: {GENERATIONS}") if text is not None else ()

    def read_names(self) -> tuple[x509.GeneralName, ...]:
        """Return the SANs of its leaf."""
        found = _read_leaf(self.secret, frozenset()).certificate
        return _read_names(found) if found is not None else ()


@dataclass(frozen=True, slots=True)
class TrustDomain:
    """One CA with its leaf and bundles. `leaf` is None if its Secret may not be written; then none is issued."""

    api: Api
    ca: NamedSecret
    generations: Generations
    lifetimes: Lifetimes
    leaf: NamedSecret | None
    issue: Callable[[Authority, datetime], KeyPair]
    trusted_in: NamedSecret
    """The Secret whose `trusted_key` is the bundle for the other side."""
    trusted_key: str
    others: Bundle = frozenset()
    """Further CAs in that bundle, added by the operator."""
    leaf_kind: str = "Opaque"
    beside_leaf: Mapping[str, bytes] = field(default_factory=dict)
    """Further content of the leaf's Secret when it is created."""
    names: frozenset[x509.GeneralName] = frozenset()
    """SANs that the leaf must have."""
    configurations: Mapping[str, WebhookConfiguration] = field(default_factory=dict)
    unknown: Mapping[str, CertsError] = field(default_factory=dict)
    """Why the bundle in a place cannot be read, by place."""

    def build_state(self) -> RotationState:
        places: dict[str, tuple[Bundle, ...]] = dict.fromkeys(self.unknown, (frozenset(),))
        places |= {place: _list_bundles(found) for place, found in self.configurations.items()}
        if self.trusted_in.secret.exists:
            trusted = parse_certificates(self.trusted_in.secret.data.get(self.trusted_key, b""))
            # Without those others; a missing one makes the bundle differ, so that it is published again.
            places[self.trusted_in.name] = (trusted ^ self.others,)
        leaves = {self.leaf.name: _read_leaf(self.leaf.secret, self.names)} if self.leaf is not None else {}
        secret = self.leaf.secret.data if self.leaf is not None else {}
        used = tuple(leaf for key in (FORMER, *PEMS) for leaf in parse_certificates(secret.get(key, b"")))
        return RotationState(self.generations, places, leaves, self.others, used, frozenset(self.unknown))

    def list_ends(self) -> Iterator[tuple[str, datetime]]:
        """Yield the expiry of the CA and of the leaf, by Secret."""
        if self.generations:
            yield self.ca.name, self.generations[-1].certificate.not_valid_after_utc
        if self.leaf is not None and (found := _read_leaf(self.leaf.secret, frozenset()).certificate) is not None:
            yield self.leaf.name, found.not_valid_after_utc

    async def take(self, step: Step, now: datetime) -> Action:
        """Take one step that is due. The state must be read again afterwards."""
        match step:
            case Make():
                return await self._make(now)
            case Adopt(certificate, ends):
                await self._save((Generation(certificate, None, now, ends), *self.generations))
                return Action(OTHER, self.ca.name, f"adopted {_format_name(certificate)}: it has signed a leaf in use")
            case Publish(place):
                return await self._publish(place)
            case MarkPublished(generation, at):
                await self._save(
                    ca_generations.replace_generation(
                        self.generations, generation, replace(generation, published_at=at)
                    )
                )
                text = "is trusted everywhere" if at else "is not trusted everywhere"
                return Action(OTHER, self.ca.name, f"{_format_name(generation.certificate)} {text}")
            case Issue(_, signer, reason):
                return await self._issue(signer, reason, now)
            case Drop(generation):
                await self._save(ca_generations.replace_generation(self.generations, generation, None))
                return Action(
                    OTHER,
                    self.ca.name,
                    f"dropped {_format_name(generation.certificate)}: all that it signed has expired",
                )

    async def _make(self, now: datetime) -> Action:
        made = Authority.create(self.ca.name, self.lifetimes.ca, now).key_pair
        await self._save((*self.generations, Generation(made.certificate, made.key)))
        return Action(MADE, self.ca.name, f"made {_format_name(made.certificate)}")

    async def _publish(self, place: str) -> Action:
        bundle = ca_generations.encode_bundle(self.generations)
        if (why := self.unknown.get(place)) is not None:
            raise why
        if place == self.trusted_in.name:
            others = ca_generations.encode_pem(*sorted(self.others, key=lambda ca: ca.subject.rfc4514_string()))
            await SecretStore(self.api).put(place, self.trusted_in.secret, {self.trusted_key: bundle + others})
        else:
            await self.configurations[place].publish(self.api, bundle)
        return Action(OTHER, place, f"published {len(self.generations)} CA(s) of {self.ca.name}")

    async def _issue(self, signer: Generation, reason: str, now: datetime) -> Action:
        if self.leaf is None:
            raise LookupError("no leaf is due where its Secret may not be written")
        issued = self.issue(signer.build_authority(), now)
        generations = ca_generations.record_signing(self.generations, signer, issued.certificate)
        # First record that this CA has signed it: an unrecorded leaf would outlive its CA.
        await self._save(generations)
        data = {
            CERTIFICATE: ca_generations.encode_pem(issued.certificate),
            KEY: encode_key(issued.key),
            self.trusted_key: ca_generations.encode_bundle(generations),
        }
        former = _read_leaf(self.leaf.secret, frozenset()).certificate
        if former is not None:
            data[FORMER] = ca_generations.encode_pem(former)
        if not self.leaf.secret.exists:
            if any(not value for value in self.beside_leaf.values()):
                raise CertsError(f"Secret {self.leaf.name} waits for the other CA", "see why that one is not created")
            data = {**self.beside_leaf, **data}
        await SecretStore(self.api).put(self.leaf.name, self.leaf.secret, data, self.leaf_kind)
        ends = f"{issued.certificate.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}"
        return Action(MADE, self.leaf.name, f"issued by {_format_name(signer.certificate)}, until {ends}: {reason}")

    async def _save(self, generations: Generations) -> None:
        await SecretStore(self.api).put(
            self.ca.name,
            self.ca.secret,
            {GENERATIONS: ca_generations.encode(generations), "ca.crt": ca_generations.encode_bundle(generations)},
        )


def _list_bundles(found: WebhookConfiguration) -> tuple[Bundle, ...]:
    """Return its bundles; plus an empty one, so that it is published, where cert-manager's injector writes it too."""
    return found.trusts if found.injected_from is None else (*found.trusts, frozenset())


def parse_certificates(text: bytes) -> Bundle:
    try:
        return frozenset(x509.load_pem_x509_certificates(text))
    except ValueError:
        return frozenset()


def _read_leaf(secret: StoredSecret, names: frozenset[x509.GeneralName]) -> Leaf:
    try:
        certificate = x509.load_pem_x509_certificate(secret.data[CERTIFICATE])
    except (KeyError, ValueError):
        return Leaf()
    try:
        key = load_pem_private_key(secret.data[KEY], password=None)
        return Leaf(certificate, key.public_key() == certificate.public_key(), names <= {*_read_names(certificate)})
    except (KeyError, ValueError, TypeError, UnsupportedAlgorithm):
        return Leaf(certificate, is_whole=False)


def _read_names(certificate: x509.Certificate) -> tuple[x509.GeneralName, ...]:
    try:
        return tuple(certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return ()


def _format_name(certificate: x509.Certificate) -> str:
    return certificate.subject.rfc4514_string()
