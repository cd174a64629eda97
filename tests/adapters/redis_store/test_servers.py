"""The test servers serve, pause, crash and restart on request, and end with the tests."""

import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
import redis
from redis.asyncio import Redis

from certs.files import write_key_pair
from tests.cluster.host_processes import listens, runs, wait_until
from tests.cluster.processes import ComponentError
from tests.cluster.toolchain import BuildError
from tests.harness.identity import Pki
from tests.redis_servers import RedisProgram, RedisServer, behind_tls, inventory, names, program, programs
from tests.redis_servers import server as serving

pytest_plugins = ("tests.redis_servers.fixtures",)
LOOPS = ("uvloop", "asyncio")  # other folders' tests run on the other

# Integers that a double holds exactly: the last of them, and those where MessagePack takes another width.
EXACT = (0, 127, 128, 2**16, 2**31, 2**32 - 1, 2**32, 2**53 - 1, 2**53, -1, -(2**31) - 1, -(2**53))

# A short test process: it starts a server, pauses it on request, and waits for a signal.
OWNER = """
import signal, sys
from pathlib import Path
from tests.redis_servers import RedisServer, program
with RedisServer(program(sys.argv[1]), Path(sys.argv[2])) as server:
    if sys.argv[3] == "paused":
        server.pause()
    print(server.pid, server.port, flush=True)
    signal.pause()
"""


def test_server_reports_its_own_version(redis_server: RedisServer) -> None:
    assert {"redis-8.2", "valkey-9.1"} <= set(names())
    assert names() == tuple(program.name for program in programs())
    with redis_server.client(decode_responses=True) as client:
        info = client.info("server")
    kind, _, version = redis_server.program.name.partition("-")
    assert str(info.get(f"{kind}_version")).startswith(f"{version}.")


def test_script_can_read_the_clock_and_then_write(redis_server: RedisServer) -> None:
    script = "local now = redis.call('TIME') redis.call('SET', KEYS[1], now[1]) return redis.call('GET', KEYS[1])"
    assert redis_server.cli("PING") is True
    assert int(redis_server.cli("EVAL", script, 1, "now")) > 1_700_000_000
    assert redis_server.cli("EVAL", "return type(cjson) .. type(struct) .. type(bit)", 0) == b"table" * 3


@pytest.mark.parametrize("number", EXACT)
def test_script_packs_exact_integers(redis_server: RedisServer, number: int) -> None:
    packed = redis_server.cli("EVAL", "return cmsgpack.pack(tonumber(ARGV[1]))", 0, number)
    decoded = msgspec.msgpack.decode(packed)
    assert (decoded, type(decoded)) == (number, int)
    unpacked = "return string.format('%.0f', cmsgpack.unpack(ARGV[1]))"
    assert int(redis_server.cli("EVAL", unpacked, 0, packed)) == number
    assert int(redis_server.cli("EVAL", unpacked, 0, msgspec.msgpack.encode(number))) == number


def test_shared_server_accepts_data_in_one_test(redis_server: RedisServer) -> None:
    redis_server.cli("SET", "left", "behind")
    redis_server.cli("SCRIPT", "LOAD", "return 1")
    assert redis_server.cli("DBSIZE") == 1


def test_shared_server_is_empty_in_the_next_test(redis_server: RedisServer) -> None:
    assert redis_server.cli("DBSIZE") == 0
    with pytest.raises(redis.exceptions.NoScriptError):
        redis_server.cli("EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", 0)  # that of `return 1`


def test_paused_server_answers_no_call_until_resumed(own_redis_server: RedisServer) -> None:
    with own_redis_server.client(socket_timeout=0.2, retry=None) as client:
        client.set("kept", 1)
        own_redis_server.pause()
        own_redis_server.pause()
        with pytest.raises(redis.exceptions.TimeoutError):
            client.get("kept")
        assert listens(own_redis_server.port)
        own_redis_server.resume()
    assert own_redis_server.cli("GET", "kept") == b"1"


@pytest.mark.parametrize("end", [RedisServer.kill, RedisServer.stop], ids=["killed", "stopped"])
def test_killed_or_stopped_server_restarts_empty_on_its_port(
    own_redis_server: RedisServer, end: Callable[[RedisServer], None]
) -> None:
    port, pid = own_redis_server.port, own_redis_server.pid
    own_redis_server.cli("SET", "lost", 1)
    own_redis_server.pause()
    end(own_redis_server)
    assert not runs(pid)
    assert not listens(port)
    own_redis_server.start()
    assert own_redis_server.port == port
    assert own_redis_server.cli("DBSIZE") == 0


def test_restart_keeps_data_on_request_and_a_crash_loses_them(
    own_redis_server: RedisServer,
) -> None:
    own_redis_server.cli("SET", "counted", 7)
    own_redis_server.restart(keep_data=True)
    assert own_redis_server.cli("GET", "counted") == b"7"
    own_redis_server.kill()
    own_redis_server.start()
    assert own_redis_server.cli("GET", "counted") is None
    own_redis_server.cli("SET", "counted", 8)
    own_redis_server.restart(keep_data=False)
    assert own_redis_server.cli("DBSIZE") == 0


def test_append_only_file_keeps_data_after_a_crash(redis_program: RedisProgram, tmp_path: Path) -> None:
    options = ("--appendonly", "yes", "--appendfsync", "always")
    with RedisServer(redis_program, tmp_path / "redis", *options) as server:
        server.cli("SET", "counted", 7)
        server.kill()
        server.restart(keep_data=True)
        assert server.cli("GET", "counted") == b"7"
        server.restart(keep_data=False)
        assert server.cli("DBSIZE") == 0


