"""A control plane with stored Nodes, two extenders, and a kube-scheduler for each way that is compared.

Nodes are objects only: kwok's heartbeats of a thousand nodes would take more CPU than the measured processes.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from certs.authority import Authority, list_server_names
from certs.files import write_key_pair
from tests.bench.scheduling.prometheus_answers import PrometheusAnswers
from tests.cluster.binaries import binaries
from tests.cluster.components import write_json
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.kwok import node
from tests.cluster.server import PODGATE
from tests.scheduling.extender_calls import topology
from tests.scheduling.extender_server import NAMESPACE, NUMA_CRD, WAKE
from webhook.core.scheduling.scheduler_configuration import (
    ExtenderAccess,
    SchedulerOptions,
    render_scheduler_configuration,
)

NONE, PASS_ALL, ALL_RULES = "no extender", "passes all", "all rules"
EXTENDERS = (PASS_ALL, ALL_RULES)
WAYS = (NONE, *EXTENDERS)
RACKS, ZONES = 50, 3
PODS_PATH = f"/api/v1/namespaces/{NAMESPACE}/pods"
_CONCERNED = "- {name: web, match: {namespaces: [shop]}, placement: {schedulerName: all-rules}"
_RULES = (
    "scheduling: {hot: {cpu: 0.8, memory: 0.9}, pressure: {memory: 0.1}, numa: Required,"
    " near: {to: {matchLabels: {app: web}}}}"
)
_REFRESH_SECONDS = 5


@dataclass
class ExtenderAddresses:
    calls: str
    plain: str


class SchedulingCluster:
    """The processes. Pods of `profile(way)` are scheduled that way."""

    def __init__(self, plane: ControlPlane, prometheus: PrometheusAnswers, percentage: int) -> None:
        self.plane = plane
        self._folder = plane.folder / "bench"
        self._folder.mkdir()
        self._percentage = percentage
        authority = Authority.create("bench")
        serving = authority.issue_server("extender", list_server_names("127.0.0.1"))
        client = authority.issue_client("podgate-scheduler")
        for name, pair in (("ca", authority.key_pair), ("server", serving), ("client", client)):
            write_key_pair(pair, self._folder / f"{name}.crt", self._folder / f"{name}.key")
        self._policies = build_policies(prometheus.url)
        self.addresses: dict[str, ExtenderAddresses] = {}

    def start(self) -> None:
        """Start both extenders and all schedulers."""
        for way in EXTENDERS:
            self._start_extender(way)
        for way in WAYS:
            self._start_scheduler(way)

    def metrics(self, way: str) -> str:
        with urlopen(f"http://{self.addresses[way].plain}/metrics", timeout=60) as response:
            text: str = response.read().decode()
        return text

    def _start_extender(self, way: str) -> None:
        folder, name = self._folder, profile(way)
        policy = folder / f"{name}.yaml"
        policy.write_text(self._policies[way])
        options: dict[str, str | Path] = {
            "policy": policy,
            "kubeconfig": self.plane.kubeconfig,
            "client-ca": folder / "ca.crt",
            "tls-cert": folder / "server.crt",
            "tls-key": folder / "server.key",
            **{f"{port}listen": "127.0.0.1:0" for port in ("", "plain-", "decision-")},
        }
        given = [f"--{option}={value}" for option, value in options.items()]
        self.plane.processes.start(name, [sys.executable, *PODGATE, "extender", *given])
        found = self.plane.wait(lambda: self._find_addresses(name), f"{name} to listen", name)
        self.addresses[way] = ExtenderAddresses(found["extender"][0], found["plain"][0])
        self.plane.wait(lambda: self._is_ready(way), f"{name} to know the nodes and their load", name)

    def _find_addresses(self, name: str) -> dict[str, list[str]] | None:
        lines = [line for line in self.plane.log(name, 1000).splitlines() if '"msg":"listening"' in line]
        return json.loads(lines[0]) if lines else None

    def _is_ready(self, way: str) -> bool:
        try:
            with urlopen(f"http://{self.addresses[way].plain}/readyz", timeout=60):
                return 'podgate_extender_nodes{source="unknown"} 0.0' in self.metrics(way)
        except OSError:
            return False

    def _start_scheduler(self, way: str) -> None:
        folder, name = self._folder, profile(way)
        address = self.addresses[way].calls if way in EXTENDERS else ""
        files = [str(folder / name) for name in ("ca.crt", "client.crt", "client.key")]
        user = str(self.plane.write_kubeconfig("system:kube-scheduler"))
        # A slow machine must not let Pods pass unasked: no answer is an error here.
        options = SchedulerOptions((name,), None, 5, "60s", self._percentage, user)
        document = render_scheduler_configuration(ExtenderAccess(f"https://{address}", *files), options)
        document["clientConnection"] |= {"qps": 2000, "burst": 4000}
        document["extenders"] = [{**extender, "ignorable": False} for extender in document["extenders"] if address]
        path = write_json(folder / f"{name}.json", document)
        command = [binaries().kube_scheduler, f"--config={path}", "--secure-port=0"]
        self.plane.processes.start(f"{name}-scheduler", command)


def build_policies(prometheus_url: str) -> dict[str, str]:
    """Return the policy of each extender."""
    rules = {PASS_ALL: "", ALL_RULES: f", {_RULES}"}
    return {
        way: "apiVersion: podgate.io/v1alpha1\nkind: Policy\n"
        f'nodes: {{refresh: {_REFRESH_SECONDS}s, sources: [{{prometheus: {{url: "{prometheus_url}"}}}}]}}\n'
        f"services:\n{_CONCERNED}{rules[way]}}}\n"
        for way in EXTENDERS
    }


def profile(way: str) -> str:
    """Return the name of a way's profile, and of its processes."""
    return way.replace(" ", "-")


