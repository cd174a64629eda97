"""CA generations of one trust domain, with their keys, and their JSON form: the state of a rotation."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from certs.authority import Authority, KeyPair
from certs.errors import CertsError
from certs.inspection import is_signed_by
from certs.token_issuer import encode_key

_MOMENT = "%Y-%m-%dT%H:%M:%SZ"
_FIELDS = {"certificate", "key", "publishedAt", "leavesEnd"}


@dataclass(frozen=True, slots=True)
class Generation:
    """One CA."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None = None
    """None once a later CA signs: a deleted key cannot be stolen."""
    published_at: datetime | None = None
    """When it was first read back from every place where its leaves are verified."""
    leaves_end: datetime | None = None
    """When the last leaf that it signed expires; None while it has signed none."""

    @property
    def is_signing(self) -> bool:
        return self.leaves_end is not None

    def is_valid(self, now: datetime) -> bool:
        return self.certificate.not_valid_before_utc <= now < self.certificate.not_valid_after_utc

    def build_authority(self) -> Authority:
        if self.key is None:
            raise LookupError("a generation without a key cannot sign")
        return Authority.from_key_pair(KeyPair(self.certificate, self.key))


Generations = tuple[Generation, ...]
"""Oldest first."""


def find_issuer(leaf: x509.Certificate, cas: Sequence[x509.Certificate]) -> x509.Certificate | None:
    return next((ca for ca in cas if is_signed_by(leaf, ca)), None)


def record_signing(generations: Generations, signer: Generation, leaf: x509.Certificate) -> Generations:
    """Return the generations after `signer` has signed `leaf`: earlier CAs no longer sign and lose their keys."""
    at = generations.index(signer)
    ends = max(signer.leaves_end or leaf.not_valid_after_utc, leaf.not_valid_after_utc)
    return (
        *(replace(older, key=None) for older in generations[:at]),
        replace(signer, leaves_end=ends),
        *generations[at + 1 :],
    )


def replace_generation(generations: Generations, former: Generation, now: Generation | None) -> Generations:
    """Return the generations with one replaced, or removed."""
    replaced = (now if generation is former else generation for generation in generations)
    return tuple(generation for generation in replaced if generation is not None)


def encode_bundle(generations: Generations) -> bytes:
    """Return all certificates as PEM, the newest first."""
    return encode_pem(*(generation.certificate for generation in reversed(generations)))


def encode_pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def encode(generations: Generations) -> bytes:
    """Return the generations as JSON, with their keys: a secret."""
    rows = [
        {
            "certificate": encode_pem(generation.certificate).decode(),
            "key": encode_key(generation.key).decode() if generation.key is not None else None,
            "publishedAt": _format_time(generation.published_at),
            "leavesEnd": _format_time(generation.leaves_end),
        }
        for generation in generations
    ]
    return json.dumps({"generations": rows}, indent=1).encode() + b"\n"


def decode(text: bytes, place: str) -> Generations:
    """Parse generations from their JSON form; CertsError, which names `place`, for anything else."""
    try:
        rows = json.loads(text)["generations"]
        return tuple(_decode_generation(row) for row in rows)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, UnsupportedAlgorithm) as error:
        raise CertsError(
            f"{place}: not a list of CA generations ({type(error).__name__})",
            "restore its former content; or delete it, and a new CA succeeds the old one",
        ) from None


def _decode_generation(row: dict[str, str | None]) -> Generation:
    if set(row) != _FIELDS:
        raise ValueError
    certificate = x509.load_pem_x509_certificate(str(row["certificate"]).encode())
    key = load_pem_private_key(row["key"].encode(), None) if row["key"] is not None else None
    if key is not None and (
        not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key()
    ):
        raise ValueError
    return Generation(certificate, key, _parse_time(row["publishedAt"]), _parse_time(row["leavesEnd"]))


def _format_time(at: datetime | None) -> str | None:
    return at.strftime(_MOMENT) if at is not None else None


def _parse_time(text: str | None) -> datetime | None:
    return datetime.strptime(text, _MOMENT).replace(tzinfo=UTC) if text is not None else None
