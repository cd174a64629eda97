"""The users of `docs/examples/redis` have all permissions that Podgate needs, and none to spare."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contract.counter_store import BREAKER, HandClock
from tests.core.plans import plan_of, standing, window
from tests.redis_servers import RedisCluster, RedisServer, names, program
from tests.redis_servers.access import CLUSTER_PASSWORD, acl_file, commands, user
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisDecisions, RedisRolloutCounts, RedisStore, open_transport
from webhook.adapters.redis_store.transport.script import TEXT
from webhook.core.breaker.outcome_types import Outcomes
from webhook.core.quota import Acquire, CounterPlan, PoolPlan, Receipt, Sighting
from webhook.errors import StoreUnavailableError
from webhook.ports import StoreReports

pytest_plugins = ("tests.redis_servers.fixtures",)

POOL = PoolPlan("shared", (window(60, pods=5),))
PLANS = (
    plan_of(window(60, pods=3, cpu=500), breaker=BREAKER),
    plan_of(
        window(60, pods=1),
        service="b",
        tag="shared",
        per_namespace=True,
        pool=POOL,
        breaker=BREAKER,
        standing=standing(pods=2),
    ),
)
WEEK_SECONDS = 7 * 86_400
"""Longer than every counter is kept."""


@pytest.fixture(scope="module", params=names())
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    folder = tmp_path_factory.mktemp("least")
    users = acl_file(folder / "users.acl", user("users", "serving"), user("replay", "replaying"))
    with RedisServer(program(request.param), folder / "redis", "--aclfile", str(users)) as running:
        yield running


@asynccontextmanager
async def open_store_as(
    server: RedisServer, name: str, password: str, clock: HandClock | None = None
) -> AsyncIterator[RedisStore]:
    async with open_store(f"redis://{name}:{password}@127.0.0.1:{server.port}/0", clock) as store:
        yield store


@asynccontextmanager
async def open_store(url: str, clock: HandClock | None) -> AsyncIterator[RedisStore]:
    reports = StoreReports(int, str, str)
    timed: dict[str, Any] = {"time_us": clock.now_us} if clock else {}
    store = RedisStore(open_transport(url), "test", clock or SystemClock(), reports, deadline_seconds=30, **timed)
    try:
        yield store
    finally:
        await store.close()


async def run_all_operations(store: RedisStore, pass_seconds: Callable[[float], None]) -> None:
    """Run every operation of server and controller, and again after every counter has expired."""
    for number in range(2):
        for plan in PLANS:
            for uid in "abc":
                cost = {"pods": 1, "requests.cpu": 100}
                asked = Acquire(plan, f"team-{number}", f"{uid}{number}", cost, f"x:{uid}")
                await store.acquire(asked)
            await store.record_outcomes(plan, [Outcomes.from_single(ok=True, latency_us=1)])
            await store.refund(plan, f"a{number}")
            await run_controller_operations(store, plan, number)
            await run_queue_operations(store, plan)
            await store.snapshot(plan, "team-0")
        await store.tick(PLANS)
        pass_seconds(WEEK_SECONDS)


async def run_controller_operations(store: RedisStore, plan: CounterPlan, number: int) -> None:
    """Run the controller's own operations."""
    namespace = f"team-{number}"
    for operations in (True, False):
        await store.observe(plan, [Sighting(namespace, "pod", f"seen-{number}", {"pods": 1}, operations)])
    await store.observe(plan, [Sighting(namespace, "pod", f"b{number}", {"pods": 1}, lives=True)])
    await store.list_overdue(plan, 0, 10)
    await store.stop_waiting(plan, [f"c{number}"])
    for scope in await store.list_scopes(plan):
        await store.list_live(plan, scope)
    await store.mark_complete(plan, [namespace])
    await store.reset(plan, 1)


async def run_queue_operations(store: RedisStore, plan: CounterPlan) -> None:
    """Run the operations on the index of waiting Pods, which a replay does not have."""
    await store.queue.restore(plan, {"a": 1})
    await store.queue.register(plan, "b")
    await store.queue.count(plan)
    await store.queue.forget(plan, [*await store.queue.list_waiting(plan)])


