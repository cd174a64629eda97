"""Facts that Redis servers report about themselves, for the status of a server and `podgate check`."""

from tests.adapters.redis_store.transport import open_link
from tests.redis_servers import RedisCluster, RedisServer
from webhook.adapters.redis_store.store import server_status

pytest_plugins = ("tests.redis_servers.fixtures",)


async def test_version_eviction_and_latency_of_a_server(redis_server: RedisServer) -> None:
    async with open_link(redis_server.url) as link:
        [server] = (await server_status(link)).servers
        assert server.version == redis_server.cli("INFO", "server")["redis_version"]
        assert (server.name, server.eviction_policy) == ("", "noeviction")
        assert 0 < server.latency_us < 1_000_000
        redis_server.cli("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        try:
            [server] = (await server_status(link)).servers
        finally:
            redis_server.cli("CONFIG", "SET", "maxmemory-policy", "noeviction")
        assert server.eviction_policy == "allkeys-lru"


async def test_each_node_of_a_cluster_is_listed(redis_cluster: RedisCluster) -> None:
    async with open_link(redis_cluster.url) as link:
        found = await server_status(link)
    assert [server.name for server in found.servers] == sorted(f"127.0.0.1:{node.port}" for node in redis_cluster.nodes)


async def test_server_that_does_not_answer_is_an_error() -> None:
    async with open_link("redis://127.0.0.1:1") as link:
        found = await server_status(link)
    assert found.servers == ()
    assert found.error.startswith("unreachable: ")
