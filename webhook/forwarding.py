"""Behind a proxy: the hop is known by its certificate, the caller by the one that the hop was shown, and a token."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from cryptography import x509

from webhook.authentication import Authenticator
from webhook.certificates import CertificateIdentity, read_certificate
from webhook.client_chains import ClientChains, ForeignCertificateError
from webhook.doors import FORWARDED_CERTIFICATE, Headers
from webhook.errors import AuthenticationError, UserError
from webhook.forwarded import forwarded_certificate
from webhook.identities import Identities
from webhook.ports import Caller, Clock, Kept
from webhook.refusals import Refusal
from webhook.reloading import Reloading

_FILE_BYTES_MAX = 1024 * 1024
_US = 1_000_000


class ForwardedAuthorities(Reloading[ClientChains]):
    """The CAs of callers behind a proxy; a change judges every certificate anew, at its next call."""

    def __init__(self, path: Path, on_reading: Callable[[str | None], None] = lambda _: None) -> None:
        super().__init__([path], _FILE_BYTES_MAX, lambda contents: _chains(contents[0], path), on_reading)


class ForwardedDoor:
    """Believes a proxy on the list which certificate it was shown, and nothing else; a proxy is no caller itself.

    What the proxy has verified is verified again: chain, purpose and time are ours to answer for.
    """

    def __init__(
        self, authenticator: Authenticator, identities: Kept[Identities], authorities: Kept[ClientChains], clock: Clock
    ) -> None:
        self._authenticator = authenticator
        self._identities = identities
        self._authorities = authorities
        self._clock = clock

    async def admit(self, peer_der: bytes | None, headers: Headers, path: str) -> tuple[Caller, str]:
        now_seconds = self._clock.now_us() / _US
        self._check_hop(peer_der, now_seconds)
        der = forwarded_certificate(headers.getall(FORWARDED_CERTIFICATE, []))
        try:
            self._authorities.value.check(der, now_seconds)
        except ForeignCertificateError as error:
            raise AuthenticationError(Refusal.FORWARDED_FOREIGN, f"the forwarded certificate: {error}") from None
        if self._is_proxy(_names(der)):
            raise AuthenticationError(Refusal.NOT_A_PROXY, "a proxy was forwarded as a caller", status=403)
        return await self._authenticator.admit(der, headers.getall("Authorization", [])), path

    def _check_hop(self, peer_der: bytes | None, now_seconds: float) -> None:
        if not peer_der:
            raise AuthenticationError(Refusal.NO_CERTIFICATE, "the connection has no client certificate")
        hop = _names(peer_der)
        if not self._is_proxy(hop):
            raise AuthenticationError(Refusal.NOT_A_PROXY, f"{hop.name!r} is not on the list of proxies", status=403)
        if now_seconds >= hop.expires_at_seconds:
            raise AuthenticationError(
                Refusal.CERTIFICATE_EXPIRED, f"the proxy {hop.name!r} expired while its connection was open"
            )

    def _is_proxy(self, one: CertificateIdentity) -> bool:
        proxies = self._identities.value.proxies
        return any(one.bears(proxy.certificate_field, proxy.certificate_name) for proxy in proxies)


@lru_cache(maxsize=1024)
def _names(der: bytes) -> CertificateIdentity:
    """Read each certificate once; only those that a CA of ours has signed come here."""
    return read_certificate(der, sha256(der).digest())


def _chains(content: bytes, path: Path) -> ClientChains:
    remedy = "give the CAs that issue the certificates of callers behind the proxy, in PEM"
    try:
        authorities = x509.load_pem_x509_certificates(content)
    except ValueError:
        raise UserError(f"{path}: holds no certificate in PEM", remedy) from None
    for authority in authorities:
        try:
            is_ca = authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        except (x509.ExtensionNotFound, ValueError):
            is_ca = False
        if not is_ca:
            raise UserError(f"{path}: {authority.subject.rfc4514_string()} is not a CA certificate", remedy)
    if all(authority.not_valid_after_utc <= datetime.now(UTC) for authority in authorities):
        raise UserError(f"{path}: all CAs in it have expired: nobody could call", "give the present one")
    return ClientChains(authorities)
