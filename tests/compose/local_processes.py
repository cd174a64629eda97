"""docker-compose.yml without containers: services are processes, volumes are folders, names are loopback addresses.

The commands are those of the file. Only mounts and names are replaced in them: `/pki` by a local folder, `podgate:8443`
by the address that the service listens on.
"""

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self
from urllib.request import urlopen

from tests.cluster.processes import Processes
from tests.compose import sources
from tests.compose.local_prometheus import LocalPrometheus
from tests.compose.sources import Service
from tests.redis_servers import RedisServer, program
from tests.timeouts import HANG_SECONDS

_REDIS_PORT = 6379  # the port in the image


class Composition:
    """The running services. Use it as a context manager: the exit stops them."""

    def __init__(self, image: Path, folder: Path) -> None:
        self._image = image
        self._volumes = folder / "volumes"
        self._services = sources.services()
        self._processes = Processes(folder / "processes")
        self._processes.folder.mkdir(parents=True)
        self._redis = _redis(self._services["redis"], folder / "redis")
        self._prometheus = LocalPrometheus(self._services["prometheus"], self._processes, self.plain_addresses)
        self._is_set_up = False
        self._addresses: dict[tuple[str, int], str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._processes.close()
        self._redis.close()

    def up(self, name: str) -> None:
        """Start a service and its dependencies, each with the condition in the file; without effect if it is up."""
        if self._is_up(name):
            return
        service = self._services[name]
        for other, condition in service.needs.items():
            self.up(other)
            if condition == "service_healthy":
                self._wait_for_health(other)
        match name:
            case "redis":
                self._redis.start()
                self._addresses[name, _REDIS_PORT] = f"127.0.0.1:{self._redis.port}"
            case "setup":
                self.set_up()
            case "prometheus":
                self._prometheus.start()
            case _:
                self._processes.start(name, self._command(service, service.command))
                self._learn_addresses(service)

    def set_up(self) -> None:
        """Run `setup` to its end."""
        service = self._services["setup"]
        done = subprocess.run(self._command(service, service.command), check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        self._is_set_up = True

    def stop(self, name: str) -> int:
        """Stop a service as `docker compose stop` does; return its exit code."""
        process = self._processes._running[name]
        self._processes.stop(name)
        return process.returncode

    def log(self, name: str) -> str:
        return self._processes.log(name, 10_000)

    def wait(self, seen: Callable[[], bool], what: str, *names: str) -> None:
        """Wait until `seen` returns true; fail if one of these services exits."""
        deadline = time.monotonic() + HANG_SECONDS
        while not seen():
            self._processes.require(*names)
            logs = "\n".join(f"{name}:\n{self._processes.log(name)}" for name in names)
            assert time.monotonic() < deadline, f"waited for {what}\n{logs}"
            time.sleep(0.1)

    def volume(self, name: str) -> Path:
        return self._volumes / name

    def plain(self, name: str, path: str) -> str:
        """Return the response of a server's plain port."""
        with urlopen(f"http://{self._addresses[name, 8081]}{path}", timeout=HANG_SECONDS) as response:
            body: bytes = response.read()
        return body.decode()

    def plain_addresses(self) -> list[str]:
        """Return the address of each running server's plain port."""
        return [address for (name, port), address in self._addresses.items() if port == 8081 and self._is_up(name)]

    def query(self, expression: str) -> float:
        """Return the value of a query to Prometheus; 0 if it has no series."""
        return self._prometheus.query(expression)

    def rules(self) -> dict[str, str]:
        """Return the health of each of Prometheus' rules by its name."""
        return self._prometheus.rules()

    def keys_in_redis(self) -> int:
        return int(self._redis.cli("DBSIZE"))

    def restart_redis(self) -> None:
        """Restart Redis as `docker compose restart` does: its folder stays."""
        self._redis.stop()
        self._redis.start()

    def _is_up(self, name: str) -> bool:
        is_up_by_name = {"redis": self._redis.alive, "setup": self._is_set_up}
        return is_up_by_name.get(name, name in self._processes.names)

    def _wait_for_health(self, name: str) -> None:
        service = self._services[name]
        if name == "redis":
            program_name, *words = service.health_check
            assert program_name == "redis-cli", "the tests run its arguments with their own client"
            self.wait(lambda: self._redis.cli(*words) is True, name)
        else:
            command = self._command(service, service.health_check)
            self.wait(lambda: subprocess.run(command, check=False, capture_output=True).returncode == 0, name, name)

    def _learn_addresses(self, service: Service) -> None:
        """Read a server's addresses from its log: it listens on free ports instead of the container's."""
        ports = service.listens

        def find_listening_lines() -> list[str]:
            return [line for line in self.log(service.name).splitlines() if '"listening"' in line]

        if ports:
            self.wait(lambda: bool(find_listening_lines()), f"{service.name} to listen", service.name)
            addresses = json.loads(find_listening_lines()[-1])
            for flag, kind in {"--listen": "admission", "--plain-listen": "plain"}.items():
                self._addresses[service.name, ports[flag]] = addresses[kind][0]

    def _command(self, service: Service, words: list[str]) -> list[str]:
        """Return the command for `words` with the environment of the service's container only.

        Only the store's deadline is longer, so that a slow machine fails no test.
        """
        variables = {
            "PATH": "$PATH",
            "PODGATE_STORE_DEADLINE": "30s",
            **(sources.environment() if service.is_ours else {}),
            **service.environment,
        }
        assignments = [f"{name}={self._localize(service, value)}" for name, value in variables.items()]
        assignments = [text.replace("$PATH", os.environ["PATH"]) for text in assignments]
        return ["env", "-i", *assignments, *(self._localize(service, word) for word in words)]

    def _localize(self, service: Service, word: str) -> str:
        """Replace mounts by folders, and names by loopback addresses."""
        folders = {container_path: self._local_path(source) for container_path, source in service.mounts.items()}
        if service.is_ours:
            folders["/opt"] = self._image / "opt"
        for container_path, local_path in folders.items():
            word = re.sub(rf"(?<![\w./-]){re.escape(container_path)}(?![\w.-])", str(local_path), word)
        word = re.sub(r"(?<=listen=)0\.0\.0\.0:\d+$", "127.0.0.1:0", word)
        for (name, port), address in self._addresses.items():
            hosts = rf"(?:{name}|127\.0\.0\.1)" if name == service.name else name
            word = re.sub(rf"(?<=//){hosts}:{port}\b", address, word)
        return word

    def _local_path(self, source: str) -> Path:
        if not source.startswith("."):
            return self.volume(source)
        # A link without spaces in its path, because the shell scripts of the commands do not quote paths.
        link = self._volumes / source.removeprefix("./").replace("/", "-")
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(sources.ROOT / source)
        return link


def _redis(service: Service, folder: Path) -> RedisServer:
    """Return the server of the tests that has the image's version, with the options of the service."""
    version = re.match(r"redis:(\d+\.\d+)-", service.image)
    assert version is not None, f"{service.image}: not one of the servers of the tests"
    name, *options = service.command
    assert name == "redis-server"
    return RedisServer(program(f"redis-{version[1]}"), folder, *options)
