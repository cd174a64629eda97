"""Authentication behind a proxy: the proxy by its own certificate, the caller by the forwarded one and a token."""

from collections.abc import Callable
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from webhook.authentication.authenticator import Authenticator
from webhook.authentication.certificate_identity import CertificateIdentity, read_certificate
from webhook.authentication.chain_verifier import ClientChainVerifier, ForeignCertificateError, find_obstacle
from webhook.authentication.client_ca import format_subject, parse_authorities
from webhook.authentication.identities import Identities
from webhook.authentication.reasons import AuthFailure
from webhook.authentication.strategies import (
    AUTHORIZATION,
    FORWARDED_CERTIFICATE,
    AuthenticatedCall,
    AuthenticationStrategy,
    Headers,
)
from webhook.authentication.xfcc import parse_forwarded_certificate
from webhook.errors import AuthenticationError, UserError
from webhook.ports import Clock, CurrentValue
from webhook.support.watched_file import WatchedFile

_FILE_BYTES_MAX = 1024 * 1024
_US = 1_000_000


class ForwardedCaFile(WatchedFile[ClientChainVerifier]):
    """The CAs of callers behind a proxy. After a change, every certificate is verified again at its next call.

    Expired CAs are accepted at startup only, since this server may be the one that renews them.
    """

    def __init__(self, path: Path, on_reading: Callable[[str | None], None] = lambda _: None) -> None:
        is_start = True

        def parse(contents: tuple[bytes, ...]) -> ClientChainVerifier:
            nonlocal is_start
            chains = _build_verifier(path, contents[0], may_have_expired=is_start)
            is_start = False
            return chains

        super().__init__([path], _FILE_BYTES_MAX, parse, on_reading)


class ForwardedCertificateStrategy(AuthenticationStrategy):
    """Takes the caller's certificate, and nothing else, from a listed proxy; a proxy itself cannot be a caller.

    Chain, purpose and validity of the forwarded certificate are verified again here.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        identities: CurrentValue[Identities],
        authorities: CurrentValue[ClientChainVerifier],
        clock: Clock,
    ) -> None:
        self._authenticator = authenticator
        self._identities = identities
        self._authorities = authorities
        self._clock = clock

    def authenticate(self, peer_der: bytes | None, headers: Headers, path: str) -> AuthenticatedCall:
        now_seconds = self._clock.now_us() / _US
        self._check_hop(peer_der, now_seconds)
        der = parse_forwarded_certificate(headers.getall(FORWARDED_CERTIFICATE, []))
        try:
            self._authorities.value.check(der, now_seconds)
        except ForeignCertificateError as error:
            raise AuthenticationError(AuthFailure.FORWARDED_FOREIGN, f"the forwarded certificate: {error}") from None
        if self._is_proxy(_read_identity(der)):
            raise AuthenticationError(AuthFailure.NOT_A_PROXY, "a proxy was forwarded as a caller", status=403)
        return AuthenticatedCall(self._authenticator.authenticate(der, headers.getall(AUTHORIZATION, ())), path)

    async def refetch_keys(self) -> bool:
        return await self._authenticator.refetch_keys()

    def _check_hop(self, peer_der: bytes | None, now_seconds: float) -> None:
        if not peer_der:
            raise AuthenticationError(AuthFailure.NO_CERTIFICATE, "the connection has no client certificate")
        hop = _read_identity(peer_der)
        if not self._is_proxy(hop):
            raise AuthenticationError(
                AuthFailure.NOT_A_PROXY, f"{hop.name!r} is not on the list of proxies", status=403
            )
        if now_seconds >= hop.expires_at_seconds:
            raise AuthenticationError(
                AuthFailure.CERTIFICATE_EXPIRED, f"the proxy {hop.name!r} expired while its connection was open"
            )

    def _is_proxy(self, certificate: CertificateIdentity) -> bool:
        proxies = self._identities.value.proxies
        return any(certificate.has_name(proxy.certificate_field, proxy.certificate_name) for proxy in proxies)


@lru_cache(maxsize=1024)
def _read_identity(der: bytes) -> CertificateIdentity:
    """Return the identity in a certificate, cached. Only certificates with a verified chain are passed."""
    return read_certificate(der, sha256(der).digest())


def _build_verifier(path: Path, content: bytes, *, may_have_expired: bool) -> ClientChainVerifier:
    authorities = parse_authorities(path, content, may_have_expired=may_have_expired)
    for authority in authorities:
        if (found := find_obstacle(authority)) is not None:
            raise UserError(
                f"{path}: {format_subject(authority)} cannot verify certificates behind a proxy: {found}",
                "give one with a P-256, P-384, P-521 or RSA (2048 bits or more) key and no critical extensions "
                "such as certificatePolicies",
            )
    return ClientChainVerifier(authorities)
