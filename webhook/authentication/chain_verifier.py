"""Verification of a client certificate's chain against the current CAs, without a TLS handshake."""

from collections.abc import Sequence
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.verification import Criticality, ExtensionPolicy, Policy, PolicyBuilder, Store, VerificationError

from webhook.authentication.certificate_identity import UNREADABLE
from webhook.authentication.client_leaf import find_leaf_fault

_DEPTH_MAX = 4
_CACHED_MAX = 1024
_CURVES = (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1)


class ForeignCertificateError(Exception):
    """A certificate that does not verify against the CAs; the message says why, for the log."""


def find_obstacle(authority: x509.Certificate) -> str | None:
    """Return why no certificate of this CA can ever be verified; None if one can."""
    if (fault := _find_key_fault(authority.public_key())) is not None:
        return fault
    verifier = (
        PolicyBuilder()
        .store(Store([authority]))
        .time(authority.not_valid_before_utc)
        .extension_policies(ca_policy=_CA_POLICY, ee_policy=_CA_POLICY)
        .build_client_verifier()
    )
    try:
        verifier.verify(authority, [])
    except (VerificationError, UnsupportedAlgorithm, *UNREADABLE) as error:
        return " ".join(str(error).split())
    return None


def _find_key_fault(key: object) -> str | None:
    match key:
        case rsa.RSAPublicKey():
            return None  # weak ones are rejected earlier, by `client_ca.parse_authorities`
        case ec.EllipticCurvePublicKey():
            return f"a key on the curve {key.curve.name}" if not isinstance(key.curve, _CURVES) else None
        case _:
            return f"a key of the kind {type(key).__name__.removesuffix('PublicKey')}"


class ClientChainVerifier:
    """Verifies client certificates against CAs. Intermediate CAs must be among them: requests carry none."""

    def __init__(self, authorities: Sequence[x509.Certificate]) -> None:
        self._authorities = tuple(authorities)
        self._store = Store(list(authorities))
        self.not_after_seconds = min(authority.not_valid_after_utc.timestamp() for authority in self._authorities)
        """Expiry of the first CA to expire, in seconds since the Unix epoch."""
        self.end_seconds = max(authority.not_valid_after_utc.timestamp() for authority in self._authorities)
        """Expiry of the last CA to expire: no certificate verifies after it."""
        self._until_seconds: dict[bytes, tuple[float, float]] = {}
        """Validity of each certificate's chain, from and until, by its DER, so that each is verified once."""

    def check(self, der: bytes, now_seconds: float) -> None:
        """Verify chain, purpose and validity; ForeignCertificateError if that fails. Only successes are cached."""
        known = self._until_seconds.get(der)
        if known is not None and known[0] <= now_seconds < known[1]:
            return
        chain = self._verify_chain(der, now_seconds)
        if len(self._until_seconds) >= _CACHED_MAX:
            del self._until_seconds[next(iter(self._until_seconds))]
        self._until_seconds[der] = (
            max(certificate.not_valid_before_utc.timestamp() for certificate in chain),
            min(certificate.not_valid_after_utc.timestamp() for certificate in chain),
        )

    def _verify_chain(self, der: bytes, now_seconds: float) -> list[x509.Certificate]:
        verifier = (
            PolicyBuilder()
            .store(self._store)
            .time(datetime.fromtimestamp(now_seconds, UTC))
            .max_chain_depth(_DEPTH_MAX)
            .extension_policies(ca_policy=_CA_POLICY, ee_policy=_LEAF_POLICY)
            .build_client_verifier()
        )
        try:
            leaf = x509.load_der_x509_certificate(der)
            if (fault := find_leaf_fault(leaf)) is not None:
                raise ForeignCertificateError(fault)
            return verifier.verify(leaf, list(self._authorities)).chain
        except (VerificationError, UnsupportedAlgorithm, *UNREADABLE) as error:
            raise ForeignCertificateError(" ".join(str(error).split())) from None


def _require_ca(_: Policy, __: x509.Certificate, constraints: x509.BasicConstraints | None) -> None:
    if constraints is None or not constraints.ca:
        raise ValueError("its issuer is no CA")


def _require_certificate_signing(_: Policy, __: x509.Certificate, usage: x509.KeyUsage | None) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("its issuer is not made to sign certificates (no key usage keyCertSign)")


_LEAF_POLICY = ExtensionPolicy.permit_all()
_CA_POLICY = (
    ExtensionPolicy.permit_all()
    .require_present(x509.BasicConstraints, Criticality.AGNOSTIC, _require_ca)
    .may_be_present(x509.KeyUsage, Criticality.AGNOSTIC, _require_certificate_signing)
)
