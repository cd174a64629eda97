"""The primary of a group is found again after a failover; with real Sentinels."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from redis.exceptions import AuthenticationError, RedisError, ResponseError

from tests.adapters.redis_store.transport import KEY, open_link
from tests.redis_servers import SERVICE, RedisProgram, RedisServer, SentinelGroup, program
from tests.redis_servers.access import acl_file, user
from tests.redis_servers.sentinel import CUT_OFF, SentinelServer
from tests.redis_servers.waiting import wait_until
from tests.timeouts import HANG_SECONDS
from webhook.adapters.redis_store.loss_detector import LossDetector
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.sentinel import Sentinels
from webhook.ports.store_url import RedisAddress, StoreFiles

pytest_plugins = ("tests.redis_servers.fixtures",)


async def wait_until_primary_answers(link: Transport) -> None:
    """Repeat a call until it succeeds: it may fail while there is no primary."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            with suppress(RedisError, OSError, TimeoutError):
                await link.run([KEY], b"x")
                return
            await asyncio.sleep(0.05)


async def wait_until_histories_change(link: Transport, before: Mapping[str, str]) -> Mapping[str, str]:
    """Query the run IDs, as a tick does, until they change; return them."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            with suppress(RedisError, OSError, TimeoutError):
                if (found := await link.ask_histories()) != before:
                    return found
            await asyncio.sleep(0.05)


@pytest.fixture
def group(redis_program: RedisProgram, tmp_path: Path) -> Iterator[SentinelGroup]:
    with SentinelGroup(redis_program, tmp_path / "group") as running:
        yield running


async def test_new_primary_is_found_after_a_failover(group: SentinelGroup) -> None:
    first = group.primary
    async with open_link(group.url) as link:
        before = await link.ask_histories()
        assert await link.run([KEY], b"a") == b"a"
        assert first.cli("GET", KEY) == b"1"
        first.kill()
        second = group.wait_for_failover(first)
        await wait_until_histories_change(link, before)
        await wait_until_primary_answers(link)
        assert await link.ask_histories() == {"": history_of(second)}
    assert int(second.cli("GET", KEY)) >= 1


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SentinelGroup]:
    """Return a group whose servers and Sentinels know the documented users."""
    folder = tmp_path_factory.mktemp("guarded")
    users = acl_file(folder / "users.acl", user("users", "of-the-servers"))
    options = (user("sentinel", "sentinels-own"),)
    with SentinelGroup(
        program("redis-8.2"), folder / "group", "--aclfile", str(users), sentinels=2, sentinel_options=options
    ) as running:
        yield running


def denials(server: RedisServer) -> list[str]:
    """Return the commands that a server has refused to a user that is known."""
    return [entry["object"] for entry in server.cli("ACL LOG") if entry["reason"] == "command"]


async def test_user_of_former_versions_is_enough_for_sentinels(guarded: SentinelGroup, tmp_path: Path) -> None:
    url = guarded.url.replace("://", "://podgate@")
    files = store_files(
        tmp_path,
        password_file="of-the-servers",
        sentinel_username_file="podgate",
        sentinel_password_file="sentinels-own",
    )
    for one in guarded.sentinels:
        one.cli("ACL", "SETUSER", "podgate", "-sentinel|master")
    try:
        async with open_link(url, files) as link:
            assert await link.ask_histories()
        assert [set(denials(one)) for one in guarded.sentinels] == [{"sentinel|master"}] * 2
    finally:
        for one in guarded.sentinels:
            one.cli("ACL", "SETUSER", "podgate", "+sentinel|master")
            one.cli("ACL", "LOG", "RESET")


def store_files(folder: Path, **contents: str) -> StoreFiles:
    """Return files of these contents."""
    for name, content in contents.items():
        (folder / name).write_text(content)
    return StoreFiles(**{name: folder / name for name in contents})


async def test_documented_users_are_enough_with_separate_sentinel_passwords(
    guarded: SentinelGroup, tmp_path: Path
) -> None:
    url = guarded.url.replace("://", "://podgate@")
    files = store_files(
        tmp_path, password_file="of-the-servers\n", sentinel_username_file="podgate\n", sentinel_password_file="wrong"
    )
    async with open_link(url, files) as link, open_link(url, files) as other:
        # A client without a user name is `default`, which may do anything here: so the name decides.
        refused = f"no Sentinel names the primary of '{SERVICE}': 127.*invalid username"
        with pytest.raises(AuthenticationError, match=refused):
            await link.ping()
        (tmp_path / "sentinel_password_file").write_text("sentinels-own")
        assert await link.ask_histories()
        assert [denials(one) for one in guarded.sentinels] == [[], []]
        (tmp_path / "password_file").write_text("wrong")
        with pytest.raises(AuthenticationError, match=f"127.0.0.1:{guarded.primary.port}: invalid username") as caught:
            await other.ask_histories()
        assert "wrong" not in str(caught.value).replace("wrong number", "")


async def test_unreachable_sentinels_and_unknown_services_are_named(guarded: SentinelGroup) -> None:
    hosts, _, _ = guarded.url.partition("//")[2].partition("/")
    one = hosts.partition(",")[0]
    for some in (f"127.0.0.1:1,{hosts}", f"127.0.0.1:1,127.0.0.1:2,{one}"):
        async with open_link(f"redis+sentinel://{some}/{SERVICE}") as some_gone:
            assert await some_gone.run([KEY], b"a") == b"a"
    async with open_link(f"redis+sentinel://127.0.0.1:1/{SERVICE}") as all_gone:
        with pytest.raises(RedisError, match=f"no Sentinel names the primary of '{SERVICE}': .*127.0.0.1:1"):
            await all_gone.ping()
    async with open_link(f"redis+sentinel://{hosts}/other") as other:
        with pytest.raises(RedisError, match=r"127\.0\.0\.1:\d+ knows no 'other'"):
            await other.ping()


async def test_named_replica_is_refused_as_primary(guarded: SentinelGroup, monkeypatch: pytest.MonkeyPatch) -> None:
    replica = guarded.replica

    async def name_replica(_: object) -> RedisAddress:
        return RedisAddress("127.0.0.1", replica.port)

    monkeypatch.setattr(Sentinels, "find_primary", name_replica)
    async with open_link(guarded.url) as link:
        with pytest.raises(RedisError, match=f"127.0.0.1:{replica.port}: .* its role is slave"):
            await link.run([KEY], b"a")


async def test_primary_that_sentinels_no_longer_name_is_left_at_the_next_tick(
    guarded: SentinelGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RedisServer(guarded.primary.program, tmp_path / "another") as another:

        async def name_another(_: object) -> RedisAddress:
            return RedisAddress("127.0.0.1", another.port)

        async with open_link(guarded.url) as link:
            assert await link.run([KEY], b"a") == b"a"
            apart = await link.dial(KEY)
            await link.ask_histories()
            assert not apart.is_closed
            monkeypatch.setattr(Sentinels, "find_primary", name_another)
            assert await link.ask_histories() == {"": another.cli("INFO", "server")["run_id"]}
            assert apart.is_closed, "so are the connections of counts and records"
            assert await link.run([KEY], b"b") == b"b"
        assert another.cli("GET", KEY) == b"1"


async def test_primary_is_left_on_failover_while_it_accepts_writes(
    guarded: SentinelGroup,
) -> None:
    first = guarded.primary
    async with open_link(guarded.url) as link:
        before = await link.ask_histories()
        guarded.sentinels[0].cli("SENTINEL", "FAILOVER", SERVICE)
        await wait_until_histories_change(link, before)
        await wait_until_primary_answers(link)
        assert guarded.wait_for_failover(first).cli("GET", KEY) is not None


async def test_primary_is_not_that_of_a_sentinel_that_is_cut_off(group: SentinelGroup, tmp_path: Path) -> None:
    first = group.primary
    with SentinelServer(first.program, tmp_path / "stale", first.port, 2, *CUT_OFF) as stale:
        group.sentinels[0].cli("SENTINEL", "FAILOVER", SERVICE)
        group.wait_for_failover(first)
        assert stale.primary_port() == first.port
        fresh = group.url.removeprefix("redis+sentinel://")
        async with open_link(f"redis+sentinel://127.0.0.1:{stale.port},{fresh}") as link:
            await wait_until_primary_answers(link)
            assert await link.ask_histories() == {"": history_of(group.primary)}


async def test_two_failovers_there_and_back_are_a_loss(group: SentinelGroup) -> None:
    first, losses = group.primary, list[None]()
    detector = LossDetector(lambda: losses.append(None))
    async with open_link(group.url) as link:
        detector.record_histories(before := await link.ask_histories())
        for former in (first, group.replica):
            wait_until(partial(begin_failover, group), "a Sentinel to find a replica good enough")
            group.wait_for_failover(former)
            group.wait_for_replica(former)
        link.on_connected = detector.on_connected
        await wait_until_primary_answers(link)
        detector.record_histories(after := await link.ask_histories())
        assert group.primary is first
        assert after[""].startswith(f"{before['']}:")
        assert losses == [None]


def begin_failover(group: SentinelGroup) -> bool:
    """Return whether a failover has begun. A Sentinel learns only after a while that a former primary follows."""
    try:
        group.sentinels[0].cli("SENTINEL", "FAILOVER", SERVICE)
    except ResponseError:
        return False
    return True


def history_of(server: RedisServer) -> str:
    """Return the history of a server that was promoted."""
    return f"{server.cli('INFO', 'server')['run_id']}:{server.cli('INFO', 'replication')['master_replid2']}"
