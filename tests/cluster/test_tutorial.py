"""The tutorial, run as it is written: its commands, with other ports, on a control plane of its own."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.processes import find_free_ports
from tests.monitoring.programs import programs
from tests.timeouts import HANG_SECONDS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
INSTALL, SERVE, *REST = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


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


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder with the repository's documents, manifests and interpreter; its cluster is stopped at the end."""
    for name in ("docs", "manifests"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    yield tmp_path
    command = [sys.executable, "-m", "tests.cluster", "down", "--folder", ".build/controlplane"]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, capture_output=True)


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


def test_the_tutorial_works_as_written(folder: Path) -> None:
    plain, admission = find_free_ports(2)
    terminal = Terminal(folder, {"8443": str(admission), "8081": str(plain)})
    second = Terminal(folder, {"8443": str(admission), "8081": str(plain)})
    installing = terminal.start(INSTALL, first := folder / "first.out")
    started = [installing]
    try:
        wait_for(first, "podgate serve --pki pki")
        started.append(second.start(SERVE, folder / "serve.out"))
        printed = terminal.finish(installing, first)
        assert "\nnamespace/podgate-system created\n" in printed
        assert not re.search(r"^\S+ changed$", printed, re.MULTILINE), "the cluster was empty"
        assert "proven: the API server calls Podgate" in printed
        follow(terminal)
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(HANG_SECONDS)


def follow(terminal: Terminal) -> None:
    """Run the blocks after the installation."""
    apply, where, denied, watch, grant, wake, change, uninstall = REST
    terminal.run(apply)
    pods = run_until(terminal, where, r"(?s)(Running.*){5}")
    assert re.findall(r"node-\w+", pods) == re.findall(r"node-a\d", pods), "zone a only"
    assert "zone-a" in pods.partition("requiredDuringScheduling")[2]
    events = run_until(terminal, denied, "BreakerOpen")
    assert "QuotaExceeded: service web: pods in 1m: hard 5, used 5, asked 1; could pass from" in events
    shown = terminal.run(watch)
    assert re.search(r"web +OPEN ", shown)
    assert 'podgate_breaker_state{service="web",state="OPEN"} 1' in shown
    assert "web: grant" in terminal.run(grant)
    run_until(terminal, "podgate status web -o table", "CLOSED")
    assert "successfully rolled out" in terminal.run(wake)
    changed = terminal.run(change)
    assert re.search(r"policy-draft.yaml:\d+:\d+: .*many", changed)
    run_until(terminal, "podgate status web -o table", r"web +\S+ +CLOSED +1m +pods +\d+ +5[05] ")
    assert "namespace/podgate-system deleted" in terminal.run(uninstall)


def test_the_configuration_for_prometheus_is_valid() -> None:
    file = ROOT / "docs/examples/tutorial/prometheus.yaml"
    assert str(file.relative_to(ROOT)) in PAGE
    subprocess.run([programs().promtool, "check", "config", file], check=True, capture_output=True)
