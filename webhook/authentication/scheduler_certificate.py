"""Authentication of kube-scheduler by its client certificate alone: it can send no token to an extender."""

from collections.abc import Collection
from hashlib import sha256

from webhook.authentication.certificate_identity import CertificateIdentity, read_certificate
from webhook.authentication.identities import CertificateField, Role
from webhook.authentication.reasons import AuthFailure, refuse
from webhook.authentication.strategies import AuthenticatedCall, AuthenticationStrategy, Headers, reject_forwarded
from webhook.core.lru_cache import LruCache
from webhook.ports import Caller, Clock

_CERTIFICATES_MAX = 64
_US = 1_000_000
_NAMES = (CertificateField.URI, CertificateField.COMMON_NAME, CertificateField.DNS_NAME)


class CertificateStrategy(AuthenticationStrategy):
    """An `AuthenticationStrategy` without tokens. The handshake has verified the certificate's chain."""

    def __init__(self, names: Collection[str], clock: Clock) -> None:
        """Create it. `names` are the common names, SPIFFE IDs or DNS names of which a certificate must have one."""
        self._names = tuple(names)
        self._clock = clock
        self._known: LruCache[bytes, CertificateIdentity] = LruCache(_CERTIFICATES_MAX)

    def authenticate(self, peer_der: bytes | None, headers: Headers, path: str) -> AuthenticatedCall:
        reject_forwarded(headers)
        if not peer_der:
            refuse(AuthFailure.NO_CERTIFICATE, "the connection has no client certificate")
        certificate = self._known.get(peer_der)
        if certificate is None:
            certificate = read_certificate(peer_der, sha256(peer_der).digest())
            self._known.keep(peer_der, certificate)
        if self._clock.now_us() >= certificate.expires_at_seconds * _US:
            refuse(AuthFailure.CERTIFICATE_EXPIRED, f"{certificate.name!r} expired while its connection was open")
        if not any(certificate.has_name(field, name) for field in _NAMES for name in self._names):
            detail = f"the certificate {certificate.name!r} is not of a scheduler in --scheduler-names"
            refuse(AuthFailure.IDENTITY_MISMATCH, detail, status=403)
        expiry_seconds = int(certificate.expires_at_seconds)
        return AuthenticatedCall(
            Caller(Role.SCHEDULER, certificate.name, "", "", certificate.name, 0, expiry_seconds), path
        )

    async def refetch_keys(self) -> bool:
        """Return False: no keys are used."""
        return False
