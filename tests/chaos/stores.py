"""The stores of a run: a Redis with its replica and Sentinels, or a Redis Cluster, each through links of its own."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol, Self

from redis.exceptions import RedisError

from tests.chaos.forms import SENTINELS
from tests.chaos.links import Link
from tests.chaos.shards import SHARDS
from tests.redis_servers import SERVICE, RedisCluster, RedisProgram, RedisServer, SentinelGroup

_DURABLE = ("--appendonly", "yes", "--appendfsync", "everysec", "--maxmemory-policy", "noeviction")
_OF_CLUSTER = (
    *("--cluster-node-timeout", "2000"),  # a busy machine is no failure
    *("--cluster-require-full-coverage", "no", "--cluster-allow-replica-migration", "no"),
)


class Store(Protocol):
    """All Redis of a run. Use it as a context manager. FOLDERS are the names of those of its servers."""

    FOLDERS: ClassVar[Sequence[str]]

    @property
    def servers(self) -> Sequence[RedisServer]: ...

    @property
    def sentinels(self) -> Sequence[RedisServer]: ...

    def open(self, link: Link) -> str:
        """Open a link to all of it; return the URL that leads through the link."""

    def choose_primary(self, number: int) -> RedisServer:
        """Return a primary of now, by the number of a fault if there are several."""

    def fail_over(self, number: int) -> RedisServer:
        """Let the replica of such a primary take its place; return the primary."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...


class SentinelStore(SentinelGroup):
    """One primary at a time."""

    FOLDERS = ("primary", "replica")

    def __init__(self, program: RedisProgram, folder: Path) -> None:
        super().__init__(program, folder, *_DURABLE, sentinels=SENTINELS)

    def open(self, link: Link) -> str:
        ports = {server.port: link.open(lead_to(server)) for server in self.servers}
        hosts = [f"127.0.0.1:{link.open(lead_to(sentinel), ports)}" for sentinel in self.sentinels]
        return f"redis+sentinel://{','.join(hosts)}/{SERVICE}"

    def choose_primary(self, _: int) -> RedisServer:
        return self.primary

    def fail_over(self, _: int) -> RedisServer:
        primary = self.primary
        self.sentinels[0].cli("SENTINEL", "FAILOVER", SERVICE)
        return primary


class ClusterStore(RedisCluster):
    """A shard is a node and the one that is three places later: a master and its replica, in turn."""

    FOLDERS = tuple(f"node-{number}" for number in range(2 * SHARDS))
    sentinels: Sequence[RedisServer] = ()

    def __init__(self, program: RedisProgram, folder: Path) -> None:
        super().__init__(program, folder, *_DURABLE, *_OF_CLUSTER, replicas=SHARDS)

    @property
    def servers(self) -> Sequence[RedisServer]:
        return self.nodes

    def open(self, link: Link) -> str:
        ports: dict[int, int] = {}
        for node in self.nodes:
            ports[node.port] = link.open(lead_to(node), ports)
        return f"redis+cluster://{','.join(f'127.0.0.1:{port}' for port in ports.values())}"

    def choose_primary(self, number: int) -> RedisServer:
        return self._list_pair(number)[0]

    def fail_over(self, number: int) -> RedisServer:
        master, replica = self._list_pair(number)
        replica.cli("CLUSTER", "FAILOVER")
        return master

    def _list_pair(self, number: int) -> Sequence[RedisServer]:
        """Return the nodes of a shard, first the master. RedisError: it has none now."""
        pair = [self.nodes[number % SHARDS], self.nodes[number % SHARDS + SHARDS]]
        pair.sort(key=lambda node: not (node.alive and node.cli("INFO", "replication")["role"] == "master"))
        if pair[0].cli("INFO", "replication")["role"] != "master":
            raise RedisError(f"shard {number % SHARDS} has no master")
        return pair


def lead_to(server: RedisServer) -> Callable[[], Sequence[str]]:
    return lambda: [f"127.0.0.1:{server.port}"]
