"""Each kind of failure has its reason, made on a real Redis: by an admission, by a tick, and without any service."""

import asyncio
import os
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import redis

from tests.core.plans import plan_of, window
from tests.redis_servers import RedisCluster, RedisProgram, RedisServer
from tests.redis_servers.access import CLUSTER_PASSWORD, acl_file, user
from tests.redis_servers.waiting import wait_until
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, error_classes, open_transport
from webhook.adapters.redis_store.transport.connect import join_errors
from webhook.core.quota import Acquire, CounterPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import StoreReports
from webhook.ports.store_url import StoreFiles

pytest_plugins = ("tests.redis_servers.fixtures",)

PLANS = tuple(plan_of(window(60, pods=9), service=name, tag=name) for name in ("a", "b"))
NO_FILES = StoreFiles()
Names = set[str]


class Probe:
    """A store and the reasons that it reports."""

    def __init__(self, url: str, files: StoreFiles = NO_FILES, deadline_seconds: float = 5.0) -> None:
        self.reasons: list[str] = []
        reports = StoreReports(int, lambda failure: self.reasons.append(str(failure)), str)
        transport = open_transport(url, files)
        self.store = RedisStore(transport, "test", SystemClock(), reports, deadline_seconds=deadline_seconds)

    async def collect_words(self, *plans: CounterPlan) -> Names:
        """Admit a Pod of each service and tick, and return the words of the reports."""
        for plan in plans:
            with suppress(StoreUnavailableError):
                await self.store.acquire(Acquire(plan, "shop", f"uid-{id(object())}", {"pods": 1}, "user:alice"))
        with suppress(StoreUnavailableError):
            await self.store.tick(plans)
        return {reason.partition(":")[0] for reason in self.reasons}


@asynccontextmanager
async def open_probe(url: str, files: StoreFiles = NO_FILES, deadline_seconds: float = 5.0) -> AsyncIterator[Probe]:
    probe = Probe(url, files, deadline_seconds)
    try:
        yield probe
    finally:
        await probe.store.close()


async def collect_words(url: str, files: StoreFiles = NO_FILES) -> Names:
    """Return the words of a new store's first calls."""
    async with open_probe(url, files) as probe:
        return await probe.collect_words(*PLANS)


@pytest.mark.parametrize("plans", [PLANS, ()], ids=["with-services", "without-a-service"])
async def test_refused_connection_is_unreachable(own_redis_server: RedisServer, plans: tuple[CounterPlan, ...]) -> None:
    async with open_probe(own_redis_server.url) as probe:
        assert await probe.collect_words(*plans) == set()
        own_redis_server.kill()
        assert await probe.collect_words(*plans) == {"unreachable"}


@pytest.mark.parametrize(
    "address",
    ["nowhere.invalid", f"{'a' * 64}.example"],
    ids=["unknown-host", "host-that-is-no-name"],
)
async def test_host_without_an_address_is_unreachable(address: str) -> None:
    assert await collect_words(f"redis://{address}:6379/0") == {"unreachable"}


class AnsweringServer:
    """A server that answers everything on a connection alike, or resets it."""

    def __init__(self, reply: bytes = b"") -> None:
        self._reply = reply
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self._listener.getsockname()[1]}/0"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._answer, args=(self._listener.accept()[0],), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while connection.recv(1 << 16):
                if not self._reply:
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    return
                connection.sendall(self._reply)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


@pytest.mark.parametrize(
    ("reply", "word"),
    [
        (b"", "unreachable"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "other"),
        (b"-ERR max number of clients reached\r\n", "unreachable"),
        (b"-DENIED Redis is running in protected mode because no password is set\r\n", "authentication"),
        (b"-LOADING Redis is loading the dataset in memory\r\n", "failover"),
        (b"-MASTERDOWN Link with MASTER is down\r\n", "failover"),
        (b"-CLUSTERDOWN The cluster is down\r\n", "failover"),
        (b"-TRYAGAIN Multiple keys request during rehashing of slot\r\n", "failover"),
        (b"-BUSY Redis is busy running a script\r\n", "timeout"),
        (b"-ERR problem with LDAP service\r\n", "authentication"),
    ],
    ids=["reset", "http", "clients", "denied", "loading", "masterdown", "clusterdown", "tryagain", "busy", "ldap"],
)
async def test_answer_of_a_server_has_its_reason(reply: bytes, word: str) -> None:
    server = AnsweringServer(reply)
    try:
        assert await collect_words(server.url) == {word}
    finally:
        server.close()


