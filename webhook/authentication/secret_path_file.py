"""Reduced mode: the secret URL path that identifies the caller, and its file. Errors show none of its content."""

import re
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path

from webhook.authentication.identities import Role
from webhook.authentication.reasons import AuthFailure
from webhook.authentication.strategies import AuthenticatedCall, AuthenticationStrategy, Headers
from webhook.errors import AuthenticationError, UserError
from webhook.ports import Caller, CurrentValue
from webhook.support.watched_file import WatchedFile

WARNING = "reduced mode: callers are not authenticated"

# The caller is unknown; it has the API server's permissions.
_CALLER = Caller(Role.APISERVER, "reduced-mode", issuer="", subject="", certificate="")


class SecretPathStrategy(AuthenticationStrategy):
    """`/<path>/mutate`, `/<path>/validate`, `/<path>/validate-policy`; the same 404 for everything else.

    All digests are compared, each in constant time, so that timing does not reveal a partly correct guess.
    """

    def __init__(self, digests: CurrentValue[tuple[bytes, ...]]) -> None:
        self._digests = digests

    def authenticate(self, peer_der: bytes | None, headers: Headers, path: str) -> AuthenticatedCall:  # noqa: ARG002  part of the protocol; they prove nothing here
        secret, _, route = path.removeprefix("/").rpartition("/")
        digest = sha256(secret.encode(errors="surrogatepass")).digest()
        if sum(compare_digest(digest, good) for good in self._digests.value) == 0:
            raise AuthenticationError(AuthFailure.PATH, "unknown path", status=404)
        return AuthenticatedCall(_CALLER, f"/{route}")

    async def refetch_keys(self) -> bool:
        """Return False: no token is needed."""
        return False


_FILE_BYTES_MAX = 1024
_PATHS_MAX = 2
# The API server requires each segment of a Service's path to be a DNS name: no uppercase letters, no `_`.
_PATH = re.compile(r"[a-z0-9]{32,128}")
_DIFFERENT_CHARACTERS_MIN = 8
"""32 random hexadecimal digits have fewer distinct ones once in 25 million times: such a path is not random."""

_REMEDY = (
    "write one line of 32 to 128 random lowercase letters and digits: "
    "head -c 32 /dev/urandom | od -An -v -tx1 | tr -d ' \\n'"
)


class SecretPathFile(WatchedFile[tuple[bytes, ...]]):
    """SHA-256 of each currently accepted path."""

    def __init__(self, path: Path, on_reading: Callable[[str | None], None] = lambda _: None) -> None:
        super().__init__([path], _FILE_BYTES_MAX, lambda contents: _digest_paths(contents[0], path), on_reading)


def read_paths(content: bytes, path: Path) -> tuple[str, ...]:
    """Return the paths, first the one for the webhook configurations; UserError."""
    lines = enumerate(content.decode(errors="replace").splitlines(), 1)
    numbered = [(number, line.strip()) for number, line in lines if line.strip()]
    found = [line for _, line in numbered]
    if not 0 < len(found) <= _PATHS_MAX or len(set(found)) < len(found):
        raise UserError(
            f"{path}: holds {len(found)} lines: must be one path, or two different paths during a change", _REMEDY
        )
    for number, line in numbered:
        if not _PATH.fullmatch(line):
            raise UserError(
                f"{path}:{number}:1: (not shown): {len(line)} characters: not 32 to 128 lowercase letters and digits",
                _REMEDY,
            )
        if len(set(line)) < _DIFFERENT_CHARACTERS_MIN:
            raise UserError(
                f"{path}:{number}:1: (not shown): could be guessed: it has few different characters", _REMEDY
            )
    return tuple(found)


def _digest_paths(content: bytes, path: Path) -> tuple[bytes, ...]:
    return tuple(sha256(line.encode()).digest() for line in read_paths(content, path))
