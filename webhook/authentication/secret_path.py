"""Reduced mode: where the API server cannot show who it is, a path that nobody else was told stands for it."""

from hashlib import sha256
from hmac import compare_digest

from webhook.authentication.identities import Role
from webhook.authentication.reasons import AuthFailure
from webhook.authentication.strategies import Headers
from webhook.errors import AuthenticationError
from webhook.ports import Caller, CurrentValue

WARNING = "reduced mode: callers are not authenticated"

# Who it is nobody can tell; what it may do is what the API server may.
_CALLER = Caller(Role.APISERVER, "reduced-mode", issuer="", subject="", certificate="")


class SecretPathStrategy:
    """`/<path>/mutate`, `/<path>/validate`, `/<path>/validate-policy`; one answer for all else.

    Digests are compared, always all of them: how long it takes tells nothing of how much was guessed right.
    """

    def __init__(self, digests: CurrentValue[tuple[bytes, ...]]) -> None:
        self._digests = digests

    async def authenticate(self, peer_der: bytes | None, headers: Headers, path: str) -> tuple[Caller, str]:  # noqa: ARG002  whoever has them: they prove nothing here
        secret, _, route = path.removeprefix("/").rpartition("/")
        digest = sha256(secret.encode(errors="surrogatepass")).digest()
        if sum(compare_digest(digest, good) for good in self._digests.value) == 0:
            raise AuthenticationError(AuthFailure.PATH, "a path that was told to nobody", status=404)
        return _CALLER, f"/{route}"
