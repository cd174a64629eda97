"""The way back to the former policy, as the runbook has it, after a policy that does harm."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.binaries import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.timeouts import HANG_SECONDS
from webhook.core.document.configmap import LAST_GOOD, NAME

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.md"
SPACE = "former-policy"
GOOD, HARMFUL = (
    "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n"
    f"- {{name: web, match: {{namespaces: [{SPACE}]}}, quota: {{windows: [{{window: 1h, hard: {{pods: {hard}}}}}]}}}}\n"
    for hard in (50, 1)
)


@pytest.fixture
def installation(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    arguments = ("--drain", "0s", "--decision-listen", "127.0.0.1:0")
    with install_podgate(plane, identities.files, GOOD, [SPACE], arguments=arguments) as installation:
        yield installation


def steps() -> tuple[str, str]:
    """Return the commands that find the hash, and those that put its policy back."""
    section = RUNBOOK.read_text().partition("\n## Put the former policy back\n")[2].partition("\n## ")[0]
    find, put = re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    return find, put


def run(installation: Installation, folder: Path, step: str) -> str:
    """Run a step. The nodes here have no kubelet that forwards ports, so the server is asked at its own address."""
    (folder / "bin").mkdir(exist_ok=True)
    kubectl = folder / "bin" / "kubectl"
    kubectl.write_text(f'#!/bin/sh\n[ "$1" = port-forward ] && exec sleep 20\nexec {binaries().kubectl} "$@"\n')
    kubectl.chmod(0o755)
    path = os.pathsep.join((str(folder / "bin"), str(Path(sys.executable).parent), "/usr/bin", "/bin"))
    done = subprocess.run(
        ["bash", "-o", "errexit", "-o", "pipefail", "-o", "nounset", "-c", step],
        cwd=folder,
        env={"PATH": path, "KUBECONFIG": str(installation.plane.kubeconfig), "HOME": str(folder)},
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_former_policy_comes_back_from_what_the_servers_keep(
    plane: ControlPlane, installation: Installation, tmp_path: Path
) -> None:
    installation.wait_for_calls()
    former = installation.read_stored(NAME)
    assert former is not None
    installation.wait_for_policy(former)
    assert installation.create_pod(SPACE, "before")[0] == 201
    installation.change_policy(HARMFUL)
    plane.wait(lambda: installation.read_stored(LAST_GOOD) == HARMFUL, "the harmful policy to be the last good one")
    assert installation.create_pod(SPACE, "denied")[0] == 429

    find, put = steps()
    rows = [line.split() for line in run(installation, tmp_path, find).splitlines()]
    assert rows[0] == ["CREATED", "POLICY"]
    policy_hash = rows[-1][1]
    assert put.count("127.0.0.1:18082") == 1
    put = put.replace("127.0.0.1:18082", installation.servers[0].decisions).replace("HASH", policy_hash)
    shown = run(installation, tmp_path, put)
    assert "web" in shown, "the difference"
    installation.wait_for_policy(former)
    assert installation.read_stored(NAME) == former
    assert installation.create_pod(SPACE, "after")[0] == 201
