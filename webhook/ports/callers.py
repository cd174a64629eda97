"""Who calls, and the keys that tell."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct

_T_co = TypeVar("_T_co", covariant=True)


class Caller(Struct, frozen=True):
    """Who is calling, after certificate and token agreed on one configured identity."""

    role: str
    client_id: str
    issuer: str
    subject: str
    certificate: str


class TokenKey(Struct, frozen=True):
    """A public key of a key set, bound to one algorithm. `key` is what PyJWT verifies with."""

    kid: str
    algorithm: str
    key: object
    issuer: str | None = None
    """The only one that it speaks for. None: any that has no keys of its own."""


class TokenKeys(Protocol):
    """The keys that tokens may be signed with, of all sources."""

    def find(self, kid: str) -> Sequence[TokenKey]:
        """Return the keys of that name, at most one of each source; waits for nothing."""
        ...

    def speaks(self, key: TokenKey, issuer: str) -> bool:
        """Return whether the key may sign for the issuer: no other does for one that has keys of its own."""
        ...

    @property
    def generation(self) -> int:
        """Changes whenever a key does, so that caches can tell."""
        ...

    async def look_again(self) -> bool:
        """Ask for keys that nobody here knows yet, unless that was done just now; return whether some have come."""
        ...


class KeySource(Protocol):
    """Where keys come from."""

    @property
    def name(self) -> str:
        """For people, and for metrics."""
        ...

    @property
    def keys(self) -> Mapping[str, TokenKey]:
        """Those that hold now, by kid. Empty before there are any, and when they are too old."""
        ...

    @property
    def claimed(self) -> Collection[str]:
        """Issuers that the source speaks for, or ever did: it keeps them when their keys are gone."""
        ...

    @property
    def may_claim(self) -> bool:
        """Whether it speaks for an issuer that nobody here knows yet."""
        ...

    @property
    def generation(self) -> int:
        """Grows whenever the keys change."""
        ...

    @property
    def trouble(self) -> str:
        """Why there are no keys, or no newer ones; "" where all is well."""
        ...

    async def look_again(self) -> None:
        """Look for new keys, unless that was done just now. Waits a moment at most, and never fails."""
        ...


class TokenRevocations(Protocol):
    """Tokens that are good in themselves and denied all the same."""

    def is_revoked(self, issuer: str, jti: str, now_us: int) -> bool: ...


class CurrentValue(Protocol[_T_co]):
    """A value that somebody keeps current."""

    @property
    def value(self) -> _T_co: ...

    @property
    def generation(self) -> int:
        """Changes whenever the value does."""
        ...