def pod(name: str, way: str) -> dict[str, Any]:
    """Return a Guaranteed Pod that all rules concern."""
    amounts = {"cpu": "100m", "memory": "128Mi"}
    container = {"name": "c", "image": "i", "resources": {"requests": amounts, "limits": amounts}}
    return {
        "metadata": {"name": name, "labels": {"podgate.io/service": "web", "app": "web"}},
        "spec": {
            "schedulerName": profile(way),
            "containers": [container],
            "tolerations": [{"operator": "Exists"}],  # nothing removes the taint of new Nodes
        },
    }


def nodes(count: int) -> list[dict[str, Any]]:
    found = [node(f"node-{number:05}", zone=f"zone-{number % ZONES}") for number in range(count)]
    for number, document in enumerate(found):
        document["metadata"]["labels"]["topology.kubernetes.io/rack"] = f"rack-{number % RACKS}"
    return found


@contextmanager
def run_scheduling_cluster(count: int, percentage: int) -> Iterator[SchedulingCluster]:
    """Run everything with this many nodes, of which the schedulers ask for `percentage`, 0 for their own choice."""
    documents = nodes(count)
    names = [document["metadata"]["name"] for document in documents]
    with PrometheusAnswers(names) as prometheus, ControlPlane(components=API_ALONE, environment={}) as plane:
        plane.apply(WAKE, NUMA_CRD)
        plane.create_namespace(NAMESPACE)
        for document in documents:
            _create(plane, "/api/v1/nodes", document)
        path = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
        plane.wait(lambda: plane.api.request("GET", path)[0] == 200, "the kind NodeResourceTopology", "kube-apiserver")
        for name in names:
            _create(plane, path, topology(name, "32", "32"))
        cluster = SchedulingCluster(plane, prometheus, percentage)
        cluster.start()
        yield cluster


def _create(plane: ControlPlane, path: str, document: dict[str, Any]) -> None:
    status, answer = plane.api.request("POST", path, document)
    assert status == 201, answer
