"""The store of the light stage: one Redis, or a Cluster of three masters."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.light.schedules import NODES, REDIS
from tests.chaos.shards import number_shards
from tests.redis_servers import RedisCluster, RedisServer
from tests.redis_servers.access import acl_file, user
from tests.redis_servers.inventory import program

PASSWORD = "light-stage-password-7d3f"
_REDIS_PROGRAM = "redis-8.2"
_OF_CLUSTER = (
    *("--cluster-require-full-coverage", "no"),
    *("--cluster-node-timeout", "60000"),  # a paused node keeps its slots
)


@dataclass(frozen=True)
class LightStore:
    """`servers` are those of its parts; `url` has the user of Podgate."""

    url: str
    servers: Mapping[str, RedisServer]
    cluster: RedisCluster | None = None

    @property
    def shards(self) -> Mapping[str, int]:
        """The shard of each part, of a Cluster."""
        return number_shards(list(self.servers)) if self.cluster is not None else {}


def list_parts(*, is_cluster: bool) -> Sequence[str]:
    return NODES if is_cluster else (REDIS,)


@contextmanager
def open_store(folder: Path, *, is_cluster: bool) -> Iterator[LightStore]:
    kind = "cluster" if is_cluster else "users"
    users = acl_file(folder / "users.acl", user(kind, PASSWORD))
    options = ("--aclfile", str(users))
    with ExitStack() as stack:
        if is_cluster:
            made = RedisCluster(program(_REDIS_PROGRAM), folder / REDIS, *options, *_OF_CLUSTER)
            cluster = stack.enter_context(made)
            yield LightStore(_name_user(cluster.url), dict(zip(NODES, cluster.nodes, strict=True)), cluster)
        else:
            server = stack.enter_context(RedisServer(program(_REDIS_PROGRAM), folder / REDIS, *options))
            yield LightStore(_name_user(server.url), {REDIS: server})


def _name_user(url: str) -> str:
    return url.replace("://", "://podgate@")
