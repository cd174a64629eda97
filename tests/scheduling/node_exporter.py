"""HTTP server with the metrics of node_exporter for simulated Nodes, whose load a test sets."""

import contextlib
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

MEMORY_BYTES = 256 << 30
HOT_CORES = 640.0
"""Of 64, where the threshold is 0.8: on a busy machine the rates that Prometheus sees dip, and none must reach it."""
_CADVISOR = Path(__file__).with_name("kubelet_cadvisor.txt").read_text()
"""Text of the collector that kubelet 1.36 has (cadvisor 0.56.2), with the kubelet's labels."""
_SAMPLE = re.compile(r"^(?P<name>\w+)(?P<labels>\{.*\}) \S+ \d+$", re.MULTILINE)
_CADVISOR_VALUES = {
    "container_cpu_usage_seconds_total": ("cpu_seconds", 1.0),
    "container_memory_working_set_bytes": ("memory_bytes", 1.0),
    "container_pressure_memory_stalled_seconds_total": ("stalled_seconds", 1.0),
    "container_pressure_io_stalled_seconds_total": ("stalled_seconds", 0.5),
    "container_pressure_cpu_waiting_seconds_total": ("stalled_seconds", 0.25),
}
"""Field of the load, and a factor, so that no two series have one value."""
_UNREAD, _OF_POD = 1e6, 3.0


@dataclass
class SimulatedLoad:
    """Load of one node. The CPU counter grows at the rate that is set."""

    cores: float = 0.0
    memory_bytes: float = 0.0
    stalled: float = 0.0
    """Share of the cpu time in which tasks waited for memory."""
    is_dead: bool = False
    cpu_seconds: float = 1000.0
    stalled_seconds: float = 0.0
    since_seconds: float = field(default_factory=time.monotonic)

    def advance(self) -> None:
        now_seconds = time.monotonic()
        used_seconds = self.cores * (now_seconds - self.since_seconds)
        self.cpu_seconds += used_seconds
        self.stalled_seconds += self.stalled * used_seconds
        self.since_seconds = now_seconds


class NodeExporters:
    """Serves each node on a loopback port: its exporter at `/NODE`, and that of its kubelet at `/NODE/cadvisor`."""

    def __init__(self, *nodes: str) -> None:
        self.loads = {name: SimulatedLoad() for name in nodes}
        self._lock = threading.Lock()
        exporters = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                node, _, kind = self.path.strip("/").partition("/")
                text = exporters.cadvisor_text(node) if kind else exporters.text(node)
                with contextlib.suppress(OSError):  # Prometheus was killed
                    self.send_response(200 if text else 503)
                    self.send_header("Content-Type", "text/plain; version=0.0.4")
                    self.end_headers()
                    self.wfile.write(text.encode())

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def set(self, node: str, **load: float | bool) -> None:
        """Set the load of a node from now on."""
        with self._lock:
            self.loads[node].advance()
            for name, value in load.items():
                setattr(self.loads[node], name, value)

    def text(self, node: str) -> str:
        """Return the metrics of a node, "" while its exporter is dead."""
        with self._lock:
            load = self.loads[node]
            load.advance()
            if load.is_dead:
                return ""
            return (
                "# TYPE node_cpu_seconds_total counter\n"
                f'node_cpu_seconds_total{{cpu="0",mode="user"}} {load.cpu_seconds}\n'
                f'node_cpu_seconds_total{{cpu="0",mode="idle"}} {10 * load.cpu_seconds}\n'
                f"node_memory_MemTotal_bytes {MEMORY_BYTES}\n"
                f"node_memory_MemAvailable_bytes {MEMORY_BYTES - load.memory_bytes}\n"
                "# TYPE node_pressure_memory_stalled_seconds_total counter\n"
                f"node_pressure_memory_stalled_seconds_total {load.stalled_seconds}\n"
            )

    def cadvisor_text(self, node: str) -> str:
        """Return the kubelet's recorded metrics with other values: of the whole node, and of one of its Pods."""
        with self._lock:
            load = self.loads[node]
            load.advance()
            if load.is_dead:
                return ""
            values = {name: getattr(load, of) * factor for name, (of, factor) in _CADVISOR_VALUES.items()}
        at_millis = int(time.time() * 1000)

        def replace(found: re.Match[str]) -> str:
            name, labels = found["name"], found["labels"]
            value = values.get(name, _UNREAD) * (1 if 'id="/",' in labels else _OF_POD)
            return f"{name}{labels} {value} {at_millis}"

        return _SAMPLE.sub(replace, _CADVISOR)

    @property
    def cadvisor_job(self) -> dict[str, Any]:
        """A scrape configuration of the cadvisor metrics."""
        return self._job("cadvisor", "/cadvisor")

    @property
    def job(self) -> dict[str, Any]:
        """A scrape configuration of Prometheus: the label `node` is from the path."""
        return self._job("node-exporter", "")

    @property
    def second_job(self) -> dict[str, Any]:
        """A second scrape configuration of the same exporters, as of another team or of a replica."""
        return self._job("monitoring/node-exporter", "", replica="b")

    @property
    def second_cadvisor_job(self) -> dict[str, Any]:
        return self._job("monitoring/cadvisor", "/cadvisor", replica="b")

    def _job(self, name: str, suffix: str, **labels: str) -> dict[str, Any]:
        target = f"127.0.0.1:{self._server.server_port}"
        configs = [
            {"targets": [target], "labels": {"__metrics_path__": f"/{node}{suffix}", "node": node, **labels}}
            for node in self.loads
        ]
        return {"job_name": name, "scrape_interval": "1s", "static_configs": configs}
