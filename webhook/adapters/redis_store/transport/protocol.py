"""Transport: the protocol that one server, a primary with Sentinels, and a Cluster implement."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from webhook.adapters.redis_store.transport.stream import RespStream

Connected = Callable[[str, str], None]
"""Called before a new connection takes calls, with the lane and the history of its server, as in `ask_histories`."""


class Transport(Protocol):
    """Connections to a Redis. Methods raise RedisError, OSError or TimeoutError, without a password in the text.

    Nothing is retried: after an error the next call looks the servers up again, and reconnects.
    """

    on_connected: Connected | None

    @property
    def one_tag_a_call(self) -> bool:
        """Whether all keys of one call must have the same tag."""

    def lane(self, tag: str) -> str:
        """Return the node that calls with this tag go to; "" if there is only one. It may change."""

    def run(self, keys: Sequence[str], argument: bytes) -> Awaitable[Any]:
        """Run the script once, whole, and return its raw answer."""

    async def ask_histories(self) -> Mapping[str, str]:
        """Return the name of the history of each server's data, by lane: its run_id, or RUN_ID:FORMER.

        It is "" where a node of a Cluster does not answer while others do.
        Another process, or the same one promoted since, may lack writes that were acknowledged. FORMER is the history
        that a server was promoted from; one without replicas forgets it after a while.
        """

    async def infos(self) -> Mapping[str, bytes]:
        """Return the answer of each server to INFO, by lane."""

    async def ping(self) -> None:
        """Return if all servers answer; raise otherwise."""

    async def forget(self, pattern: str) -> int:
        """Delete all keys that match a glob-style pattern; return their number."""

    async def dial(self, key: str = "") -> RespStream:
        """Return a new connection to a current server, the one that has `key` if given; the caller closes it."""

    async def dial_lane(self, lane: str) -> RespStream:
        """Return a new connection to the server of a lane that `infos` names; the caller closes it."""

    async def close(self) -> None:
        """Disconnect when the running calls have ended."""
