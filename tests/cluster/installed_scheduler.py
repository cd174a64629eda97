"""The second kube-scheduler and the extender as `podgate install --with-scheduler` applied them, as two processes.

No image runs here. Arguments, configuration, certificates and rights are those in the cluster; only paths and addresses
are replaced.
"""

import base64
import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import yaml

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.binaries import binaries
from tests.cluster.components import write_json
from tests.cluster.controlplane import ControlPlane
from tests.cluster.processes import find_free_ports
from tests.cluster.server import PODGATE
from tests.timeouts import HANG_SECONDS

EXTENDER, SCHEDULER = "podgate-extender", "podgate-scheduler"
_HOST = f"{EXTENDER}.{NAMESPACE}.svc"


class InstalledScheduler:
    """Both processes."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane = plane
        self._folder = folder
        self._port, plain, decisions, self._secure = find_free_ports(4)
        self._decisions = f"127.0.0.1:{decisions}"
        self.url = f"http://{self._decisions}"
        self._plain = f"127.0.0.1:{plain}"

    def start_default_scheduler(self) -> None:
        """Start one that serves no other name: that of the other tests also serves podgate-scheduler."""
        user = self.plane.write_kubeconfig("system:kube-scheduler")
        arguments = (f"--kubeconfig={user}", "--leader-elect=false", "--secure-port=0")
        self.plane.processes.start("default-scheduler", [binaries().kube_scheduler, *arguments])

    def start_extender(self) -> None:
        tls = self._mount(f"{EXTENDER}-tls")
        [container] = self._pod_spec(EXTENDER)["containers"]
        arguments = [
            argument.replace("/etc/podgate/tls", str(tls)) for argument in container["args"] if "listen" not in argument
        ]
        listen = {
            "listen": f"127.0.0.1:{self._port}",
            "plain-listen": self._plain,
            "decision-listen": self._decisions,
            "kubeconfig": self.kubeconfig(EXTENDER),
        }
        given = [*arguments, *(f"--{name}={text}" for name, text in listen.items())]
        self.plane.processes.start(EXTENDER, [sys.executable, *PODGATE, *container["command"][1:], *given])
        self.plane.wait(self._is_ready, "the extender to be ready", EXTENDER)

    def start_scheduler(self) -> None:
        spec = self._pod_spec(SCHEDULER)
        [volume] = [volume["secret"] for volume in spec["volumes"] if "secret" in volume]
        tls = self._mount(volume["secretName"], {item["key"]: item["path"] for item in volume["items"]})
        config_map = self.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{SCHEDULER}")
        text = config_map["data"]["config.yaml"].replace("/etc/podgate/scheduler", str(tls))
        configuration = yaml.safe_load(text)
        [extender] = configuration["extenders"]
        assert extender["urlPrefix"] == f"https://{_HOST}"
        extender["urlPrefix"] = f"https://127.0.0.1:{self._port}"
        extender["tlsConfig"]["serverName"] = _HOST
        user = str(self.kubeconfig(SCHEDULER))
        configuration["clientConnection"] = {"kubeconfig": user}
        path = write_json(self._folder / "scheduler.json", configuration)
        own = [f"--{name}-kubeconfig={user}" for name in ("authentication", "authorization")]
        listen = [f"--secure-port={self._secure}", "--bind-address=127.0.0.1"]
        self.plane.processes.start(SCHEDULER, [binaries().kube_scheduler, f"--config={path}", *own, *listen])

    def _is_ready(self) -> bool:
        try:
            with urlopen(f"http://{self._plain}/readyz", timeout=HANG_SECONDS):
                return True
        except OSError:
            return False

    def zones(self) -> dict[str, list[int] | None]:
        """Return the millicores of each NUMA zone by node, as the extender knows them."""
        with urlopen(f"http://{self._decisions}/api/v1/nodes", timeout=HANG_SECONDS) as response:
            return {node["name"]: node["numaCpuMillis"] for node in json.load(response)["nodes"]}

    def metrics(self) -> str:
        """Return the extender's metrics."""
        with urlopen(f"http://{self._plain}/metrics", timeout=HANG_SECONDS) as response:
            text: str = response.read().decode()
        return text

    def log(self, name: str) -> str:
        return self.plane.log(name, 10_000)

    def kubeconfig(self, account: str) -> Path:
        return self.plane.write_kubeconfig(account, token=self.plane.create_token(account, NAMESPACE))

    def _pod_spec(self, name: str) -> Any:
        deployment = self.plane.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/{name}")
        return deployment["spec"]["template"]["spec"]

    def _mount(self, secret: str, paths: dict[str, str] | None = None) -> Path:
        """Write the content of a Secret into a folder, as a volume does."""
        folder = self._folder / secret
        folder.mkdir(exist_ok=True)
        data = self.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{secret}")["data"]
        for key, path in (paths or {key: key for key in data}).items():
            (folder / path).write_bytes(base64.b64decode(data[key]))
        return folder


def results(out: str) -> dict[str, str]:
    """Return what `podgate install -o json` did to each object."""
    return {row["object"]: row["result"] for row in json.loads(out)["objects"]}