@pytest.fixture
def guarded(redis_program: RedisProgram, tmp_path: Path) -> Iterator[RedisServer]:
    users = acl_file(tmp_path / "users.acl", user("users", "serving"))
    with RedisServer(redis_program, tmp_path / "redis", "--aclfile", str(users)) as running:
        yield running


def url_of(server: RedisServer, who: str) -> str:
    return f"redis://{who}127.0.0.1:{server.port}/0"


async def test_refused_caller_is_authentication(guarded: RedisServer, tmp_path: Path) -> None:
    for who in ("podgate:wrong@", "nobody:serving@"):
        assert await collect_words(url_of(guarded, who)) == {"authentication"}, who
    absent = StoreFiles(password_file=tmp_path / "absent")
    assert await collect_words(url_of(guarded, "podgate@"), absent) == {"authentication"}, "its password cannot be read"
    guarded.cli("ACL", "SETUSER", "default", "off")
    assert await collect_words(url_of(guarded, "")) == {"authentication"}, "no password"


async def test_password_of_a_server_that_has_none_is_authentication(own_redis_server: RedisServer) -> None:
    assert await collect_words(url_of(own_redis_server, ":needless@")) == {"authentication"}


RIGHTS = ("-evalsha", "-time", "-hset", "-set", "-info", "resetkeys")


@pytest.mark.parametrize("right", RIGHTS)
async def test_missing_right_is_authentication(guarded: RedisServer, right: str) -> None:
    guarded.cli("ACL", "SETUSER", "podgate", right)
    assert await collect_words(url_of(guarded, "podgate:serving@")) == {"authentication"}


async def test_script_that_cannot_be_sent_again_is_authentication(guarded: RedisServer) -> None:
    guarded.cli("ACL", "SETUSER", "podgate", "-eval")
    assert await collect_words(url_of(guarded, "podgate:serving@")) == {"authentication"}


async def test_forgotten_script_is_no_failure(redis_server: RedisServer) -> None:
    async with open_probe(redis_server.url) as probe:
        for _ in range(2):
            assert await probe.collect_words(*PLANS) == set()
            redis_server.cli("SCRIPT", "FLUSH")


async def test_late_answer_is_a_timeout(own_redis_server: RedisServer) -> None:
    async with open_probe(own_redis_server.url, deadline_seconds=1.0) as probe:
        assert await probe.collect_words(*PLANS) == set()
        own_redis_server.pause()
        assert await probe.collect_words(PLANS[0]) == {"timeout"}
        own_redis_server.resume()


def fail_to_save(server: RedisServer) -> None:
    """Let a snapshot fail: its name is that of a folder."""
    server.cli("CONFIG", "SET", "save", "3600 1")
    (server.folder / "dump.rdb").mkdir()
    server.cli("SET", "x", "1")
    with suppress(redis.ResponseError):
        server.cli("BGSAVE")
    wait_until(lambda: server.cli("INFO", "persistence")["rdb_last_bgsave_status"] != "ok", "a snapshot fails")


def _ring(plan: CounterPlan) -> str:
    return f"podgate:{{{plan.tag}}}:v1:test:ring:{plan.service}"


