"""Cleanup after a killed test process, and after the persistent cluster has stopped."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.host_processes import listens, runs, wait_until

#: A small test process: it starts an API server with its etcd, prints its processes and ports, and waits for a signal.
TEST_PROCESS = """
import json, signal, sys
from pathlib import Path
from tests.cluster.controlplane import API_ALONE, ControlPlane
signal.signal(signal.SIGINT, signal.default_int_handler)  # a script in the background hands it down ignored
with ControlPlane(folder=Path(sys.argv[1]), components=API_ALONE) as plane:
    pids = [plane.processes.pid(name) for name in plane.processes.names]
    print(json.dumps({"pids": pids, "ports": [plane.ports.etcd, plane.ports.apiserver]}), flush=True)
    signal.pause()
"""


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=lambda path: path.name)
def test_cluster_ends_with_its_process_after_any_signal(tmp_path: Path, ended_by: signal.Signals) -> None:
    folder = tmp_path / "cluster"
    with subprocess.Popen(
        [sys.executable, "-c", TEST_PROCESS, folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        assert all(runs(pid) for pid in started["pids"])
        assert all(listens(port) for port in started["ports"])
        assert (folder / "admin.kubeconfig").exists()
        process.send_signal(ended_by)
    wait_until(lambda: not any(runs(pid) for pid in started["pids"]), "all components had ended")
    wait_until(lambda: not any(listens(port) for port in started["ports"]), "all ports were free")
    wait_until(lambda: not folder.exists(), "the folder was gone")


def test_failed_start_leaves_no_processes_or_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ControlPlane, "wait_ready", lambda _: pytest.fail("on purpose"))
    plane = ControlPlane(folder=tmp_path / "cluster", components=API_ALONE)
    with pytest.raises(pytest.fail.Exception, match="on purpose"):
        plane.start()
    assert not plane.folder.exists()
    assert not listens(plane.ports.apiserver)


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "tests.cluster", command, "--folder", folder]
    return subprocess.run(line, check=False, capture_output=True, text=True)


def test_persistent_cluster_runs_until_it_is_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    try:
        first = run("up", folder)
        assert first.returncode == 0, first.stderr
        shell_script = f"{first.stdout}kubectl get nodes --output=name"
        nodes = subprocess.run(["sh", "-ec", shell_script], check=True, capture_output=True, text=True).stdout.split()
        assert nodes == ["node/node-a1", "node/node-a2", "node/node-b1", "node/node-b2"]
        second = run("up", folder)
        assert "up already" in second.stderr
        assert second.stdout == first.stdout
        port = int(re.findall(r"127\.0\.0\.1:(\d+)", (folder / "admin.kubeconfig").read_text())[0])
        holder_pid = int((folder / "lock").read_text())
    finally:
        stopped = run("down", folder)
    assert stopped.stderr == "The control plane is down.\n"
    assert not folder.exists()
    wait_until(lambda: not runs(holder_pid), "its process had exited")
    assert not listens(port)
    assert run("down", folder).stderr == "No control plane is up.\n"
