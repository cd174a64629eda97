"""The scheduler's side: two extenders, and a second kube-scheduler that asks a ready one of them."""

from collections.abc import Sequence
from pathlib import Path

from certs.authority import Authority, list_server_names
from certs.files import write_key_pair
from tests.cli.command_runner import run_installed
from tests.cluster.binaries import binaries
from tests.cluster.components import write_json
from tests.cluster.controlplane import ControlPlane
from tests.cluster.installation import MANIFESTS

SCHEDULER = "podgate-scheduler"
EXTENDERS = ("extender-1", "extender-2")
ACCOUNT = "podgate-extender"
_MANIFESTS = MANIFESTS / "scheduler"
RIGHTS = (_MANIFESTS / "14-rbac-extender.yaml",)
OBJECTS = (_MANIFESTS / "44-configmap-wake.yaml", _MANIFESTS / "45-storageclass.yaml")


class SchedulerFiles:
    """The certificates of the extenders and of their client, and the client's configuration."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        authority = Authority.create("extender")
        names = (*list_server_names("localhost"), *list_server_names("127.0.0.1"))
        write_key_pair(authority.key_pair, folder / "ca.crt", folder / "ca.key")
        write_key_pair(authority.issue_server("extender", names), folder / "server.crt", folder / "server.key")
        write_key_pair(authority.issue_client(SCHEDULER), folder / "client.crt", folder / "client.key")

    def list_extender_flags(self) -> Sequence[str]:
        """Return the arguments of `podgate extender` that name files."""
        files = {"tls-cert": "server.crt", "tls-key": "server.key", "client-ca": "ca.crt"}
        return [f"--{flag}={self._folder / file}" for flag, file in files.items()]

    def build_scheduler_command(self, plane: ControlPlane, port: int) -> Sequence[str | Path]:
        """Return the command of a kube-scheduler that asks the extender at this port of loopback."""
        options = {
            "url-prefix": f"https://127.0.0.1:{port}",
            "ca-file": self._folder / "ca.crt",
            "cert-file": self._folder / "client.crt",
            "key-file": self._folder / "client.key",
            "kubeconfig": plane.write_kubeconfig("system:kube-scheduler"),
            "lease": "",
        }
        given = [f"--{name}={value}" for name, value in options.items()]
        configuration = run_installed("scheduler", "config", *given, "-o", "json").document
        configuration["clientConnection"] |= {"qps": 200, "burst": 400}
        configuration["podMaxBackoffSeconds"] = 2
        path = write_json(self._folder / "scheduler.json", configuration)
        return [binaries().kube_scheduler, f"--config={path}", "--secure-port=0"]
