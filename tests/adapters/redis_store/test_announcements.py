"""Breaker transitions reach all subscribers on real servers, by order and state."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from redis.exceptions import NoPermissionError

from tests.contract.test_counter_store import BREAKER, HandClock
from tests.core.plans import plan_of
from tests.redis_servers import RedisCluster, RedisProgram, RedisServer, SentinelGroup
from tests.redis_servers.access import CLUSTER_PASSWORD, acl_file, user
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, announcements, open_transport
from webhook.adapters.redis_store.codec import packed_view
from webhook.core.breaker import BreakerView, Forcing, State
from webhook.core.quota import Acquire, CounterPlan, DeniedBy
from webhook.ports import Clock, WatchReports
from webhook.ports.store_url import StoreFiles

pytest_plugins = ("tests.redis_servers.fixtures",)

PLAN = plan_of(breaker=BREAKER)
CHANNEL = "podgate:v1:test:breakers"
FAR_US = 4_000_000_000_000_000
"""A moment that no test lives to see."""

FORCED = replace(PLAN, breaker=replace(BREAKER, forcing=Forcing(State.FORCED_OPEN, FAR_US, "INC-1")))
OPEN = BreakerView(State.OPEN, 5, 1, FAR_US, "errorRate", tripped_at_us=1, tripped_by="errorRate")
NO_FILES = StoreFiles()


class Replica:
    """A store that listens, and what it told of that."""

    def __init__(self, url: str, files: StoreFiles = NO_FILES, clock: Clock | None = None) -> None:
        self.troubles: list[str] = []
        self.over: list[str] = []
        self.store = RedisStore(
            open_transport(url, files),
            "test",
            clock or SystemClock(),
            WatchReports(int, str, str),
            deadline_seconds=30,
            announcement_reports=WatchReports(int, self.troubles.append, self.over.append),
        )

    def knows(self, plan: CounterPlan = PLAN) -> State | None:
        view = self.store.last_breaker(plan)
        return view.state if view is not None else None


@asynccontextmanager
async def listening(url: str, files: StoreFiles = NO_FILES, clock: Clock | None = None) -> AsyncIterator[Replica]:
    replica = Replica(url, files, clock)
    following = asyncio.create_task(replica.store.follow())
    try:
        yield replica
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await replica.store.close()


async def eventually(holds: Callable[[], bool]) -> None:
    """Wait for what happens in another process, or in a task that tells nobody."""
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110  as said
            await asyncio.sleep(0.01)


async def subscribed(*servers: RedisServer, count: int = 1) -> None:
    """Wait until so many listen, on any of the servers."""

    def all_there() -> bool:
        return sum(int(server.cli("PUBSUB", "NUMSUB", CHANNEL)[1]) for server in servers) >= count

    await eventually(all_there)


def published(server: RedisServer, view: BreakerView, at_us: int = 1, plan: CounterPlan = PLAN) -> None:
    server.cli("PUBLISH", CHANNEL, msgspec.msgpack.encode((plan.tag, plan.service, at_us, packed_view(view))))


async def forced_open(store: RedisStore) -> None:
    """Move the breaker by one call."""
    await store.apply_override(FORCED)


async def test_breaker_change_is_announced_to_the_other_replicas(redis_server: RedisServer) -> None:
    async with listening(redis_server.url) as one, listening(redis_server.url) as other:
        await subscribed(redis_server, count=2)
        await forced_open(one.store)
        await eventually(lambda: other.knows() is State.FORCED_OPEN)
        view = other.store.last_breaker(PLAN)
        assert view is not None
        assert (view.state, view.reason, view.open_until_us) == (State.FORCED_OPEN, "INC-1", FAR_US)
        await one.store.apply_override(PLAN)
        await eventually(lambda: other.knows() is State.CLOSED)
        assert one.troubles == other.troubles == []


async def test_manual_state_unknown_to_the_plan_is_read_from_redis(redis_server: RedisServer) -> None:
    async with listening(redis_server.url) as one, listening(redis_server.url) as other:
        await subscribed(redis_server, count=2)
        await forced_open(one.store)
        await eventually(lambda: other.knows() is State.FORCED_OPEN)
        assert other.store.known_breaker(PLAN) is None, "its override has ended, or is not known here yet"
        assert other.store.known_breaker(FORCED) is not None
        asked = Acquire(PLAN, "payments", "a", {"pods": 1}, "user:alice")
        assert (await other.store.acquire(asked)).refused is DeniedBy.BREAKER
        await one.store.apply_override(PLAN)
        assert (await other.store.acquire(asked)).refused is None


async def test_subscription_uses_one_more_connection_and_closes_it_at_the_end(redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        async with listening(redis_server.url) as replica:
            await subscribed(redis_server)
            await replica.store.tick([PLAN])
            kinds = sorted(other["sub"] for other in client.client_list() if other["id"] != str(client.client_id()))
            assert kinds == ["0", "1"]
        await eventually(lambda: len(client.client_list()) == 1)


async def test_an_announcement_on_a_socket_and_of_another_database_is_counted(
    redis_program: RedisProgram, tmp_path: Path
) -> None:
    path = tmp_path / "redis.sock"
    with RedisServer(redis_program, tmp_path / "redis", "--unixsocket", str(path)) as server:
        async with listening(f"unix://{path}?db=3") as one, listening(f"redis://127.0.0.1:{server.port}/3") as other:
            await subscribed(server, count=2)
            await forced_open(other.store)
            await eventually(lambda: one.knows() is other.knows() is State.FORCED_OPEN)


async def test_newest_of_two_views_is_kept_in_any_order(redis_server: RedisServer) -> None:
    async with listening(redis_server.url) as replica:
        await subscribed(redis_server)
        marks = iter(range(100))

        async def after(view: BreakerView, at_us: int) -> BreakerView | None:
            """Publish it and something else behind it: when that is known, it has been read."""
            published(redis_server, view, at_us)
            mark = replace(PLAN, service=f"mark-{next(marks)}")
            published(redis_server, OPEN, plan=mark)
            await eventually(lambda: replica.knows(mark) is State.OPEN)
            return replica.store.last_breaker(PLAN)

        probing = replace(OPEN, state=State.HALF_OPEN, generation=6, open_until_us=0)
        assert await after(OPEN, 10) == OPEN
        assert await after(probing, 5) == probing, "a clock that was put back does not undo a transition"
        assert await after(OPEN, 20) == probing
        newer = replace(probing, probes_leased=2)
        assert await after(newer, 30) == newer
        assert await after(probing, 29) == newer
        apart = replace(OPEN, generation=6)
        assert await after(apart, 31) == apart, "of two that moved apart the open one holds"
        assert await after(newer, 40) == apart


@pytest.mark.parametrize(
    "nonsense",
    [
        b"\xc1",
        b"",
        b"no list",
        msgspec.msgpack.encode(("a", "b", 1)),
        msgspec.msgpack.encode(("a", "b", 1, [])),
        msgspec.msgpack.encode(("a", "b", "now", packed_view(OPEN))),
        msgspec.msgpack.encode(("a", "b", 1, ["ASLEEP", 5, 1, 1, "", 0, 0])),
        msgspec.msgpack.encode(("a", "b", 1, ["OPEN", "five", 1, 1, "", 0, 0])),
        msgspec.msgpack.encode(("a", "b", 1, ["OPEN", 5, 1, 1, "", 0, 0, 0])),
        msgspec.msgpack.encode(("a", "b", 1, [["OPEN"], 5, 1, 1, "", 0, 0])),
    ],
)
async def test_an_announcement_that_cannot_be_read_is_reported_once_and_changes_nothing(
    redis_server: RedisServer, nonsense: bytes
) -> None:
    async with listening(redis_server.url) as replica:
        await subscribed(redis_server)
        for _ in range(2):
            redis_server.cli("PUBLISH", CHANNEL, nonsense)
        published(redis_server, OPEN)
        await eventually(lambda: replica.knows() is State.OPEN)
        (told,) = replica.troubles
        assert told.startswith("script: an announcement cannot be read: ")
        assert replica.over == [told]


async def test_announcement_of_a_newer_version_with_more_fields_is_read(redis_server: RedisServer) -> None:
    async with listening(redis_server.url) as replica:
        await subscribed(redis_server)
        more = (PLAN.tag, PLAN.service, 1, [*packed_view(OPEN), "more"])
        redis_server.cli("PUBLISH", CHANNEL, msgspec.msgpack.encode(more))
        await eventually(lambda: replica.knows() is State.OPEN)
        assert replica.store.last_breaker(PLAN) == OPEN


async def test_a_lost_connection_is_reported_once_and_made_again(own_redis_server: RedisServer) -> None:
    async with listening(own_redis_server.url) as replica:
        await subscribed(own_redis_server)
        own_redis_server.kill()
        await eventually(lambda: bool(replica.troubles))
        await asyncio.sleep(0.3)  # several attempts
        own_redis_server.start()
        await subscribed(own_redis_server)
        await eventually(lambda: replica.over == replica.troubles)
        assert {told.partition(":")[0] for told in replica.troubles} == {"unreachable"}
        assert len(replica.troubles) == 1
        published(own_redis_server, OPEN)
        await eventually(lambda: replica.knows() is State.OPEN)


async def test_a_server_that_says_nothing_any_more_is_left(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "_SILENT_SECONDS", 1)
    async with listening(own_redis_server.url) as replica:
        await subscribed(own_redis_server)
        await asyncio.sleep(3)
        assert replica.troubles == [], "a server that is there says so"
        own_redis_server.pause()
        await eventually(lambda: bool(replica.troubles))
        assert replica.troubles[0].startswith("timeout: no message for 2 s")
        own_redis_server.resume()
        await eventually(lambda: len(replica.over) == len(replica.troubles))
        published(own_redis_server, OPEN)
        await eventually(lambda: replica.knows() is State.OPEN)


async def test_passwords_are_read_again_for_each_connection(redis_program: RedisProgram, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("first")
    users = acl_file(tmp_path / "users.acl", user("users", "first"))
    with RedisServer(redis_program, tmp_path / "redis", "--aclfile", str(users)) as server:
        url, files = f"redis://podgate@127.0.0.1:{server.port}", StoreFiles(password_file=password)
        async with listening(url, files) as replica:
            await subscribed(server)
            server.cli("ACL", "SETUSER", "podgate", ">second", "<first")
            server.cli("CLIENT", "KILL", "TYPE", "pubsub")
            await eventually(lambda: any(told.startswith("authentication: ") for told in replica.troubles))
            password.write_text("second")
            await subscribed(server)
            published(server, OPEN)
            await eventually(lambda: replica.knows() is State.OPEN)
            await eventually(lambda: len(replica.over) == len(replica.troubles))


async def test_another_primary_is_listened_to_when_one_is_gone(redis_program: RedisProgram, tmp_path: Path) -> None:
    with SentinelGroup(redis_program, tmp_path / "group") as group:
        first = group.primary
        async with listening(group.url) as replica:
            await subscribed(first)
            first.kill()
            second = group.wait_for_failover(first)
            await subscribed(second)
            await eventually(lambda: len(replica.over) == len(replica.troubles) > 0)
            published(second, OPEN)
            await eventually(lambda: replica.knows() is State.OPEN)


async def test_subscription_leaves_a_primary_that_sentinels_no_longer_name(
    redis_program: RedisProgram, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(announcements, "_SILENT_SECONDS", 0.05)
    with (
        SentinelGroup(redis_program, tmp_path / "group", sentinels=1) as group,
        RedisServer(redis_program, tmp_path / "another") as another,
    ):
        async with listening(group.url) as replica:
            await replica.store.tick([PLAN])
            await subscribed(group.primary)

            async def named(*_: object) -> tuple[bytes, bytes]:
                return b"127.0.0.1", str(another.port).encode()

            monkeypatch.setattr("webhook.adapters.redis_store.transport.sentinel.Sentinels._ask", named)
            await replica.store.tick([PLAN])
            await subscribed(another)
            assert replica.troubles == []


async def test_on_a_cluster_any_node_is_listened_to_and_another_where_it_is_gone(
    redis_program: RedisProgram, tmp_path: Path
) -> None:
    with RedisCluster(redis_program, tmp_path / "cluster", "--cluster-require-full-coverage", "no") as cluster:
        async with listening(cluster.url) as one, listening(cluster.url) as other:
            await subscribed(*cluster.nodes, count=2)
            await forced_open(one.store)
            await eventually(lambda: one.knows() is other.knows() is State.FORCED_OPEN)
            owner = cluster.owner(PLAN.tag)
            gone = next(node for node in cluster.nodes if node is not owner)
            gone.kill()
            await subscribed(*(node for node in cluster.nodes if node is not gone), count=2)
            await one.store.apply_override(PLAN)
            await eventually(lambda: one.knows() is other.knows() is State.CLOSED)


async def test_the_documented_user_of_a_cluster_may_listen_on_every_node(redis_cluster: RedisCluster) -> None:
    for node in redis_cluster.nodes:
        url = f"redis+cluster://podgate:{CLUSTER_PASSWORD}@127.0.0.1:{node.port}"
        async with listening(url) as replica:
            await subscribed(node)
            await forced_open(replica.store)
            await eventually(lambda: replica.knows() is State.FORCED_OPEN)
            await replica.store.apply_override(PLAN)
            assert replica.troubles == []


@asynccontextmanager
async def with_users(redis_program: RedisProgram, folder: Path, changed: str) -> AsyncIterator[tuple[RedisServer, str]]:
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
        with_users(redis_program, tmp_path, changed) as (server, url),
        listening(server.url) as other,
        listening(url) as replica,
    ):
        await subscribed(server)
        await eventually(lambda: bool(replica.troubles))
        assert replica.troubles[0].startswith("authentication: ")
        await forced_open(other.store)
        await eventually(lambda: other.knows() is State.FORCED_OPEN)
        assert replica.knows() is None
        await replica.store.tick([PLAN])
        assert replica.knows() is State.FORCED_OPEN


@pytest.mark.parametrize("changed", ["-publish", "resetchannels"])
async def test_forbidden_publication_does_not_stop_counting_and_others_read(
    redis_program: RedisProgram, tmp_path: Path, changed: str
) -> None:
    mark = replace(PLAN, service="mark")
    async with with_users(redis_program, tmp_path, changed) as (server, url), listening(server.url) as other:
        await subscribed(server)
        alone = Replica(url)
        await forced_open(alone.store)
        assert alone.knows() is State.FORCED_OPEN
        await alone.store.close()
        assert [entry[b"username"] for entry in server.cli("ACL", "LOG")] == [b"podgate"], "it tried"
        published(server, OPEN, plan=mark)
        await eventually(lambda: other.knows(mark) is State.OPEN)
        assert other.knows() is None
        await other.store.tick([PLAN])
        assert other.knows() is State.FORCED_OPEN


@pytest.mark.parametrize("command", ["PUBLISH", "SUBSCRIBE"])
async def test_another_channel_is_not_theirs(redis_program: RedisProgram, tmp_path: Path, command: str) -> None:
    async with with_users(redis_program, tmp_path, "on") as (server, _):
        told = {"PUBLISH": ("another", "x"), "SUBSCRIBE": ("another",)}[command]
        with pytest.raises(NoPermissionError, match="channel"):
            server.cli(command, *told, username="podgate", password="serving")


async def test_a_replay_announces_nothing(redis_server: RedisServer) -> None:
    async with listening(redis_server.url) as replica:
        await subscribed(redis_server)
        clock = HandClock()
        told: dict[str, Any] = {"time_us": clock.now_us}
        replay = RedisStore(
            open_transport(redis_server.url), "test", clock, WatchReports(int, str, str), deadline_seconds=30, **told
        )
        await forced_open(replay)
        await replay.close()
        published(redis_server, OPEN, plan=replace(PLAN, service="mark"))
        await eventually(lambda: replica.knows(replace(PLAN, service="mark")) is State.OPEN)
        assert replica.knows() is None
