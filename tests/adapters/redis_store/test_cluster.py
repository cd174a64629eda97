"""Calls go to the node that has their slot, with a real Cluster of three masters."""

import asyncio
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest
import redis
from msgspec.structs import replace
from redis.crc import key_slot
from redis.exceptions import AuthenticationError, ClusterCrossSlotError, RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from tests.adapters.redis_store.transport import ECHO, open_link
from tests.core.plans import plan_of, window
from tests.redis_servers import RedisCluster, RedisProgram
from tests.redis_servers.access import CLUSTER_PASSWORD, commands
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.adapters.redis_store.loss_detector import LossDetector
from webhook.adapters.redis_store.transport.cluster import ClusterTransport
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.stream import RespStream
from webhook.core.quota import Acquire, CounterPlan, Receipt
from webhook.errors import StoreFault, StoreUnavailableError
from webhook.ports import StoreReports
from webhook.ports.store_url import RedisAddress

pytest_plugins = ("tests.redis_servers.fixtures",)

PLAN = plan_of(window(60, pods=1000))
TAGS = [f"service-{number}" for number in range(30)]


def key(tag: str) -> str:
    return f"podgate:{{{tag}}}:count"


async def run_until_answered(link: Transport, tag: str) -> bytes:
    """Repeat a call until it succeeds: it may fail while no node has the slot."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            with suppress(RedisError, OSError, TimeoutError):
                return bytes(await link.run([key(tag)], tag.encode()))
            await asyncio.sleep(0.05)


async def test_calls_go_to_the_owners_of_their_slots(redis_cluster: RedisCluster) -> None:
    async with open_link(redis_cluster.url) as link:
        assert link.one_tag_a_call
        answers = await asyncio.gather(*(link.run([key(tag)], tag.encode()) for tag in TAGS))
        assert answers == [tag.encode() for tag in TAGS]
        assert {link.lane(tag) for tag in TAGS} == {f"127.0.0.1:{node.port}" for node in redis_cluster.nodes}
        assert all(link.lane(tag) == f"127.0.0.1:{redis_cluster.owner(tag).port}" for tag in TAGS)
        assert all(redis_cluster.owner(tag).cli("GET", key(tag)) == b"1" for tag in TAGS)
        histories = {f"127.0.0.1:{node.port}": node.cli("INFO", "server")["run_id"] for node in redis_cluster.nodes}
        assert await link.ask_histories() == histories
        await link.ping()
        with pytest.raises(ClusterCrossSlotError):
            await link.run([key("service-1"), key("service-2")], b"x")


async def test_slot_map_is_read_from_any_reachable_node(
    redis_cluster: RedisCluster,
) -> None:
    async with open_link(f"redis+cluster://127.0.0.1:1,127.0.0.1:{redis_cluster.nodes[2].port}") as link:
        assert await link.run([key("a")], b"a") == b"a"
    async with open_link("redis+cluster://127.0.0.1:1") as nowhere:
        with pytest.raises(RedisConnectionError, match=r"no node .* returns the slot map: .*127\.0\.0\.1:1"):
            await nowhere.run([key("a")], b"a")
    wrong = redis_cluster.url.replace("://", "://podgate:a-wrong-one@")
    async with open_link(wrong) as link:
        with pytest.raises(AuthenticationError, match=r"no node of the Cluster .*: invalid username") as caught:
            await link.run([key("a")], b"a")
        assert "a-wrong-one" not in str(caught.value)


async def test_flushed_scripts_are_sent_again_to_each_node(redis_cluster: RedisCluster) -> None:
    async with open_link(redis_cluster.url) as link:
        for _ in range(2):
            await asyncio.gather(*(link.run([key(tag)], b"x") for tag in TAGS))
            for node in redis_cluster.nodes:
                node.cli("SCRIPT", "FLUSH")
        assert all(redis_cluster.owner(tag).cli("GET", key(tag)) == b"2" for tag in TAGS)


async def test_slot_migration_is_followed_by_ask_and_moved(redis_cluster: RedisCluster) -> None:
    old, new = "payment-api", "shop"  # an old service has keys already
    async with open_link(redis_cluster.url) as link:
        for tag in (old, new):
            source = redis_cluster.owner(tag)
            target = next(node for node in redis_cluster.nodes if node is not source)
            if tag == old:
                assert await link.run([key(tag)], b"before") == b"before"
            redis_cluster.begin_move(tag, target)
            assert await link.run([key(tag)], b"under way") == b"under way"
            asked = target if tag == new else source
            assert asked.cli("CLUSTER", "COUNTKEYSINSLOT", key_slot(tag.encode())) == 1, (
                "with ASK for the new tag, without for the old"
            )
            redis_cluster.end_move(tag, target)
            assert await link.run([key(tag)], b"moved") == b"moved"
            assert target.cli("GET", key(tag)) == (b"3" if tag == old else b"2"), "MOVED"
            assert link.lane(tag) == f"127.0.0.1:{target.port}"


async def test_other_services_of_the_node_are_counted_while_a_slot_moves(redis_cluster: RedisCluster) -> None:
    node = redis_cluster.owner("service-0")
    plans = [replace(PLAN, service=tag, tag=tag) for tag in TAGS if redis_cluster.owner(tag) is node]
    moved, others = plans[0], plans[1:]
    target = next(other for other in redis_cluster.nodes if other is not node)
    quiet = StoreReports(lambda *_: None, lambda *_: None, lambda *_: None)
    store = RedisStore(
        open_transport(redis_cluster.url), "test", SystemClock(), quiet, deadline_seconds=HANG_SECONDS, late_us=0
    )
    numbers = count()

    async def ask(*asked: CounterPlan) -> list[Receipt | BaseException]:
        requests = [Acquire(plan, "shop", f"uid-{next(numbers)}", {"pods": 1}, "user:a") for plan in asked]
        return await asyncio.gather(*map(store.acquire, requests), return_exceptions=True)

    try:
        assert not any(isinstance(answer, BaseException) for answer in await ask(*plans))
        redis_cluster.begin_move(moved.tag, target)
        slot = key_slot(f"{{{moved.tag}}}".encode())
        (name, *_) = node.cli("CLUSTER", "GETKEYSINSLOT", slot, 1)
        node.cli("MIGRATE", "127.0.0.1", target.port, name, 0, 5000)
        for _ in range(10):
            away, *rest = await ask(*plans)
            assert isinstance(away, StoreUnavailableError)
            assert away.failure.fault is StoreFault.FAILOVER
            assert len(rest) == len(others)
            assert not any(isinstance(answer, BaseException) for answer in rest)
        redis_cluster.end_move(moved.tag, target)
        assert not any(isinstance(answer, BaseException) for answer in await ask(*plans))
    finally:
        await store.close()


async def test_forget_deletes_matching_keys_on_every_node(redis_cluster: RedisCluster) -> None:
    async with open_link(redis_cluster.url) as link:
        await asyncio.gather(*(link.run([key(tag)], b"x") for tag in TAGS))
        other = f"other:{{{TAGS[0]}}}"
        await link.run([other], b"x")
        await link.forget("podgate:*")
    assert [found for node in redis_cluster.nodes for found in node.cli("KEYS", "*")] == [other.encode()]


async def test_each_right_of_the_documented_cluster_user_is_needed(redis_cluster: RedisCluster) -> None:
    source = redis_cluster.owner("asked")
    target = next(node for node in redis_cluster.nodes if node is not source)
    url = redis_cluster.url.replace("://", f"://podgate:{CLUSTER_PASSWORD}@")

    async def make_calls() -> None:
        async with open_link(url) as link:
            await link.ask_histories()
            assert await link.run([key("asked")], b"x") == b"x"

    redis_cluster.begin_move("asked", target)
    try:
        # The script of this test counts; another test covers the store's script.
        for node in redis_cluster.nodes:
            node.cli("ACL", "SETUSER", "podgate", "+incr")
        await make_calls()
        needed = {"+evalsha", "+eval", "+info", "+cluster|slots", "+asking"}
        assert needed <= set(commands("cluster"))
        for right in sorted(needed):
            for node in redis_cluster.nodes:
                node.cli("SCRIPT", "FLUSH")
                node.cli("ACL", "SETUSER", "podgate", f"-{right.removeprefix('+').partition('|')[0]}")
            with pytest.raises(RedisError, match=r"(?i)permission"):
                await make_calls()
            for node in redis_cluster.nodes:
                node.cli("ACL", "SETUSER", "podgate", right)
    finally:
        redis_cluster.end_move("asked", target)


async def test_calls_continue_after_a_failover_of_a_master(redis_program: RedisProgram, tmp_path: Path) -> None:
    with RedisCluster(redis_program, tmp_path / "cluster", replicas=1) as own:
        first, replica = own.nodes[0], own.nodes[3]
        tag = next(tag for tag in TAGS if own.owner(tag) is first)
        async with open_link(own.url) as link:
            assert await link.run([key(tag)], b"a") == b"a"
            before = await link.ask_histories()
            first.cli("WAIT", 1, 5000)
            first.kill()
            assert await link.ask_histories() == {**before, f"127.0.0.1:{first.port}": ""}
            own.wait_for_failover(first)
            assert await run_until_answered(link, tag) == tag.encode()
            assert link.lane(tag) == f"127.0.0.1:{replica.port}"
            after = await link.ask_histories()
            assert after.keys() == (before.keys() | {link.lane(tag)}) - {f"127.0.0.1:{first.port}"}
            first.start()
            await asyncio.gather(*(run_until_answered(link, tag) for tag in TAGS))
        with redis.Redis(port=replica.port) as client:
            assert int(client.get(key(tag))) >= 2


async def test_master_that_was_replaced_and_promoted_again_has_another_history(
    redis_program: RedisProgram, tmp_path: Path
) -> None:
    with RedisCluster(redis_program, tmp_path / "cluster", replicas=1) as own:
        first, replica = own.nodes[0], own.nodes[3]
        losses: list[None] = []
        detector = LossDetector(lambda: losses.append(None))
        async with open_link(own.url) as link:
            detector.record_histories(before := await link.ask_histories())
            for promoted, former in ((replica, first), (first, replica)):
                promoted.cli("CLUSTER", "FAILOVER", "TAKEOVER")
                own.wait_for_failover(former)
            detector.record_histories(after := await link.ask_histories())
        lane = f"127.0.0.1:{first.port}"
        assert after.keys() == before.keys()
        assert {name for name in after if after[name] != before[name]} == {lane}
        assert after[lane].startswith(f"{before[lane]}:")
        assert losses == [None]


async def test_failed_node_is_queried_last() -> None:
    nodes = [RedisAddress("127.0.0.1", port) for port in (1, 2, 3)]
    asked: list[RedisAddress] = []

    async def refuse(address: RedisAddress) -> RespStream:
        asked.append(address)
        raise RedisConnectionError(f"{address} is not there")

    link = ClusterTransport(nodes, refuse, ECHO)
    link._owners = dict.fromkeys(range(16384), nodes[0])
    with pytest.raises(RedisConnectionError, match=r"127\.0\.0\.1:1 is not there"):
        await link.run([key("a")], b"a")
    assert link._learning is not None
    with pytest.raises(RedisError, match=r"no node of the Cluster returns the slot map"):
        await link._learning
    assert asked == [nodes[0], nodes[1], nodes[2], nodes[0]]
    await link.close()


def test_tag_and_its_keys_share_a_slot() -> None:
    assert key_slot(key("a").encode()) == key_slot(b"{a}") == key_slot(b"a")
