"""Decision records that replicas share, and the policies by which they were made."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class SharedRecord(NamedTuple):
    """A record in its shared form, and when it was written, in milliseconds since the Unix epoch."""

    written_ms: int
    record: bytes


class SharedPage(NamedTuple):
    """Records, newest first, and where the next page begins; None after the last one."""

    records: Sequence[SharedRecord]
    next_page: str | None


class SharedDecisions(Protocol):
    """Bounded store of records, of all replicas of a cluster. StoreUnavailableError if it does not answer."""

    async def append(self, records: Sequence[bytes]) -> None: ...

    async def read_page(self, begin: str, count: int) -> SharedPage:
        """Return the page from `begin`: the `next_page` of another page, or milliseconds; "" is the newest page."""
        ...

    async def keep_policy(self, policy_hash: str, document: bytes) -> None:
        """Keep a policy document for as long as records of its decisions may be read."""
        ...

    async def read_policy(self, policy_hash: str) -> bytes | None:
        """Return a policy document; None if it is not kept."""
        ...

    async def close(self) -> None: ...
