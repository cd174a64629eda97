"""One server behind a connection: calls in order, through every failure."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError, ReadOnlyError, RedisError, ResponseError

from tests.adapters.redis_store.transport import KEY, link, open_link
from tests.redis_servers import RedisProgram, RedisServer
from tests.redis_servers.waiting import wait_until
from webhook.adapters.redis_store.loss_detector import LossDetector
from webhook.adapters.redis_store.transport import connect
from webhook.adapters.redis_store.transport import stream as streams
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.redis_url import open_transport
from webhook.adapters.redis_store.transport.script import Script
from webhook.errors import UserError

__all__ = ["link"]

pytest_plugins = ("tests.redis_servers.fixtures",)
LOOPS = ("uvloop", "asyncio")


@pytest.fixture
async def own_link(own_redis_server: RedisServer) -> AsyncIterator[Transport]:
    async with open_link(own_redis_server.url) as opened:
        yield opened


def connections(server: RedisServer) -> int:
    """Return how many connections were made so far, without its own."""
    return int(server.cli("INFO", "stats")["total_connections_received"]) - 1


async def test_concurrent_calls_share_a_connection_and_get_their_own_answers(
    link: Transport, redis_server: RedisServer
) -> None:
    await link.ping()
    before = connections(redis_server)
    arguments = [f"{number}".encode() * number for number in range(100)]
    answers = await asyncio.gather(*(link.run([KEY], argument) for argument in arguments), link.ask_histories())
    assert answers[:-1] == arguments
    assert answers[-1] == {"": redis_server.cli("INFO", "server")["run_id"]}
    assert connections(redis_server) - before == 2, "both are this test's own"
    assert redis_server.cli("GET", KEY) == b"100"


async def test_concurrent_first_calls_share_one_connection(redis_server: RedisServer) -> None:
    before = connections(redis_server)
    async with open_link(redis_server.url) as link:
        assert await asyncio.gather(*(link.run([KEY], b"x") for _ in range(20))) == [b"x"] * 20
    assert connections(redis_server) - before == 2, "one is this test's own"


async def test_flushed_scripts_are_sent_again(link: Transport, redis_server: RedisServer) -> None:
    assert await link.run([KEY], b"a") == b"a"
    redis_server.cli("SCRIPT", "FLUSH")
    assert await asyncio.gather(*(link.run([KEY], b"b") for _ in range(5))) == [b"b"] * 5
    assert redis_server.cli("GET", KEY) == b"6"


async def test_idle_disconnect_fails_no_call(link: Transport, redis_server: RedisServer) -> None:
    await link.ping()
    await asyncio.to_thread(redis_server.cli, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    stream = link._connection._stream  # type: ignore[attr-defined]  # to see when the loop has noticed
    while not stream.is_closed:  # noqa: ASYNC110  there is no event
        await asyncio.sleep(0.01)
    assert await link.run([KEY], b"a") == b"a"


async def test_abandoned_answer_is_not_given_to_another_call(
    own_redis_server: RedisServer, own_link: Transport
) -> None:
    await own_link.ping()
    own_redis_server.pause()
    first, second = (asyncio.create_task(own_link.run([KEY], argument)) for argument in (b"first", b"second"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    failed = await asyncio.gather(first, second, return_exceptions=True)
    assert isinstance(failed[0], asyncio.CancelledError)
    assert isinstance(failed[1], RedisError), "it was on the same connection"
    own_redis_server.resume()
    assert [await own_link.run([KEY], f"{number}".encode()) for number in range(5)] == [b"0", b"1", b"2", b"3", b"4"]


async def test_connect_to_a_silent_server_times_out_and_leaves_nothing_open(
    own_redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "_CONNECT_SECONDS", 0.05)
    own_redis_server.pause()
    async with open_link(own_redis_server.url.replace("://", "://default:any@")) as link:
        with pytest.raises(TimeoutError, match=rf"127\.0\.0\.1:{own_redis_server.port}: not connected within 0.05 s"):
            await link.ping()
        monkeypatch.setattr(connect, "_CONNECT_SECONDS", 30)
        own_redis_server.resume()
        await link.ping()
        assert own_redis_server.cli("INFO", "clients")["connected_clients"] == 2, "one is this test's own"


async def test_silent_server_is_disconnected(
    own_redis_server: RedisServer, own_link: Transport, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_ANSWER_SECONDS", 0.05)
    await own_link.ping()
    own_redis_server.pause()
    asked = (own_link.run([KEY], b"a"), own_link.run([KEY], b"b"))
    failed = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(error, TimeoutError | RedisError) for error in failed)
    assert "no answer within 0.05 s" in {str(error) for error in failed}
    monkeypatch.setattr(streams, "_ANSWER_SECONDS", 30)
    own_redis_server.resume()
    assert await own_link.run([KEY], b"c") == b"c"


async def test_restarted_server_has_a_new_run_id(own_redis_server: RedisServer, own_link: Transport) -> None:
    before = await own_link.ask_histories()
    assert await own_link.ask_histories() == before
    own_redis_server.kill()
    await asyncio.sleep(0)
    for _ in range(2):
        with pytest.raises((RedisError, OSError)):
            await own_link.run([KEY], b"a")
    own_redis_server.start()
    assert await own_link.run([KEY], b"a") == b"a"
    assert (await own_link.ask_histories())[""] != before[""]


async def test_server_that_was_a_replica_meanwhile_has_another_history(
    own_redis_server: RedisServer, own_link: Transport, tmp_path: Path
) -> None:
    losses: list[None] = []
    detector = LossDetector(lambda: losses.append(None))
    with RedisServer(own_redis_server.program, tmp_path / "other", "--repl-diskless-sync-delay", "0") as other:
        detector.record_histories(await own_link.ask_histories())
        other.cli("REPLICAOF", "127.0.0.1", own_redis_server.port)
        wait_for_primary(other)
        detector.record_histories(await own_link.ask_histories())
        assert losses == [], "its first replica changes its replid"
        other.cli("REPLICAOF", "NO", "ONE")
        own_redis_server.cli("REPLICAOF", "127.0.0.1", other.port)
        wait_for_primary(own_redis_server)
        own_redis_server.cli("REPLICAOF", "NO", "ONE")
        for _ in range(2):
            detector.record_histories(await own_link.ask_histories())
        assert losses == [None]
        own_redis_server.cli("CONFIG", "SET", "repl-backlog-ttl", 1)
        wait_until(lambda: own_redis_server.cli("INFO", "replication")["master_replid2"] == 0, "it forgets its past")
        detector.record_histories(await own_link.ask_histories())
        assert losses == [None], "it has lost nothing"


def wait_for_primary(server: RedisServer) -> None:
    """Wait until a replica has its primary's data."""
    wait_until(lambda: server.cli("INFO", "replication")["master_link_status"] == "up", f"{server.port} is a replica")