CONFIGURED: dict[str, tuple[str, Callable[[RedisServer], object]]] = {
    "full": ("full", lambda server: server.cli("CONFIG", "SET", "maxmemory", "1")),
    "replica": ("readonly", lambda server: server.cli("REPLICAOF", "127.0.0.1", "1")),
    "without-replicas": ("readonly", lambda server: server.cli("CONFIG", "SET", "min-replicas-to-write", "1")),
    "cannot-save": ("readonly", fail_to_save),
    "stale-replica": (
        "failover",
        lambda server: (
            server.cli("CONFIG", "SET", "replica-serve-stale-data", "no"),
            server.cli("REPLICAOF", "127.0.0.1", "1"),
        ),
    ),
    "broken-record": ("script", lambda server: [server.cli("SET", _ring(plan), "x") for plan in PLANS]),
}


@pytest.mark.parametrize("kind", CONFIGURED)
async def test_state_of_the_server_has_its_reason(own_redis_server: RedisServer, kind: str) -> None:
    word, configure = CONFIGURED[kind]
    configure(own_redis_server)
    assert await collect_words(own_redis_server.url) == {word}


async def test_server_that_loads_its_data_is_a_failover(redis_program: RedisProgram, tmp_path: Path) -> None:
    debug = () if redis_program.name == "redis-6.2" else ("--enable-debug-command", "yes")
    with RedisServer(redis_program, tmp_path / "redis", *debug, "--key-load-delay", "100") as server:
        with server.client() as client:
            client.mset({f"key-{number}": os.urandom(1000) for number in range(40_000)})  # not to be compressed
        loading = threading.Thread(target=lambda: suppress_all(server, "DEBUG", "RELOAD"))
        loading.start()
        wait_until(lambda: is_loading(server), "it loads its data")
        try:
            assert await collect_words(server.url) == {"failover"}
        finally:
            server.kill()
            await asyncio.to_thread(loading.join)


def suppress_all(server: RedisServer, *command: str) -> None:
    with suppress(redis.RedisError):
        server.cli(*command, socket_timeout=HANG_SECONDS)


def is_loading(server: RedisServer) -> bool:
    try:
        server.cli("GET", "x")
    except redis.BusyLoadingError:
        return True
    return False


def is_busy(server: RedisServer) -> bool:
    try:
        server.cli("PING")
    except redis.ResponseError:
        return True
    return False


async def test_busy_server_is_a_timeout(own_redis_server: RedisServer) -> None:
    own_redis_server.cli("CONFIG", "SET", "lua-time-limit", "1")
    endless = threading.Thread(target=lambda: suppress_all(own_redis_server, "EVAL", "while true do end", "0"))
    endless.start()
    wait_until(lambda: is_busy(own_redis_server), "its script is slow")
    try:
        assert await collect_words(own_redis_server.url) == {"timeout"}
    finally:
        own_redis_server.cli("SCRIPT", "KILL")
        await asyncio.to_thread(endless.join)


async def test_too_many_clients_are_unreachable(own_redis_server: RedisServer) -> None:
    with own_redis_server.client() as held:
        held.ping()
        held.config_set("maxclients", 1)
        assert await collect_words(own_redis_server.url) == {"unreachable"}


async def test_node_of_a_cluster_as_one_server_is_a_failover(redis_cluster: RedisCluster) -> None:
    """Its slots are elsewhere, as after a failover."""
    others = [plan for plan in PLANS if redis_cluster.owner(plan.tag) is not redis_cluster.owner(PLANS[0].tag)]
    owner = redis_cluster.owner(PLANS[0].tag)
    assert others
    async with open_probe(f"redis://podgate:{CLUSTER_PASSWORD}@127.0.0.1:{owner.port}/0") as probe:
        assert await probe.collect_words(others[0]) == {"failover"}


@pytest.mark.parametrize(
    ("errors", "word"),
    [
        ([TimeoutError("late"), redis.TimeoutError("late")], "timeout"),
        ([TimeoutError("late"), redis.ConnectionError("refused")], "unreachable"),
        ([TimeoutError("late"), redis.AuthenticationError("wrong")], "authentication"),
        ([], "unreachable"),
    ],
)
def test_several_attempts_have_one_reason(errors: list[Exception], word: str) -> None:
    assert error_classes.described(join_errors("no server answers", errors)).fault == word
