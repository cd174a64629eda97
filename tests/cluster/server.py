"""A `podgate serve` or `controller` process of the cluster, and requests for its status."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

from tests.cluster.controlplane import ControlPlane
from tests.cluster.load_balancer import Target
from tests.timeouts import HANG_SECONDS

PODGATE = ("-m", "webhook")
SHORT_INTERVALS = ("-P", Path(__file__).with_name("short_intervals.py"))
"""The same with short intervals."""


@dataclass(frozen=True)
class Server:
    """A running server or controller, and HOST:PORT of its listeners; a controller has the plain one only."""

    name: str
    admission: str
    plain: str
    decisions: str = ""

    @classmethod
    def start(
        cls,
        plane: ControlPlane,
        name: str,
        *arguments: str | Path,
        command: str = "serve",
        program: Sequence[str | Path] = PODGATE,
        python: str | Path = sys.executable,
    ) -> Self:
        """Start a process with these arguments, and wait until it listens; a Path as `python` is not forked."""
        plane.processes.start(name, [python, *program, command, *arguments])

        def find_listening_line() -> dict[str, Any] | None:
            for line in plane.log(name, 1000).splitlines():
                if '"msg":"listening"' in line:
                    fields: dict[str, Any] = json.loads(line)
                    return fields
            return None

        fields = plane.wait(find_listening_line, f"{name} to listen", name)
        return cls(
            name, fields.get("admission", [""])[0], fields["plain"][0], next(iter(fields.get("decisions", ())), "")
        )

    @property
    def target(self) -> Target:
        return Target(self.admission, f"http://{self.plain}/readyz")

    def status(self) -> dict[str, Any]:
        with urlopen(f"http://{self.plain}/status", timeout=HANG_SECONDS) as response:
            document: dict[str, Any] = json.load(response)
        return document

    def metrics(self) -> dict[str, float]:
        with urlopen(f"http://{self.plain}/metrics", timeout=HANG_SECONDS) as response:
            lines = response.read().decode().splitlines()
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}

    def total(self, name: str, *labels: str) -> float:
        """Return the sum over all series of a metric that have these labels."""
        rows = self.metrics().items()
        return sum(value for key, value in rows if key.split("{")[0] == name and all(label in key for label in labels))
