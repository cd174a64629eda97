"""Reduced mode: a secret URL path identifies the caller, for API servers that cannot authenticate themselves."""

from hashlib import sha256
from hmac import compare_digest

from webhook.authentication.identities import Role
from webhook.authentication.reasons import AuthFailure
from webhook.authentication.strategies import Authenticated, AuthenticationStrategy, Headers
from webhook.errors import AuthenticationError
from webhook.ports import Caller, CurrentValue

WARNING = "reduced mode: callers are not authenticated"

# The caller is unknown; it has the API server's permissions.
_CALLER = Caller(Role.APISERVER, "reduced-mode", issuer="", subject="", certificate="")


class SecretPathStrategy(AuthenticationStrategy):
    """`/<path>/mutate`, `/<path>/validate`, `/<path>/validate-policy`; the same 404 for everything else.

    All digests are compared, each in constant time, so that timing does not reveal a partly correct guess.
    """

    def __init__(self, digests: CurrentValue[tuple[bytes, ...]]) -> None:
        self._digests = digests

    def authenticate(self, peer_der: bytes | None, headers: Headers, path: str) -> Authenticated:  # noqa: ARG002  part of the protocol; they prove nothing here
        secret, _, route = path.removeprefix("/").rpartition("/")
        digest = sha256(secret.encode(errors="surrogatepass")).digest()
        if sum(compare_digest(digest, good) for good in self._digests.value) == 0:
            raise AuthenticationError(AuthFailure.PATH, "unknown path", status=404)
        return Authenticated(_CALLER, f"/{route}")

    async def refetch_keys(self) -> bool:
        """Return False: no token is needed."""
        return False