async def run_as_server(server: RedisServer) -> None:
    clock = HandClock()
    async with open_store_as(server, "podgate", "serving", clock) as store:
        await run_all_operations(store, clock.sleep)
    async with open_store_as(server, "podgate", "serving") as store:
        await run_all_operations(store, lambda _: None)
    await keep_decisions(f"redis://podgate:serving@127.0.0.1:{server.port}/0")


async def keep_decisions(url: str) -> None:
    """Write and read decision records, policies, and counts of a rollout."""
    transport = open_transport(url)
    decisions, counts = RedisDecisions(transport, "test"), RedisRolloutCounts(transport, "test", SystemClock().now_us)
    try:
        await decisions.append([b"{}"])
        await decisions.read_page("", 10)
        await decisions.keep_policy("9640bfdb9640bfdb", b"kind: Policy")
        await decisions.read_policy("9640bfdb9640bfdb")
        await counts.add("9640bfdb9640bfdb", {"reviews": 1})
        assert (await counts.read("9640bfdb9640bfdb", 0))["reviews"] >= 1
    finally:
        await counts.close()
        await decisions.close()
        await transport.close()


async def run_as_replay(server: RedisServer) -> None:
    clock = HandClock()
    async with open_store_as(server, "podgate-replay", "replaying", clock) as store:
        await store.ping()
        for plan in PLANS:
            for namespace in ("payments", "shop"):
                for uid in "ab":
                    await store.acquire(Acquire(plan, namespace, f"{namespace}-{uid}", {"pods": 1}, "x"))
                await run_controller_operations(store, plan, len(namespace))
                clock.sleep(WEEK_SECONDS)
                await store.snapshot(plan)
        await store.forget()


ANNOUNCING = {"+publish", "+subscribe"}
"""Without these every change is known a second later: `redis_store/test_announcements.py` covers that."""

QUEUES = ("+zcard", "+zscan")
"""Rights that only the index of waiting Pods needs."""

USERS: dict[str, tuple[str, Callable[[RedisServer], Awaitable[None]]]] = {
    "users": ("podgate", run_as_server),
    "replay": ("podgate-replay", run_as_replay),
}


@pytest.mark.parametrize("kind", USERS)
async def test_documented_user_has_enough_rights(server: RedisServer, kind: str) -> None:
    name, operations = USERS[kind]
    server.cli("FLUSHALL")
    server.cli("ACL", "LOG", "RESET")
    await operations(server)
    refused = {entry["object"] for entry in server.cli("ACL", "LOG")}
    assert refused == set(), f"{name} tried a forbidden command, and continued"


@pytest.mark.parametrize(
    ("kind", "right"), [(kind, right) for kind in USERS for right in commands(kind) if right not in ANNOUNCING]
)
async def test_documented_user_needs_each_right(server: RedisServer, kind: str, right: str) -> None:
    name, operations = USERS[kind]
    server.cli("FLUSHALL")
    server.cli("SCRIPT", "FLUSH")
    server.cli("ACL", "SETUSER", name, right.replace("+", "-"))
    try:
        with pytest.raises(StoreUnavailableError, match=r"(?i)NOPERM|permission|can't run this command"):
            await asyncio.wait_for(operations(server), HANG_SECONDS)
    finally:
        server.cli("ACL", "SETUSER", name, right)


async def test_documented_cluster_user_has_enough_rights(redis_cluster: RedisCluster) -> None:
    for node in redis_cluster.nodes:
        node.cli("ACL", "LOG", "RESET")
    url, clock = redis_cluster.url.replace("://", f"://podgate:{CLUSTER_PASSWORD}@"), HandClock()
    async with open_store(url, clock) as store:
        await run_all_operations(store, clock.sleep)
    async with open_store(url, None) as store:
        await run_all_operations(store, lambda _: None)
    await keep_decisions(url)
    refused = {entry["object"] for node in redis_cluster.nodes for entry in node.cli("ACL", "LOG")}
    assert refused == set()


