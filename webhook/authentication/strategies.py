"""How a call is let in: one door for each `--client-identity`. This one takes what the connection itself proves."""

from typing import Protocol

from multidict import CIMultiDictProxy

from webhook.authentication.authenticator import Authenticator
from webhook.authentication.reasons import AuthFailure
from webhook.errors import AuthenticationError
from webhook.ports import Caller

FORWARDED_CERTIFICATE = "X-Forwarded-Client-Cert"
Headers = CIMultiDictProxy[str]


class AuthenticationStrategy(Protocol):
    """Knows the caller before a byte of the body is read, and before anybody hears which paths there are."""

    async def authenticate(self, peer_der: bytes | None, headers: Headers, path: str) -> tuple[Caller, str]:
        """Return who calls, and the path that is meant; AuthenticationError for nobody we know.

        `peer_der` is the client certificate of the connection, None where it has none.
        """
        ...


class MutualTlsStrategy:
    """The certificate of the connection and a token: no proxy may stand between."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator

    async def authenticate(self, peer_der: bytes | None, headers: Headers, path: str) -> tuple[Caller, str]:
        if FORWARDED_CERTIFICATE in headers:
            detail = f"{FORWARDED_CERTIFICATE} was sent, and no proxy is expected here"
            raise AuthenticationError(AuthFailure.FORWARDED, detail, status=403)
        return await self._authenticator.authenticate_with_refresh(peer_der, headers.getall("Authorization", [])), path
