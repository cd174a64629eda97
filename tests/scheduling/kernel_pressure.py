"""A real node_exporter for each node, on the kernel's own /proc or on one whose pressure files a test writes."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from tests.cluster.processes import Processes, find_free_ports
from tests.scheduling.programs import node_exporter

KERNEL = Path("/proc")
_FILES = ("cpu", "memory", "io")
_WRITE_SECONDS = 0.05
_COLLECTORS = ("cpu", "meminfo", "pressure")


def has_pressure(procfs: Path) -> bool:
    """Whether the kernel counts pressure: it is built with CONFIG_PSI, and was started with psi=1 where that is off."""
    try:
        return all((procfs / "pressure" / name).read_text().startswith("some ") for name in _FILES)
    except OSError:
        return False


class WrittenPressure:
    """A folder as /proc: all but the pressures is the kernel's. Their counters grow by the shares that are set."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "pressure").mkdir(parents=True)
        link_kernel_files(folder)
        self._shares = dict.fromkeys(_FILES, 0.0)
        self._totals_us = dict.fromkeys(_FILES, 0.0)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def set(self, name: str, share: float) -> None:
        """Set the share of time in which all tasks stand still, from now on."""
        self._shares[name] = share

    def __enter__(self) -> Self:
        self._write()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        before_seconds = time.monotonic()
        while not self._is_over.wait(_WRITE_SECONDS):
            now_seconds = time.monotonic()
            for name, share in self._shares.items():
                self._totals_us[name] += share * (now_seconds - before_seconds) * 1_000_000
            before_seconds = now_seconds
            self._write()

    def _write(self) -> None:
        """Write the files in the kernel's format; a reader finds each whole."""
        for name, total_us in self._totals_us.items():
            averages = f"avg10=0.00 avg60=0.00 avg300=0.00 total={total_us:.0f}"
            draft = self.folder / "pressure" / f".{name}"
            draft.write_text(f"some {averages}\nfull {averages}\n")
            draft.replace(self.folder / "pressure" / name)


def link_kernel_files(folder: Path) -> None:
    """Let the exporter find cpu and memory of this machine in a folder."""
    for name in ("stat", "meminfo", "cpuinfo"):
        (folder / name).symlink_to(KERNEL / name)


def start_exporters(processes: Processes, folders: dict[str, Path]) -> dict[str, Any]:
    """Start an exporter for each node, on its procfs; return the scrape configuration."""
    targets = []
    ports = find_free_ports(len(folders))
    for (node, procfs), port in zip(folders.items(), ports, strict=True):
        address = f"127.0.0.1:{port}"
        collectors = [f"--collector.{name}" for name in _COLLECTORS]
        flags = (f"--path.procfs={procfs}", f"--web.listen-address={address}", "--collector.disable-defaults")
        processes.start(f"exporter-{node}", [node_exporter(), *flags, *collectors])
        targets.append({"targets": [address], "labels": {"node": node}})
    return {"job_name": "node-exporter", "scrape_interval": "1s", "static_configs": targets}


@contextlib.contextmanager
def compete_for_cpu() -> Iterator[None]:
    """Run more tasks than there are cores, of the lowest priority: some wait all the time."""
    spin = [sys.executable, "-S", "-c", "import os\nos.nice(19)\nwhile True: pass"]
    tasks = [subprocess.Popen(spin) for _ in range(2 * (os.cpu_count() or 1) + 1)]
    try:
        yield
    finally:
        for task in tasks:
            task.kill()
            task.wait()
