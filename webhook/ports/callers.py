"""Callers, the keys that verify their tokens, and credentials with which the API server calls Podgate."""

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct


class Credentials(Protocol):
    """Source of credentials; UserError names what is missing and the remedy."""

    async def read_secret(self, name: str) -> dict[str, bytes]:
        """Return the data of a Secret."""
        ...

    async def request_token(self, account: str, audience: str, lifetime_seconds: int) -> str:
        """Return a new token of the cluster's own issuer for a service account."""
        ...


KEY_SET_BYTES_MAX = 256 * 1024
_T_co = TypeVar("_T_co", covariant=True)


class Caller(Struct, frozen=True):
    """Identity of a caller, on which certificate and token agreed."""

    role: str
    client_id: str
    issuer: str
    subject: str
    certificate: str
    token_expires_at_seconds: int = 0
    certificate_expires_at_seconds: int = 0
    """Since the Unix epoch; both are 0 in reduced mode, which verifies neither."""


class TokenKey(Struct, frozen=True):
    """A public key of a key set, bound to one algorithm. `key` is what PyJWT verifies with."""

    kid: str
    algorithm: str
    key: object
    issuer: str | None = None
    """The only issuer whose tokens it may verify. None: any issuer without keys of its own."""


class KeyDocument(Struct, frozen=True):
    """A JWKS document as published, of at most `KEY_SET_BYTES_MAX`. `name` is its source, for messages."""

    name: str
    content: bytes
    issuer: str | None = None
    """The issuer whose tokens its keys verify, if the publisher names it."""


class KeyPublisher(Protocol):
    """Publisher of a key set."""

    async def fetch(self) -> KeyDocument:
        """Return the current document; UserError if there is none."""
        ...


class TokenKeys(Protocol):
    """Keys that verify tokens, from all sources."""

    def find(self, kid: str) -> Sequence[TokenKey]:
        """Return the keys with that id, at most one of each source, without waiting."""
        ...

    def may_sign(self, key: TokenKey, issuer: str) -> bool:
        """Whether the key is valid for the issuer. For an issuer with keys of its own, only these are."""
        ...

    @property
    def generation(self) -> int:
        """Changes whenever a key does, to invalidate caches."""
        ...

    async def refetch(self) -> bool:
        """Fetch new keys, unless that was done just now; return whether there are any."""
        ...


class KeySource(Protocol):
    """Source of keys."""

    @property
    def name(self) -> str:
        """Name for messages and metrics."""
        ...

    @property
    def keys(self) -> Mapping[str, TokenKey]:
        """Valid keys by kid. Empty before the first fetch, and when they are too old."""
        ...

    @property
    def claimed(self) -> Collection[str]:
        """Issuers that the source has or ever had keys for: they stay claimed when the keys are gone."""
        ...

    @property
    def may_claim(self) -> bool:
        """Whether the source may have keys for an issuer that is not known yet."""
        ...

    @property
    def generation(self) -> int:
        """Grows whenever the keys change."""
        ...

    @property
    def trouble(self) -> str:
        """Reason for missing or outdated keys; "" if there is none."""
        ...

    async def refetch(self) -> None:
        """Fetch new keys, unless that was done just now. Waits briefly and never fails."""
        ...


class TokenRevocations(Protocol):
    """Revocations of otherwise valid tokens."""

    def is_revoked(self, issuer: str, jti: str, now_us: int) -> bool: ...


class CurrentValue(Protocol[_T_co]):
    """A value that is kept up to date."""

    @property
    def value(self) -> _T_co: ...

    @property
    def generation(self) -> int:
        """Changes whenever the value does."""
        ...
