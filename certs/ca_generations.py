"""A line of CAs, one generation after the other, and how it is written down: what a rotation must not forget."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from certs.authority import Authority, Credentials
from certs.errors import CertsError
from certs.inspection import signed_by
from certs.tokens.issuer import key_pem

_MOMENT = "%Y-%m-%dT%H:%M:%SZ"
_FIELDS = {"certificate", "key", "publishedAt", "leavesEnd"}


@dataclass(frozen=True, slots=True)
class Generation:
    """One CA of the line."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | None = None
    """None once another signs: what is not there cannot be stolen."""
    published_at: datetime | None = None
    """When it was first read back from everywhere that its leaves are verified."""
    leaves_end: datetime | None = None
    """When the last leaf expires that it has signed; None while it has signed none."""

    @property
    def is_signing(self) -> bool:
        return self.leaves_end is not None

    def is_valid(self, now: datetime) -> bool:
        return self.certificate.not_valid_before_utc <= now < self.certificate.not_valid_after_utc

    def authority(self) -> Authority:
        if self.key is None:
            raise LookupError("a generation without its key signs nothing")
        return Authority.of(Credentials(self.certificate, self.key))


Line = tuple[Generation, ...]
"""Oldest first."""


def issuer_of(leaf: x509.Certificate, cas: Sequence[x509.Certificate]) -> x509.Certificate | None:
    return next((ca for ca in cas if signed_by(leaf, ca)), None)


def signing(line: Line, signer: Generation, leaf: x509.Certificate) -> Line:
    """Return the line once `signer` has signed `leaf`: those before it sign no more, and need their keys no more."""
    at = line.index(signer)
    ends = max(signer.leaves_end or leaf.not_valid_after_utc, leaf.not_valid_after_utc)
    return (*(replace(older, key=None) for older in line[:at]), replace(signer, leaves_end=ends), *line[at + 1 :])


def changed(line: Line, former: Generation, now: Generation | None) -> Line:
    """Return the line with one of it replaced, or left out."""
    return tuple(one if one is not former else now for one in line if one is not former or now is not None)  # type: ignore[misc]  # None is left out


def bundle(line: Line) -> bytes:
    """Return all certificates of the line as PEM, the newest first."""
    return pem(*(one.certificate for one in reversed(line)))


def pem(*certificates: x509.Certificate) -> bytes:
    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)


def written(line: Line) -> bytes:
    """Return the line with its keys as JSON, for whoever keeps secrets."""
    rows = [
        {
            "certificate": pem(one.certificate).decode(),
            "key": key_pem(one.key).decode() if one.key is not None else None,
            "publishedAt": _told(one.published_at),
            "leavesEnd": _told(one.leaves_end),
        }
        for one in line
    ]
    return json.dumps({"generations": rows}, indent=1).encode() + b"\n"


def read(text: bytes, place: str) -> Line:
    """Return the line that was `written`; CertsError, which names its `place`, where it is something else."""
    try:
        rows = json.loads(text)["generations"]
        return tuple(_generation(row) for row in rows)
    except (ValueError, TypeError, KeyError, AttributeError, UnsupportedAlgorithm) as error:
        raise CertsError(
            f"{place}: is no line of CAs as it was written here ({type(error).__name__})",
            "put back what was there; or delete it, and a new CA takes over beside the old one",
        ) from None


def _generation(row: dict[str, str | None]) -> Generation:
    if set(row) != _FIELDS:
        raise ValueError
    certificate = x509.load_pem_x509_certificate(str(row["certificate"]).encode())
    key = load_pem_private_key(row["key"].encode(), None) if row["key"] is not None else None
    if key is not None and (
        not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != certificate.public_key()
    ):
        raise ValueError
    return Generation(certificate, key, _moment(row["publishedAt"]), _moment(row["leavesEnd"]))


def _told(at: datetime | None) -> str | None:
    return at.strftime(_MOMENT) if at is not None else None


def _moment(text: str | None) -> datetime | None:
    return datetime.strptime(text, _MOMENT).replace(tzinfo=UTC) if text is not None else None
