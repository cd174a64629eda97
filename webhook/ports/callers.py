"""Who calls, and the keys that tell."""

from typing import Protocol

from msgspec import Struct


class Caller(Struct, frozen=True):
    """Who is calling, after certificate and token agreed on one configured identity."""

    role: str
    client_id: str
    issuer: str
    subject: str
    certificate: str


class TokenKey(Struct, frozen=True):
    """A public key of the key set, bound to one algorithm. `key` is what PyJWT verifies with."""

    kid: str
    algorithm: str
    key: object


class TokenKeys(Protocol):
    """The keys that tokens may be signed with."""

    def find(self, kid: str) -> TokenKey | None: ...

    @property
    def generation(self) -> int:
        """Changes whenever the set does, so that caches can tell."""
        ...
