"""Breaker transitions reach all subscribers on real servers, by order and state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from redis.exceptions import NoPermissionError

from tests.adapters.redis_store.replicas import (
    CHANNEL,
    Replica,
    run_subscribed_replica,
    wait_until,
    wait_until_subscribed,
)
from tests.contract.counter_store import BREAKER, HandClock
from tests.core.plans import plan_of
from tests.redis_servers import RedisCluster, RedisProgram, RedisServer, SentinelGroup
from tests.redis_servers.access import CLUSTER_PASSWORD, acl_file, user
from webhook.adapters.redis_store import RedisStore, announcements, open_transport
from webhook.adapters.redis_store.codec import encode_view
from webhook.adapters.redis_store.transport.sentinel import Sentinels
from webhook.core.breaker import BreakerView, Forcing, State
from webhook.core.quota import Acquire, CounterPlan, DeniedBy
from webhook.ports import StoreReports
from webhook.ports.store_url import RedisAddress, StoreFiles

pytest_plugins = ("tests.redis_servers.fixtures",)

PLAN = plan_of(breaker=BREAKER)
FAR_US = 4_000_000_000_000_000
"""A time after every test."""

FORCED = replace(PLAN, breaker=replace(BREAKER, forcing=Forcing(State.FORCED_OPEN, FAR_US, "INC-1")))
OPEN = BreakerView(State.OPEN, 5, 1, FAR_US, "errorRate", tripped_at_us=1, tripped_by="errorRate")


def publish(server: RedisServer, view: BreakerView, at_us: int = 1, plan: CounterPlan = PLAN) -> None:
    server.cli("PUBLISH", CHANNEL, msgspec.msgpack.encode((plan.tag, plan.service, at_us, encode_view(view))))


def find_subscription_age(server: RedisServer) -> int:
    """Return how many seconds ago the only subscriber connected, give or take one; -1 without one."""
    with server.client() as client:
        return max((int(other["age"]) for other in client.client_list() if other["sub"] != "0"), default=-1)


async def force_open(store: RedisStore) -> None:
    """Move the breaker by one call."""
    await store.apply_override(FORCED)


async def test_breaker_change_is_announced_to_the_other_replicas(redis_server: RedisServer) -> None:
    async with run_subscribed_replica(redis_server.url) as one, run_subscribed_replica(redis_server.url) as other:
        await wait_until_subscribed(redis_server, count=2)
        await force_open(one.store)
        await wait_until(lambda: other.breaker_state(PLAN) is State.FORCED_OPEN)
        view = other.store.find_last_breaker(PLAN)
        assert view is not None
        assert (view.state, view.reason, view.open_until_us) == (State.FORCED_OPEN, "INC-1", FAR_US)
        await one.store.apply_override(PLAN)
        await wait_until(lambda: other.breaker_state(PLAN) is State.CLOSED)
        assert one.troubles == other.troubles == []


async def test_manual_state_unknown_to_the_plan_is_read_from_redis(redis_server: RedisServer) -> None:
    async with run_subscribed_replica(redis_server.url) as one, run_subscribed_replica(redis_server.url) as other:
        await wait_until_subscribed(redis_server, count=2)
        await force_open(one.store)
        await wait_until(lambda: other.breaker_state(PLAN) is State.FORCED_OPEN)
        assert other.store.find_known_breaker(PLAN) is None, "its override has ended, or is not known here yet"
        assert other.store.find_known_breaker(FORCED) is not None
        asked = Acquire(PLAN, "payments", "a", {"pods": 1}, "user:alice")
        assert (await other.store.acquire(asked)).refused is DeniedBy.BREAKER
        await one.store.apply_override(PLAN)
        assert (await other.store.acquire(asked)).refused is None


async def test_subscription_uses_one_more_connection_and_closes_it_at_the_end(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        async with run_subscribed_replica(redis_server.url) as replica:
            await wait_until_subscribed(redis_server)
            await replica.store.tick([PLAN])
            kinds = sorted(other["sub"] for other in client.client_list() if other["id"] != str(client.client_id()))
            assert kinds == ["0", "1"]
        await wait_until(lambda: len(client.client_list()) == 1)


async def test_announcement_reaches_a_socket_url_of_the_same_database(
    redis_program: RedisProgram, tmp_path: Path
) -> None:
    path = tmp_path / "redis.sock"
    with RedisServer(redis_program, tmp_path / "redis", "--unixsocket", str(path)) as server:
        async with (
            run_subscribed_replica(f"unix://{path}?db=3") as one,
            run_subscribed_replica(f"redis://127.0.0.1:{server.port}/3") as other,
        ):
            await wait_until_subscribed(server, count=2)
            await force_open(other.store)
            await wait_until(lambda: one.breaker_state(PLAN) is other.breaker_state(PLAN) is State.FORCED_OPEN)


async def test_newest_of_two_views_is_kept_in_any_order(redis_server: RedisServer) -> None:
    async with run_subscribed_replica(redis_server.url) as replica:
        await wait_until_subscribed(redis_server)
        marks = iter(range(100))

        async def view_after(view: BreakerView, at_us: int) -> BreakerView | None:
            """Publish the view and then a marker: once the marker is read, so is the view."""
            publish(redis_server, view, at_us)
            mark = replace(PLAN, service=f"mark-{next(marks)}")
            publish(redis_server, OPEN, plan=mark)
            await wait_until(lambda: replica.breaker_state(mark) is State.OPEN)
            return replica.store.find_last_breaker(PLAN)

        probing = replace(OPEN, state=State.HALF_OPEN, generation=6, open_until_us=0)
        assert await view_after(OPEN, 10) == OPEN
        assert await view_after(probing, 5) == probing, "a clock that is set back does not undo a transition"
        assert await view_after(OPEN, 20) == probing
        newer = replace(probing, probes_leased=2)
        assert await view_after(newer, 30) == newer
        assert await view_after(probing, 29) == newer
        apart = replace(OPEN, generation=6)
        assert await view_after(apart, 31) == apart, "of two forks the open one holds"
        assert await view_after(newer, 40) == apart


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xc1",
        b"",
        b"no list",
        msgspec.msgpack.encode(("a", "b", 1)),
        msgspec.msgpack.encode(("a", "b", 1, [])),
        msgspec.msgpack.encode(("a", "b", "now", encode_view(OPEN))),
        msgspec.msgpack.encode(("a", "b", 1, ["ASLEEP", 5, 1, 1, "", 0, 0])),
        msgspec.msgpack.encode(("a", "b", 1, ["OPEN", "five", 1, 1, "", 0, 0])),
        msgspec.msgpack.encode(("a", "b", 1, ["OPEN", 5, 1, 1, "", 0, 0, 0])),
        msgspec.msgpack.encode(("a", "b", 1, [["OPEN"], 5, 1, 1, "", 0, 0])),
    ],
)
async def test_unreadable_announcement_is_reported_once_and_ignored(redis_server: RedisServer, nonsense: bytes) -> None:
    async with run_subscribed_replica(redis_server.url) as replica:
        await wait_until_subscribed(redis_server)
        for _ in range(2):
            redis_server.cli("PUBLISH", CHANNEL, nonsense)
        publish(redis_server, OPEN)
        await wait_until(lambda: replica.breaker_state(PLAN) is State.OPEN)
        (message,) = replica.troubles
        assert message.startswith("script: an announcement cannot be read: ")
        assert replica.over == [message]


async def test_announcement_of_a_newer_version_with_more_fields_is_read(redis_server: RedisServer) -> None:
    async with run_subscribed_replica(redis_server.url) as replica:
        await wait_until_subscribed(redis_server)
        more = (PLAN.tag, PLAN.service, 1, [*encode_view(OPEN), "more"])
        redis_server.cli("PUBLISH", CHANNEL, msgspec.msgpack.encode(more))
        await wait_until(lambda: replica.breaker_state(PLAN) is State.OPEN)
        assert replica.store.find_last_breaker(PLAN) == OPEN


async def test_lost_connection_is_reported_once_and_restored(own_redis_server: RedisServer) -> None:
    async with run_subscribed_replica(own_redis_server.url) as replica:
        await wait_until_subscribed(own_redis_server)
        own_redis_server.kill()
        await wait_until(lambda: bool(replica.troubles))
        await asyncio.sleep(0.3)  # several attempts
        own_redis_server.start()
        await wait_until_subscribed(own_redis_server)
        await wait_until(lambda: replica.over == replica.troubles)
        assert {message.partition(":")[0] for message in replica.troubles} == {"unreachable"}
        assert len(replica.troubles) == 1
        publish(own_redis_server, OPEN)
        await wait_until(lambda: replica.breaker_state(PLAN) is State.OPEN)


async def test_silent_server_is_reported_and_subscribed_again(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "_SILENT_SECONDS", 1)
    async with run_subscribed_replica(own_redis_server.url) as replica:
        await wait_until_subscribed(own_redis_server)
        # A live server answers, else no connection lasts for 3 s; if this machine stands still, the next one does.
        await wait_until(lambda: find_subscription_age(own_redis_server) > 3)
        so_far = len(replica.troubles)
        own_redis_server.pause()
        await wait_until(lambda: len(replica.troubles) > so_far)
        assert replica.troubles[so_far].startswith("timeout: no message for 2 s")
        own_redis_server.resume()
        await wait_until(lambda: len(replica.over) == len(replica.troubles))
        publish(own_redis_server, OPEN)
        await wait_until(lambda: replica.breaker_state(PLAN) is State.OPEN)


async def test_password_file_is_reread_for_each_connection(redis_program: RedisProgram, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("first")
    users = acl_file(tmp_path / "users.acl", user("users", "first"))
    with RedisServer(redis_program, tmp_path / "redis", "--aclfile", str(users)) as server:
        url, files = f"redis://podgate@127.0.0.1:{server.port}", StoreFiles(password_file=password)
        async with run_subscribed_replica(url, files) as replica:
            await wait_until_subscribed(server)
            server.cli("ACL", "SETUSER", "podgate", ">second", "<first")
            server.cli("CLIENT", "KILL", "TYPE", "pubsub")
            await wait_until(lambda: any(message.startswith("authentication: ") for message in replica.troubles))
            password.write_text("second")
            await wait_until_subscribed(server)
            publish(server, OPEN)
            await wait_until(lambda: replica.breaker_state(PLAN) is State.OPEN)
            await wait_until(lambda: len(replica.over) == len(replica.troubles))


async def test_subscription_follows_a_sentinel_failover(redis_program: RedisProgram, tmp_path: Path) -> None:
    with SentinelGroup(redis_program, tmp_path / "group") as group:
        first = group.primary
        async with run_subscribed_replica(group.url) as replica:
            await wait_until_subscribed(first)
            first.kill()
            second = group.wait_for_failover(first)
            await wait_until_subscribed(second)
            await wait_until(lambda: len(replica.over) == len(replica.troubles) > 0)
            publish(second, OPEN)
            await wait_until(lambda: replica.breaker_state(PLAN) is State.OPEN)


async def test_subscription_leaves_a_primary_that_sentinels_no_longer_name(
    redis_program: RedisProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "_SILENT_SECONDS", 1)
    with (
        SentinelGroup(redis_program, tmp_path / "group", sentinels=1) as group,
        RedisServer(redis_program, tmp_path / "another") as another,
    ):
        async with run_subscribed_replica(group.url) as replica:
            await replica.store.tick([PLAN])
            await wait_until_subscribed(group.primary)

            async def name_another(_: object) -> RedisAddress:
                return RedisAddress("127.0.0.1", another.port)

            monkeypatch.setattr(Sentinels, "find_primary", name_another)
            await replica.store.tick([PLAN])
            await wait_until_subscribed(another)
            assert replica.troubles == []


async def test_subscription_moves_to_a_live_node_of_a_cluster(redis_program: RedisProgram, tmp_path: Path) -> None:
    with RedisCluster(redis_program, tmp_path / "cluster", "--cluster-require-full-coverage", "no") as cluster:
        async with run_subscribed_replica(cluster.url) as one, run_subscribed_replica(cluster.url) as other:
            await wait_until_subscribed(*cluster.nodes, count=2)
            await force_open(one.store)
            await wait_until(lambda: one.breaker_state(PLAN) is other.breaker_state(PLAN) is State.FORCED_OPEN)
            owner = cluster.owner(PLAN.tag)
            gone = next(node for node in cluster.nodes if node is not owner)
            gone.kill()
            await wait_until_subscribed(*(node for node in cluster.nodes if node is not gone), count=2)
            await one.store.apply_override(PLAN)
            await wait_until(lambda: one.breaker_state(PLAN) is other.breaker_state(PLAN) is State.CLOSED)


async def test_documented_cluster_user_can_subscribe_on_every_node(redis_cluster: RedisCluster) -> None:
    for node in redis_cluster.nodes:
        url = f"redis+cluster://podgate:{CLUSTER_PASSWORD}@127.0.0.1:{node.port}"
        async with run_subscribed_replica(url) as replica:
            await wait_until_subscribed(node)
            await force_open(replica.store)
            await wait_until(lambda: replica.breaker_state(PLAN) is State.FORCED_OPEN)
            await replica.store.apply_override(PLAN)
            assert replica.troubles == []


@asynccontextmanager
async def run_with_users(
    redis_program: RedisProgram, folder: Path, changed: str
) -> AsyncIterator[tuple[RedisServer, str]]:
    """Yield a server that knows the documented user, with one right less, and that user's URL."""
    users = acl_file(folder / "users.acl", user("users", "serving"))
    with RedisServer(redis_program, folder / "redis", "--aclfile", str(users)) as server:
        server.cli("ACL", "SETUSER", "podgate", changed)
        yield server, f"redis://podgate:serving@127.0.0.1:{server.port}"


