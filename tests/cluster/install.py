"""Helpers of the `install` tests that other tests use, too."""

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import BIN, Done, podgate
from tests.cluster.admission_configuration import NAMESPACE, Caller, admission_configuration
from tests.cluster.all_objects import list_objects
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.processes import find_free_ports
from tests.cluster.server import PODGATE, Server
from webhook.core.document.configmap import KEY, NAME
from webhook.core.installation.objects import ObjectReference
from webhook.core.installation.record import RECORD
from webhook.operations.installer import LATER

CONTROLLERS = "kube-controller-manager"
"""Deletes the content of namespaces, and creates their service accounts."""


SERVER = "podgate-outside"


ENFORCING = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
  failureMode: Closed
  placement: {nodeSelector: {disk-type: ssd}}
"""


POLICY = ObjectReference("v1", "ConfigMap", NAME, NAMESPACE)


NOT_COMPARED = {("pods", "shop"), ("leases", "kube-system")}


@dataclass
class Cluster:
    """A cluster whose API server has credentials for one port of loopback, and a folder with them."""

    plane: ControlPlane
    folder: Path
    port: int
    plain_port: int
    servers: list[Server] = field(default_factory=list)
    before: frozenset[tuple[str, str, str]] = frozenset()
    """The objects before the first installation."""
    listed: frozenset[str] = frozenset()
    """The objects that a dry run has listed before the first installation, and those that were there."""

    @property
    def options(self) -> tuple[str | Path, ...]:
        return self.list_options(self.port)

    def list_options(self, port: int) -> tuple[str | Path, ...]:
        urls = ("--server-url", f"https://127.0.0.1:{port}", "--status-url", f"http://127.0.0.1:{self.plain_port}")
        return *urls, "--pki", self.folder / "pki", "--kubeconfig", self.plane.kubeconfig

    def install(self, *options: str | Path) -> Done:
        return podgate("install", *self.options, *options)

    def uninstall(self, *options: str | Path) -> Done:
        return podgate("uninstall", "--kubeconfig", self.plane.kubeconfig, *options)

    def start_server(self) -> None:
        """Start the server as `install` says, on loopback only."""
        listen = ("--listen", f"127.0.0.1:{self.port}", "--plain-listen", f"127.0.0.1:{self.plain_port}")
        options = ("--pki", self.folder / "pki", "--kubeconfig", self.plane.kubeconfig, "--drain", "0s")
        self.servers.append(Server.start(self.plane, SERVER, *options, *listen, program=PODGATE))

    def stop_server(self) -> None:
        self.servers.clear()
        self.plane.stop_component(SERVER, kill=True)

    def policy(self) -> str:
        text: str = self.plane.api.get(POLICY.path)["data"][KEY]
        return text

    def create_pod(self, **spec: Any) -> tuple[int, Any]:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "web-"},
            "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
        }
        return self.plane.api.request("POST", "/api/v1/namespaces/shop/pods", pod)

    def objects(self) -> frozenset[tuple[str, str, str]]:
        """Return resource, namespace and name of every object but Events, users' Pods and Leases of the cluster."""
        found = set()
        for root in self._roots():
            for resource in self.plane.api.get(root)["resources"]:
                name = resource["name"]
                if "list" not in resource["verbs"] or name == "events":
                    continue
                for item in self.plane.api.get(f"{root}/{name}")["items"]:
                    namespace = item["metadata"].get("namespace", "")
                    if (name, namespace) not in NOT_COMPARED:
                        found.add((name, namespace, item["metadata"]["name"]))
        return frozenset(found)

    def wait_for_nothing_left(self) -> None:
        """Wait until the objects are those before the installation: the API server removes APIServices later."""
        self.plane.wait(lambda: self.objects() == self.before, "nothing to be left", "kube-apiserver")

    def _roots(self) -> Iterator[str]:
        yield "/api/v1"
        for group in self.plane.api.get("/apis")["groups"]:
            yield f"/apis/{group['preferredVersion']['groupVersion']}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("outside")
    port, plain_port = find_free_ports(2)
    pki = folder / "pki"
    caller = Caller(pki / "kube-apiserver.crt", pki / "kube-apiserver.key", pki / "token")
    admission = admission_configuration(folder, {port: caller})
    components = (*API_ALONE, CONTROLLERS)
    with ControlPlane(admission=admission, components=components, has_egress_proxy=True) as plane:
        plane.create_namespace("shop")
        made = Cluster(plane, folder, port, plain_port)
        made.before = made.objects()
        yield made


@pytest.fixture
def installed(cluster: Cluster, tmp_path: Path) -> Cluster:
    """Install as a person does: the command waits, and prints how to start the server."""
    if cluster.plane.api.get(RECORD.path) is None:
        (policy := tmp_path / "policy.yaml").write_text(ENFORCING)
        if not cluster.servers:
            dry = cluster.install("--policy", policy, "--dry-run", "-o", "json")
            assert dry.code == 0, dry.err
            results = {row["object"]: row["result"] for row in json.loads(dry.out)["objects"]}
            assert {*results.values()} - {"issued"} == {"created", LATER}  # certificates outlive an uninstallation
            cluster.listed = frozenset(name for name, result in results.items() if result != "issued")
            cluster.listed |= {*list_objects(cluster.plane)}
            command = [BIN / "podgate", "install", *cluster.options, "--policy", policy]
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            assert process.stderr is not None
            waiting = process.stderr.readline()
            assert f"podgate serve --pki {cluster.folder / 'pki'} --listen 0.0.0.0:{cluster.port}" in waiting
            cluster.start_server()
            out, err = process.communicate()
            assert (process.returncode, waiting.split()[0]) == (0, "waiting"), err
        else:
            done = cluster.install("--policy", policy)
            assert done.code == 0, done.err
            out = done.out
        assert "proven: the API server calls Podgate: a Pod of service web in namespace shop came back" in out
    return cluster


WAYS = {
    "memory": (),
    "redis": ("--store", "redis://redis.podgate-system.svc:6379/0", "--replicas", "3"),
    "files": ("--certificates", "files", "--apiserver-files"),
    "reduced": ("--reduced",),
    "scheduler": ("--with-scheduler",),
    "scheduler-files": ("--certificates", "files", "--with-scheduler"),
}
