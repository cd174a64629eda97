"""Prometheus of docker-compose.yml as a process: its command and configuration, with local folders and addresses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import yaml

from tests.cluster.processes import Processes, find_free_ports
from tests.compose import sources
from tests.compose.sources import Service
from tests.monitoring.programs import programs
from tests.timeouts import HANG_SECONDS

_NAME = "prometheus"


class LocalPrometheus:
    """The process in `processes`; `servers` returns the addresses that the name `podgate` stands for."""

    def __init__(self, service: Service, processes: Processes, servers: Callable[[], list[str]]) -> None:
        self._service, self._processes, self._servers = service, processes, servers
        self._address = ""

    def start(self) -> None:
        """Start it; it may not be ready yet."""
        folder = self._processes.folder / f"{_NAME}-files"
        folder.mkdir()
        [port] = find_free_ports(1)
        self._address = f"127.0.0.1:{port}"
        command = [word.partition("=") for word in self._service.command]
        values = {
            "--config.file": str(self._configuration({name: value for name, _, value in command}, folder)),
            "--storage.tsdb.path": str(folder / "data"),
            "--web.listen-address": self._address,
        }
        [program, *flags] = [name for name, _, _ in command]
        assert program == _NAME
        self._processes.start(_NAME, [programs().prometheus, *(f"{name}={values[name]}" for name in flags)])

    def query(self, expression: str) -> float:
        """Return the value of the only series of an instant query; 0 if there is none, or no answer yet."""
        result = self._get("query", query=expression).get("result", [])
        return float(result[0]["value"][1]) if result else 0.0

    def rules(self) -> dict[str, str]:
        groups = self._get("rules").get("groups", [])
        return {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}

    def _configuration(self, flags: dict[str, str], folder: Path) -> Path:
        """Write the shipped configuration with the paths of the mounted folders, and addresses in place of names."""
        document = yaml.safe_load(self._outside(flags["--config.file"]).read_text())
        document["rule_files"] = [str(self._outside(path)) for path in document["rule_files"]]
        for job in document["scrape_configs"]:
            assert [search["names"] for search in job.pop("dns_sd_configs")] == [["podgate"]]
            job["static_configs"] = [{"targets": self._servers()}]
        path = folder / "prometheus.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def _outside(self, path: str) -> Path:
        """Return the file of the project that the container sees at a path."""
        [(inside, outside)] = [pair for pair in self._service.mounts.items() if path.startswith(f"{pair[0]}/")]
        return sources.ROOT / outside / path.removeprefix(f"{inside}/")

    def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        address = f"http://{self._address}/api/v1/{path}?{urlencode(parameters)}"
        try:
            with urlopen(address, timeout=HANG_SECONDS) as response:
                data: dict[str, Any] = json.load(response)["data"]
        except OSError:
            return {}  # it is starting
        return data
