"""The stores of a run are reached through their links only, and a failover leaves each shard with a primary."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from tests.chaos.links import Link, Trouble
from tests.chaos.redis_program import write_program
from tests.chaos.shards import SHARDS, find_shard, number_shards
from tests.chaos.stores import ClusterStore, SentinelStore
from tests.cluster.background_loop import BackgroundLoop
from tests.redis_servers import program
from tests.redis_servers.waiting import wait_until

TAGS = ("shop", "jobs", "batch", "store", "risky", "open")


@pytest.fixture
def link() -> Iterator[Link]:
    loop = BackgroundLoop("stores")
    made = Link("server-1>redis", loop)
    yield made
    made.close()
    loop.close()


def test_each_node_of_a_cluster_is_reached_through_the_link(link: Link, tmp_path: Path) -> None:
    assert {find_shard(tag) for tag in TAGS} == {*range(SHARDS)}
    with ClusterStore(write_program(program("redis-8.2"), tmp_path / "program"), tmp_path / "redis") as store:
        url = store.open(link).replace("redis+cluster", "redis").partition(",")[0]
        with RedisCluster.from_url(url, retry=Retry(NoBackoff(), 0), socket_timeout=5) as client:
            for tag in TAGS:
                client.set(f"{{{tag}}}", tag)
                assert store.choose_primary(find_shard(tag)).cli("GET", f"{{{tag}}}") == tag.encode()
            assert {node.port for node in client.get_nodes()} <= {*link.ports}
            link.disturb(Trouble(refuses=True))
            with pytest.raises((redis.RedisError, RedisClusterException)):
                client.get("{shop}")
            link.heal()
        former = store.fail_over(4)
        assert former is store.nodes[4 % SHARDS]
        wait_until(lambda: store.choose_primary(4) is store.nodes[4 % SHARDS + SHARDS], "the replica has its place")
    assert number_shards(("a", "b", "c", "d", "e", "f")) == {"a": 0, "b": 1, "c": 2, "d": 0, "e": 1, "f": 2}


def test_the_primary_is_found_through_the_link(link: Link, tmp_path: Path) -> None:
    with SentinelStore(write_program(program("redis-8.2"), tmp_path / "program"), tmp_path / "redis") as store:
        url = store.open(link)
        port = int(url.partition(",")[0].rpartition(":")[2])
        with redis.Redis(port=port) as client:
            _, found = client.sentinel_get_master_addr_by_name("podgate-store")
        assert int(found) in link.ports
        former = store.fail_over(1)
        wait_until(lambda: store.choose_primary(1) is not former, "the replica has its place")
