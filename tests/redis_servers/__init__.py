"""Real Redis and Valkey servers for tests: downloaded once, started on loopback, always stopped."""

from tests.redis_servers.cluster import RedisCluster
from tests.redis_servers.inventory import RedisProgram, names, program, programs, usual_names
from tests.redis_servers.sentinel import SERVICE, SentinelGroup
from tests.redis_servers.server import RedisServer
from tests.redis_servers.tls import behind_tls

__all__ = [
    "SERVICE",
    "RedisCluster",
    "RedisProgram",
    "RedisServer",
    "SentinelGroup",
    "behind_tls",
    "names",
    "program",
    "programs",
    "usual_names",
]
