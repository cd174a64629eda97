"""A primary, its replica and their Sentinels, which promote the replica when the primary fails."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.redis_servers.inventory import RedisProgram
from tests.redis_servers.server import RedisServer
from tests.redis_servers.waiting import wait_until

SERVICE = "podgate-store"
_DOWN_AFTER_MS = 500
_FAILOVER_TIMEOUT_MS = 2000

CUT_OFF = tuple(f"sentinel rename-command {SERVICE} {command} none" for command in ("PUBLISH", "SUBSCRIBE"))
"""Options of a Sentinel that neither hears the others nor is heard."""


class SentinelServer(RedisServer):
    """A Sentinel that monitors one primary. `options` are lines of its configuration."""

    _READY = "+monitor master"

    def __init__(
        self, program: RedisProgram, folder: Path, primary_port: int, quorum: int, *options: str, **access: Any
    ) -> None:
        super().__init__(program, folder, *options, **access)
        self._watched = f"{SERVICE} 127.0.0.1 {primary_port} {quorum}"

    def primary_port(self) -> int:
        """Return the port of the primary that it reports."""
        with self.client() as client:
            return int(client.sentinel_get_master_addr_by_name(SERVICE)[1])

    def _command(self) -> list[str | Path]:
        configuration = self.folder / "sentinel.conf"
        configuration.write_text(
            "\n".join(
                (
                    f"bind 127.0.0.1\nport {self.port}",
                    f"sentinel monitor {self._watched}",
                    f"sentinel down-after-milliseconds {SERVICE} {_DOWN_AFTER_MS}",
                    f"sentinel failover-timeout {SERVICE} {_FAILOVER_TIMEOUT_MS}",
                    *self._options,
                    "",
                )
            )
        )
        return ["env", "LC_ALL=C", self.program.path, configuration, "--sentinel"]


class SentinelGroup:
    """Use it as a context manager. `options` are for both servers, `sentinel_options` lines for each Sentinel."""

    def __init__(
        self,
        program: RedisProgram,
        folder: Path,
        *options: str,
        sentinels: int = 3,
        sentinel_options: tuple[str, ...] = (),
        sentinel_access: dict[str, str] | None = None,
        **access: Any,
    ) -> None:
        self._program = program
        self._folder = folder
        self._options = ("--repl-diskless-sync-delay", "0", *options)
        self._access = access
        self._sentinel_options = sentinel_options
        self._sentinel_access = sentinel_access or {}
        self._count = sentinels
        self._stack = ExitStack()
        self.servers: list[RedisServer] = []
        """The initial primary is the first one."""
        self.sentinels: list[SentinelServer] = []

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    @property
    def primary(self) -> RedisServer:
        """The primary that the first Sentinel reports."""
        port = self.sentinels[0].primary_port()  # it may change at any time
        return next(server for server in self.servers if server.port == port)

    @property
    def replica(self) -> RedisServer:
        return next(server for server in self.servers if server is not self.primary)

    def wait_for_failover(self, former: RedisServer) -> RedisServer:
        """Wait until all Sentinels report a new primary whose role is master; return it."""

        def has_agreed() -> bool:
            primary = self.primary  # before the others are asked: it may change between
            are_agreed = all(sentinel.primary_port() == primary.port for sentinel in self.sentinels)
            return are_agreed and primary is not former and _replication(primary)["role"] == "master"

        wait_until(has_agreed, "the Sentinels agree on a new primary")
        return self.primary

    def wait_for_replica(self, server: RedisServer) -> None:
        """Wait until `server` is a synchronized replica."""
        wait_until(lambda: _replication(server).get("master_link_status") == "up", f"{server.port} is a replica")

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            primary = stack.enter_context(self._server("primary"))
            follows = ("--replicaof", "127.0.0.1", str(primary.port))
            self.servers = [primary, stack.enter_context(self._server("replica", *follows))]
            self.wait_for_replica(self.servers[1])
            for number in range(self._count):
                sentinel = SentinelServer(
                    self._program,
                    self._folder / f"sentinel-{number}",
                    primary.port,
                    self._count // 2 + 1,
                    *self._sentinel_options,
                    **self._sentinel_access,
                )
                self.sentinels.append(stack.enter_context(sentinel))
            for sentinel in self.sentinels:
                wait_until(
                    lambda sentinel=sentinel: self._knows_all(sentinel), "a Sentinel knows the replica and the others"
                )
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stack.close()

    def _server(self, name: str, *options: str) -> RedisServer:
        return RedisServer(self._program, self._folder / name, *self._options, *options, **self._access)

    def _knows_all(self, sentinel: SentinelServer) -> bool:
        with sentinel.client() as client:
            primary = client.sentinel_master(SERVICE)
        return bool(primary["num-slaves"] == 1 and primary["num-other-sentinels"] == self._count - 1)


def _replication(server: RedisServer) -> dict[str, Any]:
    with server.client() as client:
        return client.info("replication")