async def test_replica_is_left_after_a_read_only_error(own_redis_server: RedisServer, own_link: Transport) -> None:
    assert await own_link.run([KEY], b"a") == b"a"
    own_redis_server.cli("REPLICAOF", "127.0.0.1", "1")
    before = connections(own_redis_server)
    for _ in range(2):
        with pytest.raises((ReadOnlyError, ResponseError), match="read only replica"):
            await own_link.run([KEY], b"b")
    assert connections(own_redis_server) - before == 2, "one is this test's own: the second call used a new connection"
    own_redis_server.cli("REPLICAOF", "NO", "ONE")
    assert await own_link.run([KEY], b"c") == b"c"


async def test_replica_is_left_after_a_read_only_error_caught_by_the_script(
    own_redis_server: RedisServer,
) -> None:
    caught = Script("local told = redis.pcall('INCR', KEYS[1]) return type(told) == 'table' and told.err or 'fine'")
    async with open_link(own_redis_server.url, script=caught) as link:
        assert await link.run([KEY], b"a") == b"fine"
        own_redis_server.cli("REPLICAOF", "127.0.0.1", "1")
        before = connections(own_redis_server)
        for _ in range(2):
            assert b"READONLY" in await link.run([KEY], b"b")
        assert connections(own_redis_server) - before == 2, (
            "one is this test's own: the second call used a new connection"
        )


async def test_full_server_recovers(own_redis_server: RedisServer, own_link: Transport) -> None:
    assert await own_link.run([KEY], b"a") == b"a"
    own_redis_server.cli("CONFIG", "SET", "maxmemory", "1")
    with pytest.raises((OutOfMemoryError, ResponseError), match=r"OOM|used memory"):
        await own_link.run([KEY], b"a")
    own_redis_server.cli("CONFIG", "SET", "maxmemory", "0")
    assert await own_link.run([KEY], b"a") == b"a"


