"""Results of the benchmark: one JSON file with the figures of each part, its date and the machine."""

import json
import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from tests.bench.cpu import CORES
from tests.harness.server_process import TREE

RESULTS = TREE / ".test-results" / "bench.json"


def record(part: str, figures: object, path: Path = RESULTS) -> None:
    """Write the figures of a part in place of its earlier ones, beside those of other parts."""
    document = json.loads(path.read_text()) if path.exists() else {}
    document[part] = {"date": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "figures": figures}
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(document)) + b"\n")


def read(path: Path) -> dict[str, Any]:
    """Return the figures of each part."""
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def machine() -> str:
    """Return processor, cores and Python."""
    cpu_info = Path("/proc/cpuinfo")
    names = [line.partition(":")[2].strip() for line in cpu_info.read_text().splitlines() if line.startswith("model")]
    models = [name for name in names if not name.isdigit()] or [platform.machine()]
    cores = f"{len(CORES)} of {os.cpu_count()} cores"
    return f"{models[0]}, {cores}, {platform.python_implementation()} {platform.python_version()}"