@pytest.mark.parametrize("changed", ["-subscribe", "resetchannels"])
async def test_forbidden_subscription_is_reported_and_replaced_by_reads(
    redis_program: RedisProgram, tmp_path: Path, changed: str
) -> None:
    async with (
        run_with_users(redis_program, tmp_path, changed) as (server, url),
        run_subscribed_replica(server.url) as other,
        run_subscribed_replica(url) as replica,
    ):
        await wait_until_subscribed(server)
        await wait_until(lambda: bool(replica.troubles))
        assert replica.troubles[0].startswith("authentication: ")
        await force_open(other.store)
        await wait_until(lambda: other.breaker_state(PLAN) is State.FORCED_OPEN)
        assert replica.breaker_state(PLAN) is None
        await replica.store.tick([PLAN])
        assert replica.breaker_state(PLAN) is State.FORCED_OPEN


@pytest.mark.parametrize("changed", ["-publish", "resetchannels"])
async def test_forbidden_publication_does_not_stop_counting_and_others_read(
    redis_program: RedisProgram, tmp_path: Path, changed: str
) -> None:
    mark = replace(PLAN, service="mark")
    async with (
        run_with_users(redis_program, tmp_path, changed) as (server, url),
        run_subscribed_replica(server.url) as other,
    ):
        await wait_until_subscribed(server)
        alone = Replica(url)
        await force_open(alone.store)
        assert alone.breaker_state(PLAN) is State.FORCED_OPEN
        await alone.store.close()
        assert [entry[b"username"] for entry in server.cli("ACL", "LOG")] == [b"podgate"], (
            "the replica tried to publish"
        )
        publish(server, OPEN, plan=mark)
        await wait_until(lambda: other.breaker_state(mark) is State.OPEN)
        assert other.breaker_state(PLAN) is None
        await other.store.tick([PLAN])
        assert other.breaker_state(PLAN) is State.FORCED_OPEN


@pytest.mark.parametrize("command", ["PUBLISH", "SUBSCRIBE"])
async def test_documented_user_is_denied_another_channel(
    redis_program: RedisProgram, tmp_path: Path, command: str
) -> None:
    async with run_with_users(redis_program, tmp_path, "on") as (server, _):
        arguments = {"PUBLISH": ("another", "x"), "SUBSCRIBE": ("another",)}[command]
        with pytest.raises(NoPermissionError, match="channel"):
            server.cli(command, *arguments, username="podgate", password="serving")


async def test_replay_publishes_no_announcement(redis_server: RedisServer) -> None:
    async with run_subscribed_replica(redis_server.url) as replica:
        await wait_until_subscribed(redis_server)
        clock = HandClock()
        options: dict[str, Any] = {"time_us": clock.now_us}
        replay = RedisStore(
            open_transport(redis_server.url), "test", clock, StoreReports(int, str, str), deadline_seconds=30, **options
        )
        await force_open(replay)
        await replay.close()
        publish(redis_server, OPEN, plan=replace(PLAN, service="mark"))
        await wait_until(lambda: replica.breaker_state(replace(PLAN, service="mark")) is State.OPEN)
        assert replica.breaker_state(PLAN) is None