async def test_socket_url_selects_its_database(redis_program: RedisProgram, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    with RedisServer(redis_program, tmp_path / "redis", "--unixsocket", str(path)) as server:
        for url in (f"unix://{path}?db=3", f"redis://127.0.0.1:{server.port}/3"):
            async with open_link(url) as link:
                assert await link.run([KEY], b"a") == b"a"
        with redis.Redis(port=server.port, db=3) as client:
            assert client.get(KEY) == b"2"


async def test_forget_deletes_matching_keys_only(link: Transport, redis_server: RedisServer) -> None:
    with redis_server.client() as client:
        client.mset({f"podgate:{{{number}}}:v1:replay-1:x": 1 for number in range(2500)})
        client.set("podgate:{1}:v1:other:x", 1)
    await link.forget("podgate:{*}:v1:replay-1:*")
    assert redis_server.cli("KEYS", "*") == [b"podgate:{1}:v1:other:x"]


async def test_unreachable_server_is_named(link: Transport) -> None:
    assert link.lane("any") == ""
    assert not link.one_tag_a_call
    async with open_link("redis://127.0.0.1:1/0") as nowhere:
        with pytest.raises(RedisError, match=r"127\.0\.0\.1:1"):
            await nowhere.ping()


def test_invalid_url_error_hides_its_password() -> None:
    with pytest.raises(UserError, match=r"--store: 'reddis://\*\*\*@redis'"):
        open_transport("reddis://:s3cret@redis")


async def test_server_without_a_run_id_is_connected() -> None:
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(1024):
            writer.write(b"$8\r\n# Server\r\n" if b"INFO" in asked else b"+PONG\r\n")
        writer.close()
        await writer.wait_closed()
        ended.set()

    connected: list[tuple[str, str]] = []
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with open_link(f"redis://127.0.0.1:{port}") as link:
            link.on_connected = lambda *address: connected.append(address)
            await link.ping()
        await ended.wait()
    assert connected == []


class Transcript(asyncio.Transport):
    """A transport without a network: what was written, and whether it was aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def abort(self) -> None:
        self.is_aborted = True


def make_stream() -> tuple[streams.RespStream, Transcript]:
    stream, transcript = streams.RespStream(), Transcript()
    stream.connection_made(transcript)
    return stream, transcript


async def test_answers_in_pieces_of_any_size_go_to_their_calls_in_order() -> None:
    answers = b"$3\r\none\r\n+OK\r\n*2\r\n:1\r\n$-1\r\n-OOM full\r\n$4\r\nlast\r\n"
    for size in range(1, len(answers) + 1):
        stream, transcript = make_stream()
        first, both, failed, last = [
            stream.ask(*commands) for commands in ((("A",),), (("B",), ("C",)), (("D",),), (("E", b"x"),))
        ]
        for start in range(0, len(answers), size):
            stream.data_received(answers[start : start + size])
        assert (await first, await both, await last) == (b"one", [1, None], b"last")
        with pytest.raises(OutOfMemoryError, match="full"):
            await failed
        assert transcript.written == b"".join(b"*1\r\n$1\r\n%c\r\n" % name for name in b"ABCD") + (
            b"*2\r\n$1\r\nE\r\n$1\r\nx\r\n"
        )
        assert not transcript.is_aborted
        stream.close()


async def test_first_error_of_several_commands_is_theirs_and_no_other_calls() -> None:
    stream, _ = make_stream()
    several, next_one = stream.ask(("A",), ("B",), ("C",)), stream.ask(("D",))
    stream.data_received(b"+OK\r\n-READONLY replica\r\n+OK\r\n+next\r\n")
    with pytest.raises(ReadOnlyError, match="replica"):
        await several
    assert await next_one == b"next"
    stream.close()


@pytest.mark.parametrize("received", [b"+more than was asked\r\n+again\r\n", b"no RESP\r\n"])
async def test_answer_without_a_command_ends_the_connection(received: bytes) -> None:
    stream, transcript = make_stream()
    stream.ask(("A",)).cancel()
    stream.data_received(received)
    assert transcript.is_aborted
    with pytest.raises(RedisConnectionError, match="the connection was lost"):
        await stream.ask(("B",))


async def test_messages_of_a_subscription_do_not_answer_calls() -> None:
    stream, _ = make_stream()
    messages: list[object] = []
    stream.listen(messages.append)
    stream.send(("SUBSCRIBE", "c"))
    stream.data_received(b"*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$2\r\nhi\r\n")
    stream.connection_lost(None)
    *answers, error = messages
    assert answers == [[b"subscribe", b"c", 1], [b"message", b"c", b"hi"]]
    assert str(error) == "the server closed the connection"