async def test_documented_users_are_denied_other_keys(server: RedisServer) -> None:
    for kind, password in (("users", "serving"), ("replay", "replaying")):
        name, _ = USERS[kind]
        with ExitStack() as stack:
            client = stack.enter_context(server.client(username=name, password=password))
            with pytest.raises(Exception, match=r"(?i)keys|permission"):
                client.set("another", 1)


def test_documented_rights_match_the_script_and_its_callers() -> None:
    in_script = {f"+{name.lower()}" for name in re.findall(r"redis\.p?call\('(\w+)'", TEXT)}
    assert set(commands("users")) == in_script | {"+evalsha", "+eval", "+info", "+subscribe", "+xadd", "+xrevrange"}
    assert set(commands("cluster")) == {*commands("users"), "+cluster|slots", "+asking"}
    assert set(commands("replay")) == (in_script | {"+evalsha", "+eval", "+ping", "+scan", "+unlink"}) - {
        "+time",
        "+publish",
        *QUEUES,
    }


def test_page_has_a_reason_for_each_right() -> None:
    page = (Path(__file__).parents[3] / "docs/redis.md").read_text().replace("\\|", "|")
    for kind in ("users", "cluster", "replay", "sentinel"):
        for right in commands(kind):
            assert re.search(rf"^\|.*`{re.escape(right)}`.*\|", page, re.MULTILINE), f"{right} has no row"
        assert f"examples/redis/{kind}.acl" in page


@pytest.mark.parametrize("right", QUEUES)
async def test_missing_right_of_queues_fails_their_operations_only(server: RedisServer, right: str) -> None:
    troubles: list[str] = []
    server.cli("FLUSHALL")
    server.cli("ACL", "SETUSER", "podgate", right.replace("+", "-"))
    link = open_transport(f"redis://podgate:serving@127.0.0.1:{server.port}/0")
    store = RedisStore(
        link,
        "test",
        SystemClock(),
        StoreReports(int, lambda failure: troubles.append(str(failure)), str),
        deadline_seconds=30,
    )
    plan, failing = PLANS[0], store.queue.count if right == "+zcard" else store.queue.list_waiting
    await store.acquire(Acquire(plan, "x", "first", {"pods": 1}, "x"))
    try:
        failed, receipt, restored = await asyncio.gather(
            failing(plan),
            store.acquire(Acquire(plan, "x", "a", {"pods": 1}, "x")),
            store.queue.restore(plan, {"b": 1}),
            return_exceptions=True,
        )
        assert isinstance(failed, StoreUnavailableError)
        assert isinstance(receipt, Receipt)
        assert (receipt.charged, restored) == (True, None), "they share the call"
        assert troubles == [str(failed)]
        assert str(failed).startswith("authentication: ")
    finally:
        server.cli("ACL", "SETUSER", "podgate", right)
        await store.close()


async def test_missing_right_to_identify_the_server_is_reported_once_and_counting_continues(
    server: RedisServer,
) -> None:
    troubles: list[str] = []
    server.cli("FLUSHALL")
    server.cli("ACL", "SETUSER", "podgate", "-info")
    link = open_transport(f"redis://podgate:serving@127.0.0.1:{server.port}/0")
    store = RedisStore(
        link,
        "test",
        SystemClock(),
        StoreReports(int, lambda failure: troubles.append(str(failure)), str),
        deadline_seconds=30,
    )
    try:
        for uid in "ab":
            assert (await store.acquire(Acquire(PLANS[0], "x", uid, {"pods": 1}, "x"))).charged
            with pytest.raises(StoreUnavailableError):
                await store.tick(PLANS)
        assert (await store.servers()).error.startswith("authentication: ")
        (trouble,) = troubles
        assert trouble.startswith(
            "authentication: the server process is not known, so that a loss of data goes unnoticed: "
        )
    finally:
        server.cli("ACL", "SETUSER", "podgate", "+info")
        await store.close()
