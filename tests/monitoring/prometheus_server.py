"""A real Prometheus on loopback with the shipped rules, and queries to it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import urlopen

from tests.cluster.processes import Processes, find_free_ports
from tests.monitoring.programs import programs
from tests.monitoring.rule_files import RULES
from tests.timeouts import HANG_SECONDS

RATE_INTERVAL = "1m"
"""Grafana's $__rate_interval: at least four scrapes."""
SCRAPE_SECONDS = 1


class PrometheusServer:
    """A server in `processes`, which scrapes `jobs`: each a scrape configuration. `web` is its web configuration."""

    def __init__(
        self,
        processes: Processes,
        jobs: Sequence[Mapping[str, Any]],
        name: str = "prometheus",
        web: Mapping[str, Any] | None = None,
    ) -> None:
        self._processes = processes
        self._jobs = jobs
        self._name = name
        self._web = web or {}
        self.url = ""

    def start(self) -> None:
        """Start it, on a later start with its data and port; it may not be ready yet."""
        folder = self._processes.folder / self._name
        folder.mkdir(exist_ok=True)
        interval = f"{SCRAPE_SECONDS}s"
        configuration = folder / "prometheus.json"
        document = {
            "global": {"scrape_interval": interval, "evaluation_interval": interval},
            "rule_files": [str(RULES)],
            "scrape_configs": self._jobs,
        }
        configuration.write_text(json.dumps(document))
        web = folder / "web.json"
        web.write_text(json.dumps(self._web))
        scheme = "https" if "tls_server_config" in self._web else "http"
        self.url = self.url or f"{scheme}://127.0.0.1:{find_free_ports(1)[0]}"
        self._processes.start(
            self._name,
            [
                *(programs().prometheus, f"--config.file={configuration}", f"--storage.tsdb.path={folder / 'data'}"),
                *(f"--web.listen-address={self.url.partition('://')[2]}", f"--web.config.file={web}"),
                "--log.level=warn",
            ],
        )

    def stop(self, *, kill: bool = False) -> None:
        self._processes.stop(self._name, kill=kill)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant query."""
        result: list[dict[str, Any]] = self._get("query", query=expression)["result"]
        return result

    def rules(self) -> list[dict[str, Any]]:
        """Return every rule with its health and the time of its last evaluation."""
        return [rule for group in self._get("rules")["groups"] for rule in group["rules"]]

    def is_scraping(self, jobs: int) -> bool:
        """Whether this many jobs were scraped well."""
        try:
            return len(self.query("count by (job) (up == 1)")) == jobs
        except OSError:
            self._processes.require(self._name)
            return False  # it is starting

    def _get(self, path: str, **parameters: str) -> Any:
        try:
            address = f"{self.url}/api/v1/{path}?{urlencode(parameters)}"
            with urlopen(address, timeout=HANG_SECONDS) as response:  # noqa: S310  on loopback
                return json.load(response)["data"]
        except HTTPError as error:
            if error.code == 503:
                raise ConnectionError("it is starting") from error
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error
