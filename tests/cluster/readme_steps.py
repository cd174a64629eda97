"""The steps of the manifests' README, executed in a cluster."""

import base64
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster import manifests
from tests.cluster.admission_configuration import NAMESPACE, SERVICE_HOST
from tests.cluster.binaries import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.load_balancer import LoadBalancer
from tests.cluster.server import Server

SERVER = "podgate-of-the-manifests"
ON_THE_NODE = "/etc/kubernetes/podgate"


@dataclass(frozen=True)
class Site:
    """A cluster, a working folder with the manifests, and the load balancer in front of the server."""

    plane: ControlPlane
    folder: Path
    load_balancer: LoadBalancer
    source: Path = manifests.FOLDER
    """The manifests, of this tree or of another release."""

    def __post_init__(self) -> None:
        shutil.copytree(self.source, self.folder / "manifests")
        (self.folder / "bin").mkdir()
        (self.folder / "bin/kubectl").symlink_to(binaries().kubectl)

    def run(self, step: str) -> str:
        """Run the commands of a step, with the working folder for the node's /etc, and another port than 443."""
        step = step.replace(ON_THE_NODE, str(self.folder / "node"))
        step = step.replace(
            "webhooks --policy", f"webhooks --service podgate-system/podgate:{self.load_balancer.port} --policy"
        )
        tools = (self.folder / "bin", Path(sys.executable).parent, "/usr/bin", "/bin")
        variables = {"PATH": os.pathsep.join(map(str, tools)), "KUBECONFIG": str(self.plane.kubeconfig)}
        command = ["bash", "-o", "errexit", "-o", "pipefail", "-o", "nounset", "-c", step]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**variables, "HOME": str(self.folder)},
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def restart_api_server(self) -> None:
        """Restart kube-apiserver with the files that step 3 writes to the node."""
        for path in (self.folder / "node").glob("*.yaml"):
            text = path.read_text().replace(ON_THE_NODE, str(path.parent))
            path.write_text(text.replace(SERVICE_HOST, f"{SERVICE_HOST}:{self.load_balancer.port}"))
        self.plane.admission = self.folder / "node/admission-configuration.yaml"
        self.plane.restart("kube-apiserver")
        self.plane.wait_ready()

    def start_server(self) -> str:
        """Start the server with the flags, mounts and account of the Deployment; return its address.

        kwok does not run it, so the Service is an ExternalName of loopback instead.
        """
        flags = mount_flags(self.folder / "pod")
        for volume in manifests.pod_spec()["volumes"]:
            self._mount(volume)
        token = self.plane.kubectl("create", "token", "podgate", "-n", NAMESPACE).stdout.strip()
        flags |= {"--listen": "127.0.0.1:0", "--plain-listen": "127.0.0.1:0"}
        flags |= {"--kubeconfig": str(self.plane.write_kubeconfig("podgate", token=token))}
        server = Server.start(self.plane, SERVER, *(f"{flag}={text}" for flag, text in flags.items()))
        self.load_balancer.targets = [server.target]
        self.plane.wait(lambda: self.load_balancer.ready, "the server to be ready", SERVER)
        external_name = {
            "spec": {"type": "ExternalName", "externalName": "localhost", "clusterIP": None, "clusterIPs": None}
        }
        self.plane.kubectl("patch", "service", "podgate", "-n", NAMESPACE, "--patch", json.dumps(external_name))
        return server.admission

    def _mount(self, volume: dict[str, Any]) -> None:
        if "secret" in volume:
            texts = self._data("secrets", volume["secret"]["secretName"])
            content = {key: base64.b64decode(text) for key, text in texts.items()}
        else:
            texts = self._data("configmaps", volume["configMap"]["name"])
            content = {key: text.encode() for key, text in texts.items()}
        for key, data in content.items():
            (self.folder / "pod" / volume["name"] / key).write_bytes(data)

    def _data(self, kind: str, name: str) -> dict[str, str]:
        data: dict[str, str] = self.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/{kind}/{name}")["data"]
        return data


def mount_flags(folder: Path) -> dict[str, str]:
    """Return the Deployment's flags with mounts in `folder`, and create an empty file for each path."""
    flags = {flag: text.replace("/etc/podgate", str(folder)) for flag, text in manifests.arguments().items()}
    for text in flags.values():
        if text.startswith(str(folder)):
            Path(text).parent.mkdir(parents=True, exist_ok=True)
            Path(text).touch()
    return flags
