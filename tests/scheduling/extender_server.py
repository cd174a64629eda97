"""A `podgate extender` process and a second kube-scheduler that asks it, on a control plane."""

import json
import sys
from typing import Any
from urllib.request import urlopen

from certs.authority import Authority, server_names
from certs.files import write_key_pair
from tests.cluster.binaries import binaries
from tests.cluster.components import write_json
from tests.cluster.controlplane import ControlPlane
from tests.cluster.server import PODGATE
from tests.timeouts import HANG_SECONDS

SCHEDULER = "podgate-scheduler"
EXTENDER, SECOND = "extender", "second-scheduler"
WAKE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "podgate-wake", "annotations": {"podgate.io/woken-at": ""}},
    "provisioner": "kubernetes.io/no-provisioner",
}


class ExtendedScheduler:
    """The two processes, with certificates of their own."""

    def __init__(self, plane: ControlPlane, policy: str) -> None:
        self.plane = plane
        self._folder = plane.folder / "extender"
        self._folder.mkdir()
        self.policy = self._folder / "policy.yaml"
        self.policy.write_text(policy)
        self._authority = Authority.create("extender")
        write_key_pair(self._authority.key_pair, self._folder / "ca.crt", self._folder / "ca.key")
        serving = self._authority.issue_server("extender", (*server_names("localhost"), *server_names("127.0.0.1")))
        write_key_pair(serving, self._folder / "server.crt", self._folder / "server.key")
        self.client("client", SCHEDULER)
        self._addresses: dict[str, str] = {}

    def client(self, file: str, name: str) -> None:
        """Issue a client certificate of that name."""
        pair = self._authority.issue_client(name)
        write_key_pair(pair, self._folder / f"{file}.crt", self._folder / f"{file}.key", replace=True)

    def start(self) -> None:
        self.start_extender()
        self.start_scheduler()

    def start_extender(self, *arguments: str) -> None:
        """Start it on a free port, on a later start on the same one, and wait until it is ready."""
        folder, listen = self._folder, self._addresses.get("extender", "127.0.0.1:0")
        flags = {
            "policy": self.policy,
            "kubeconfig": self.plane.kubeconfig,
            "listen": listen,
            "plain-listen": "127.0.0.1:0",
            "decision-listen": "127.0.0.1:0",
            "client-ca": folder / "ca.crt",
            "tls-cert": folder / "server.crt",
            "tls-key": folder / "server.key",
        }
        given = [f"--{name}={value}" for name, value in flags.items()]
        self.plane.processes.start(EXTENDER, [sys.executable, *PODGATE, "extender", *given, *arguments])
        self._addresses = {name: found[0] for name, found in self.plane.wait(self._listening, "extender").items()}
        self.plane.wait(self._is_ready, "the extender to be ready", EXTENDER)

    def start_scheduler(self, **extender: Any) -> None:
        """Start the scheduler; the arguments replace fields of its extender's configuration."""
        folder = self._folder
        asked = {
            "urlPrefix": f"https://{self._addresses['extender']}",
            **{f"{verb}Verb": verb for verb in ("filter", "prioritize", "preempt")},
            "weight": 5,
            "enableHTTPS": True,
            "nodeCacheCapable": True,
            "ignorable": True,
            "httpTimeout": "1s",
            "tlsConfig": {
                "caFile": str(folder / "ca.crt"),
                "certFile": str(folder / "client.crt"),
                "keyFile": str(folder / "client.key"),
            },
        }
        user = self.plane.kubeconfig_for("system:kube-scheduler")
        configuration = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(user), "qps": 200, "burst": 400},
            "leaderElection": {"leaderElect": False},
            "percentageOfNodesToScore": 100,
            "podMaxBackoffSeconds": 2,
            "profiles": [{"schedulerName": SCHEDULER}],
            "extenders": [asked | extender],
        }
        path = write_json(folder / "scheduler.json", configuration)
        self.plane.processes.start(SECOND, [binaries().kube_scheduler, f"--config={path}", "--secure-port=0"])

    def nodes(self) -> dict[str, Any]:
        """Return the extender's view of each node."""
        return {node["name"]: node for node in self._get("decisions", "/api/v1/nodes")["nodes"]}

    def metrics(self) -> str:
        with urlopen(f"http://{self._addresses['plain']}/metrics", timeout=HANG_SECONDS) as response:
            text: str = response.read().decode()
        return text

    def _get(self, port: str, path: str) -> Any:
        with urlopen(f"http://{self._addresses[port]}{path}", timeout=HANG_SECONDS) as response:
            return json.load(response)

    def _listening(self) -> dict[str, list[str]] | None:
        for line in self.plane.log(EXTENDER, 1000).splitlines():
            if '"msg":"listening"' in line:
                found = json.loads(line)
                return {port: found[port] for port in ("extender", "plain", "decisions")}
        return None

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://{self._addresses['plain']}/readyz", timeout=HANG_SECONDS):
                return True
        except OSError:
            return False
