"""Tutorials of the documents, run as they are written: their commands, with other ports, on a control plane."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.processes import find_free_ports
from tests.timeouts import HANG_SECONDS

ROOT = Path(__file__).parents[2]
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text()


def find_blocks(page: str) -> list[str]:
    """Return the commands of a page, a block each."""
    return re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


class Terminal:
    """A shell in a folder like the repository's root. Exported variables last from one block to the next."""

    def __init__(self, folder: Path, ports: dict[str, str]) -> None:
        self._folder = folder
        self._ports = ports
        self._variables = {name: os.environ[name] for name in ("HOME", "XDG_CACHE_HOME") if name in os.environ}
        self._variables |= {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        self._variables["PODGATE_LISTEN"] = f"127.0.0.1:{ports['8443']}"
        self._variables["PODGATE_PLAIN_LISTEN"] = f"127.0.0.1:{ports['8081']}"

    def start(self, block: str, output: Path) -> subprocess.Popen[str]:
        """Start a block, and note the variables at its end."""
        for of_page, here in self._ports.items():
            block = block.replace(of_page, here)
        up = f"python -m tests.cluster up --port {self._ports['8443']}"
        block = block.replace("make -s controlplane-up", f"{up} --folder .build/controlplane")
        block = block.replace("make -s controlplane-down", "python -m tests.cluster down --folder .build/controlplane")
        status_url = f"--status-url http://127.0.0.1:{self._ports['8081']} --policy"
        block = re.sub(r"(podgate install .*)--policy", rf"\1{status_url}", block)
        script = f"set -o errexit -o pipefail -o nounset\n{block}\nenv -0 > {output}.env\n"
        with output.open("w") as file:
            return subprocess.Popen(
                ["bash", "-c", script],
                cwd=self._folder,
                env=self._variables,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )

    def finish(self, process: subprocess.Popen[str], output: Path) -> str:
        """Wait for a block; return its output."""
        code = process.wait(HANG_SECONDS)
        printed = output.read_text()
        assert code == 0, printed
        pairs = (line.split("=", 1) for line in Path(f"{output}.env").read_text().split("\0") if line)
        self._variables |= {name: value for name, value in pairs if name in {"PATH", "KUBECONFIG"}}
        return printed

    def run(self, block: str) -> str:
        output = self._folder / "block.out"
        return self.finish(self.start(block, output), output)


@contextmanager
def make_folder(folder: Path) -> Iterator[Path]:
    """Yield a folder with the repository's documents, manifests and interpreter; its cluster is stopped at the end."""
    for name in ("docs", "manifests"):
        (folder / name).symlink_to(ROOT / name)
    (folder / ".venv").symlink_to(sys.prefix)
    yield folder
    command = [sys.executable, "-m", "tests.cluster", "down", "--folder", ".build/controlplane"]
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)


@contextmanager
def install(folder: Path, commands: str) -> Iterator[tuple[Terminal, str]]:
    """Run the first step of the tutorial with these commands, and its server; yield a terminal and what was printed."""
    plain, admission = find_free_ports(2)
    terminal, second = (Terminal(folder, {"8443": str(admission), "8081": str(plain)}) for _ in range(2))
    started = [terminal.start(commands, first := folder / "first.out")]
    try:
        wait_for(first, "podgate serve --pki pki")
        started.append(second.start(find_blocks(TUTORIAL)[1], folder / "serve.out"))
        yield terminal, terminal.finish(started[0], first)
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(HANG_SECONDS)


def wait_for(output: Path, text: str) -> None:
    end = time.monotonic() + HANG_SECONDS
    while text not in output.read_text():
        assert time.monotonic() < end, output.read_text()
        time.sleep(0.05)


def run_until(terminal: Terminal, block: str, pattern: str) -> str:
    """Run a block again until its output matches: the cluster needs a moment."""
    end = time.monotonic() + HANG_SECONDS
    while re.search(pattern, printed := terminal.run(block)) is None:
        assert time.monotonic() < end, printed
        time.sleep(0.2)
    return printed
