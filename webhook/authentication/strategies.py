"""Authentication strategies, one for each `--client-identity`: the protocol, and the one for mutual TLS."""

from typing import NamedTuple, Protocol

from multidict import CIMultiDictProxy, istr

from webhook.authentication.authenticator import Authenticator, VerifiedToken
from webhook.authentication.reasons import AuthFailure, refuse
from webhook.ports import Caller

FORWARDED_CERTIFICATE = istr("X-Forwarded-Client-Cert")
AUTHORIZATION = istr("Authorization")
"""Names as `istr`: a lookup of any other text folds its case again."""
Headers = CIMultiDictProxy[str]


class AuthenticatedCall(NamedTuple):
    """An authenticated call: its caller, and the path of its route."""

    caller: Caller
    path: str
    verified: VerifiedToken | None = None
    """Lets `still_holds` check the result again for a later call; None: every call is authenticated in full."""


class AuthenticationStrategy(Protocol):
    """Authenticates a call before its body is read, and before the response reveals which paths exist."""

    def authenticate(self, peer_der: bytes | None, headers: Headers, path: str) -> AuthenticatedCall:
        """Return the caller and the route's path; AuthenticationError if the caller is unknown.

        `peer_der` is the client certificate of the connection in DER, None if it has none.
        """
        ...

    def still_holds(self, verified: VerifiedToken) -> bool:  # noqa: ARG002  for strategies that override it
        """Return whether `authenticate` would now return the same for a call with the same header and certificate.

        Only a strategy whose `authenticate` returns a verified token overrides it.
        """
        return False

    async def refetch_keys(self) -> bool:
        """After a KeyNotFoundError, fetch the keys; return whether there are new ones."""
        ...


def reject_forwarded(headers: Headers) -> None:
    """Reject a call with a forwarded certificate where no proxy is expected."""
    if FORWARDED_CERTIFICATE in headers:
        refuse(AuthFailure.FORWARDED, f"{FORWARDED_CERTIFICATE} was sent, and no proxy is expected here", status=403)


class MutualTlsStrategy:
    """Authenticates by the connection's own client certificate and a token, without a proxy in between."""

    def __init__(self, authenticator: Authenticator) -> None:
        self._authenticator = authenticator
        self.still_holds = authenticator.still_holds

    def authenticate(self, peer_der: bytes | None, headers: Headers, path: str) -> AuthenticatedCall:
        reject_forwarded(headers)
        verified = self._authenticator.identify(peer_der, headers.getall(AUTHORIZATION, ()))
        return AuthenticatedCall(verified.caller, path, verified)

    async def refetch_keys(self) -> bool:
        return await self._authenticator.refetch_keys()