def test_server_can_require_a_password(redis_program: RedisProgram, tmp_path: Path) -> None:
    with RedisServer(redis_program, tmp_path / "redis", "--requirepass", "secret", password="secret") as server:
        assert server.cli("PING") is True
        with pytest.raises(redis.exceptions.AuthenticationError):
            server.cli("PING", password=None)
        server.restart(keep_data=True)
        assert server.cli("PING") is True


def test_server_can_have_an_acl_file(redis_program: RedisProgram, tmp_path: Path) -> None:
    users = tmp_path / "users.acl"
    users.write_text("user default off\nuser admin on >one ~* &* +@all\nuser podgate on >two ~podgate:* +get +set\n")
    with RedisServer(
        redis_program, tmp_path / "redis", "--aclfile", str(users), username="admin", password="one"
    ) as server:
        assert server.cli("SET", "podgate:a", 1, username="podgate", password="two")
        with pytest.raises(redis.exceptions.NoPermissionError):
            server.cli("SET", "other", 1, username="podgate", password="two")
        assert server.cli("ACL", "WHOAMI") == b"admin"


def test_server_can_be_full(redis_program: RedisProgram, tmp_path: Path) -> None:
    full = RedisServer(redis_program, tmp_path / "redis", "--maxmemory", "1")
    with full as server, pytest.raises(redis.exceptions.OutOfMemoryError):
        server.cli("SET", "a", 1)


async def test_server_can_require_a_client_certificate(own_redis_server: RedisServer, tmp_path: Path) -> None:
    pki = Pki.create(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    write_key_pair(pki.client(), tmp_path / "client.crt", tmp_path / "client.key")
    client_files = {"ssl_certfile": str(tmp_path / "client.crt"), "ssl_keyfile": str(tmp_path / "client.key")}
    settings = {"ssl_ca_certs": str(tmp_path / "ca.crt"), "retry": None}
    async with behind_tls(own_redis_server, context) as url:
        async with Redis.from_url(url, **settings, **client_files) as client:
            assert await client.set("kept", "a" * 1_000_000)
            assert len(await client.get("kept")) == 1_000_000
            own_redis_server.kill()
            with pytest.raises(redis.exceptions.ConnectionError):
                await client.ping()
            own_redis_server.start()
            assert await client.ping()
        with pytest.raises((redis.exceptions.ConnectionError, ssl.SSLError)):
            async with Redis.from_url(url, **settings) as client:
                await client.ping()


def test_failed_start_shows_its_reason_and_leaves_no_folder(redis_program: RedisProgram, tmp_path: Path) -> None:
    server = RedisServer(redis_program, tmp_path / "redis", "--maxmemory-policy", "no-such-policy")
    with pytest.raises(ComponentError, match="no-such-policy"):
        server.start()
    assert not server.folder.exists()


def test_occupied_port_is_replaced_unless_requested(
    redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = iter([redis_server.port, free := serving._find_free_port()])
    monkeypatch.setattr(serving, "_find_free_port", lambda: next(ports))
    with RedisServer(redis_server.program, tmp_path / "redis") as server:
        assert server.port == free
    taken = RedisServer(redis_server.program, tmp_path / "taken", port=redis_server.port)
    with pytest.raises(ComponentError, match="Address already in use"):
        taken.start()


@pytest.mark.parametrize("state", ["running", "paused"])
def test_server_ends_with_its_killed_owner(redis_program: RedisProgram, tmp_path: Path, state: str) -> None:
    folder = tmp_path / "redis"
    command = [sys.executable, "-c", OWNER, redis_program.name, folder, state]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        pid, port = (int(word) for word in owner.stdout.readline().split())
        assert runs(pid)
        assert listens(port)
        assert folder.exists()
        os.kill(owner.pid, signal.SIGKILL)
    wait_until(lambda: not runs(pid), "the server had ended")
    wait_until(lambda: not listens(port), "its port was free")
    wait_until(lambda: not folder.exists(), "its folder was gone")


def test_servers_are_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    programs()
    program.cache_clear()
    monkeypatch.setattr(inventory, "install_wheels", lambda *_, **__: pytest.fail("fetched again"))
    assert all(program.path.exists() for program in programs())


def test_failed_fetch_is_reported_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = tmp_path / "wrong.requirements"
    wrong.write_text(inventory.REQUIREMENTS.read_text().replace("sha256:", "sha256:0"))
    monkeypatch.setattr(inventory, "REQUIREMENTS", wrong)
    with pytest.raises(BuildError, match="could not be fetched"):
        inventory._fetch(tmp_path / "servers")
    assert not (tmp_path / "servers").exists()


def test_redis_server_on_the_path_is_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "redis-server"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    for found_version, expected in (("7.0.15", own), ("8.2.9", None)):
        own.write_text(f"#!/bin/sh\necho 'Redis server v={found_version} sha=0'\n")
        own.chmod(0o755)
        inventory._name.cache_clear()
        assert inventory._find_on_path() == expected
        assert ("redis-7.0" in names()) is (expected is not None)
    with pytest.raises(BuildError, match=r"there is no server 'redis-5\.0': choose one of redis-"):
        program("redis-5.0")
