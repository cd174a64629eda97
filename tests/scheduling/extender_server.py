"""A `podgate extender` process and a second kube-scheduler that asks it, on a control plane."""

import json
import ssl
import sys
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from certs.authority import Authority, list_server_names
from certs.ca_generations import encode_pem
from certs.files import write
from tests.cli.command_runner import Done, run_installed
from tests.cluster.binaries import binaries
from tests.cluster.components import write_json
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kubelet import mount_key_pair
from tests.cluster.load_balancer import LoadBalancer, Target
from tests.cluster.server import PODGATE
from tests.monitoring.prometheus_server import PrometheusServer
from tests.scheduling.metrics_api import USED_CPU
from tests.timeouts import HANG_SECONDS

NAMESPACE = "shop"
SCHEDULER = "podgate-scheduler"
EXTENDER, OTHER, SECOND = "extender", "extender-2", "second-scheduler"
_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_WORKLOADS = tuple(
    f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}" for kind in ("deployments", "daemonsets", "replicasets")
)
WAKE = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "podgate-wake", "annotations": {"podgate.io/woken-at": ""}},
    "provisioner": "kubernetes.io/no-provisioner",
}
PRIORITY_CLASSES = tuple(
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "preemptionPolicy": policy,
    }
    for name, value, policy in (
        ("low", 1, "PreemptLowerPriority"),
        ("high", 1000, "PreemptLowerPriority"),
        ("patient", 1000, "Never"),
    )
)
WAKE_REQUESTS = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "podgate-wake", "namespace": "podgate-system"},
}
_GROUP = "topology.node.k8s.io"
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
NUMA_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"noderesourcetopologies.{_GROUP}",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1870"},
    },
    "spec": {
        "group": _GROUP,
        "names": {"kind": "NodeResourceTopology", "plural": "noderesourcetopologies"},
        "scope": "Cluster",
        "versions": [{"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": _ANYTHING}}],
    },
}
"""The kind as Node Feature Discovery installs it, but for its schema, which the extender does not rely on."""


class ExtendedScheduler:
    """The scheduler and the extender's replicas, with certificates of their own.

    The scheduler calls the address of `balancer`. It trusts both CAs, `authority` and `next_authority`; of the
    extender, `clients` are the CAs of its clients. `plain` is the address of the first replica's metrics.
    """

    def __init__(
        self, plane: ControlPlane, policy: str, prometheus: PrometheusServer, balancer: LoadBalancer, plain: str
    ) -> None:
        self.plane = plane
        self.prometheus = prometheus
        self.balancer = balancer
        self._folder = plane.folder / "extender"
        self._folder.mkdir()
        self.policy = self._folder / "policy.yaml"
        self.policy.write_text(policy)
        self.authority, self.next_authority = Authority.create("extender"), Authority.create("extender")
        write(self._folder / "ca.crt", _bundle(self.authority, self.next_authority), secret=False)
        self.trust_clients(self.authority)
        self.issue_certificate(self.authority)
        self.client("client", SCHEDULER)
        self._addresses: dict[str, dict[str, str]] = {EXTENDER: {"plain": plain}}
        self._starts: dict[str, int] = {}

    def trust_clients(self, *authorities: Authority) -> None:
        """Let the extender trust client certificates of these CAs; it reads the file within seconds."""
        write(self._folder / "clients.crt", _bundle(*authorities), secret=False, replace=True)

    def issue_certificate(self, authority: Authority) -> None:
        """Issue the extender's serving certificate; it reads the files within seconds."""
        serving = authority.issue_server("extender", (*list_server_names("localhost"), *list_server_names("127.0.0.1")))
        mount_key_pair(serving, self._folder / "server")

    def client(self, folder: str, name: str, *, authority: Authority | None = None) -> None:
        """Issue a client certificate of that name, by the extender's first CA or by another one."""
        pair = (authority or self.authority).issue_client(name)
        mount_key_pair(pair, self._folder / folder)

    def start(self) -> None:
        self.start_extender()
        self.balance(EXTENDER)
        self.start_scheduler()

    def start_extender(self, replica: str = EXTENDER, *, policy: Path | None = None) -> None:
        """Start a replica on a free port, on a later start on the same one, and wait until it is ready."""
        folder, known = self._folder, self._addresses.get(replica, {})
        flags = {
            "policy": policy or self.policy,
            "kubeconfig": self.plane.kubeconfig,
            "listen": known.get("extender", "127.0.0.1:0"),
            "plain-listen": known.get("plain", "127.0.0.1:0"),
            "decision-listen": "127.0.0.1:0",
            "prometheus-files": (policy or self.policy).parent,
            "client-ca": folder / "clients.crt",
            "tls-cert": folder / "server" / "tls.crt",
            "tls-key": folder / "server" / "tls.key",
        }
        self._starts[replica] = self._starts.get(replica, 0) + 1
        given = [f"--{name}={value}" for name, value in flags.items()]
        self.plane.processes.start(replica, [sys.executable, *PODGATE, "extender", *given])
        found = self.plane.wait(lambda: self._find_addresses(replica), f"{replica} to listen", replica)
        self._addresses[replica] = {name: addresses[0] for name, addresses in found.items()}
        self.plane.wait(lambda: self._is_ready(replica), f"{replica} to be ready", replica)
        self.plane.wait(lambda: {*self.balancer.ready} == {*self.balancer.targets}, "the balancer", replica)

    def balance(self, *replicas: str) -> None:
        """Send new connections of the scheduler to those of these replicas that are ready."""
        ports = [self._addresses[replica] for replica in replicas]
        self.balancer.targets = [Target(found["extender"], f"http://{found['plain']}/readyz") for found in ports]

    def start_scheduler(self, *flags: str, backoff_seconds: int | None = None, **extender: Any) -> None:
        """Start the scheduler; the keyword arguments replace fields of its extender's configuration.

        The rest is what `podgate scheduler config` prints, but that it may work faster, and waits for the answers of a
        busy machine: a call that it gives up lets a Pod go anywhere. `backoff_seconds` is the time after each refusal,
        instead of one that grows.
        """
        folder = self._folder
        options = {
            "url-prefix": f"https://{self.balancer.address}",
            "ca-file": folder / "ca.crt",
            "cert-file": folder / "client" / "tls.crt",
            "key-file": folder / "client" / "tls.key",
            "kubeconfig": self.plane.write_kubeconfig("system:kube-scheduler"),
            "lease": "",
        }
        given = [f"--{name}={value}" for name, value in options.items()]
        configuration = run_installed("scheduler", "config", *given, "-o", "json").document
        configuration["clientConnection"] |= {"qps": 200, "burst": 400}
        configuration["podInitialBackoffSeconds"] = backoff_seconds or 1
        if backoff_seconds is not None:
            configuration["podMaxBackoffSeconds"] = backoff_seconds
        configuration["extenders"][0] |= {"httpTimeout": "10s", **extender}
        path = write_json(folder / "scheduler.json", configuration)
        self.plane.processes.start(SECOND, [binaries().kube_scheduler, f"--config={path}", "--secure-port=0", *flags])

    def is_hot(self, name: str, replica: str = EXTENDER) -> bool:
        """Whether the extender knows that a node is above the threshold of the policy."""
        used = self.nodes(replica).get(name, {}).get("cpuShare")
        return used is not None and used > 0.8

    def stop_extender(self, replica: str = EXTENDER, *, kill: bool = False) -> None:
        self.plane.processes.stop(replica, kill=kill)

    def create(self, name: str, service: str = "web", *, only: str = "", cores: str = "", **spec: Any) -> None:
        """Create a Pod of a service, which asks for one cpu unless its containers are given.

        `only` names its node. `cores` is the usage that its kubelet reports.
        """
        selector = {"nodeSelector": {"kubernetes.io/hostname": only}} if only else {}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
        pod = {
            "metadata": {
                "name": name,
                "labels": {"podgate.io/service": service, "app": service},
                "annotations": {USED_CPU: cores} if cores else {},
            },
            "spec": {"schedulerName": SCHEDULER, "containers": [container], **selector, **spec},
        }
        code, answer = self.plane.api.request("POST", _PODS, pod)
        assert code == 201, answer

    def deploy(self, name: str, *, only: str) -> str:
        """Create a Deployment of one Pod of service web for one node, and return the Pod's name."""
        labels = {"podgate.io/service": "web", "app": "web", "deployment": name}
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
        spec = {"schedulerName": SCHEDULER, "containers": [container]}
        template = {
            "metadata": {"labels": labels},
            "spec": spec | {"nodeSelector": {"kubernetes.io/hostname": only}},
        }
        self.plane.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {"selector": {"matchLabels": {"deployment": name}}, "template": template},
            }
        )

        def pod() -> str:
            found = (self.plane.api.get(f"{_PODS}?labelSelector=deployment%3D{name}") or {})["items"]
            return next((document["metadata"]["name"] for document in found), "")

        created: str = self.plane.wait(pod, f"the Pod of {name}", "kube-controller-manager")
        return created

    def patch(self, name: str, patch: dict[str, Any]) -> None:
        """Merge a patch into a Pod."""
        code, answer = self.plane.api.request("PATCH", f"{_PODS}/{name}", patch, "application/merge-patch+json")
        assert code == 200, answer

    def find_pod(self, name: str) -> Any:
        """Return a Pod, None if there is none."""
        return self.plane.api.get(f"{_PODS}/{name}")

    def find_node(self, name: str) -> str:
        """Return the node of a Pod, "" while it has none."""
        found = self.plane.api.get(f"{_PODS}/{name}") or {}
        return str(found.get("spec", {}).get("nodeName", ""))

    def find_nominated(self, name: str) -> str:
        """Return the node that the scheduler has published in a Pod, "" without one."""
        found = self.plane.api.get(f"{_PODS}/{name}") or {}
        return str(found.get("status", {}).get("nominatedNodeName", ""))

    def wait_until_bound(self, name: str) -> str:
        """Wait until a Pod is bound, and return its node."""
        node: str = self.plane.wait(lambda: self.find_node(name), f"{name} to be bound")
        return node

    def is_refused(self, name: str) -> bool:
        """Whether kube-scheduler has said that a Pod is unschedulable."""
        conditions = (self.plane.api.get(f"{_PODS}/{name}") or {"status": {}})["status"].get("conditions", [])
        return any(condition.get("reason") == "Unschedulable" for condition in conditions)

    def wait_until_refused(self, name: str) -> str:
        """Wait until a Pod is unschedulable, and return the scheduler's message."""

        def message() -> str:
            pod = self.plane.api.get(f"{_PODS}/{name}") or {}
            assert "nodeName" not in pod["spec"], f"{name} was bound to {pod['spec']['nodeName']}: {self.nodes()}"
            conditions = pod["status"].get("conditions", [])
            return next(
                (condition["message"] for condition in conditions if condition.get("reason") == "Unschedulable"), ""
            )

        said: str = self.plane.wait(message, f"{name} to be refused", SECOND)
        return said

    def delete_all(self) -> None:
        """Delete all Pods, and wait until they are gone; and workloads, since a test that failed has left its own."""
        for path in _WORKLOADS:
            self.plane.api.request("DELETE", path)

        def is_empty() -> bool:
            self.plane.api.request("DELETE", f"{_PODS}?gracePeriodSeconds=0")  # a controller may just have created one
            return not (self.plane.api.get(_PODS) or {})["items"]

        self.plane.wait(is_empty, "the Pods to be deleted", "kwok")

    def post(self, verb: str, client: str | None, replica: str = EXTENDER) -> int:
        """Post to a replica with a client certificate, or with none; return the status, 0 for a failed handshake."""
        context = ssl.create_default_context(cafile=self._folder / "ca.crt")
        if client is not None:
            context.load_cert_chain(self._folder / client / "tls.crt", self._folder / client / "tls.key")
        request = Request(
            f"https://{self._addresses[replica]['extender']}/{verb}", b"{}", {"Content-Type": "application/json"}
        )
        try:
            with urlopen(request, timeout=HANG_SECONDS, context=context) as response:  # noqa: S310  as above
                return int(response.status)
        except HTTPError as error:
            return error.code
        except OSError:
            return 0

    def decisions(self, replica: str = EXTENDER) -> str:
        """Return HOST:PORT of a replica's decision port."""
        return self._addresses[replica]["decisions"]

    def nodes(self, replica: str = EXTENDER) -> dict[str, Any]:
        """Return the extender's view of each node."""
        return {node["name"]: node for node in self._read_nodes(replica)["nodes"]}

    def list_unread(self, replica: str = EXTENDER) -> list[str]:
        """Return the objects that the extender cannot read, with the reasons."""
        return list(self._read_nodes(replica)["unread"])

    def _read_nodes(self, replica: str) -> dict[str, Any]:
        with urlopen(f"http://{self.decisions(replica)}/api/v1/nodes", timeout=HANG_SECONDS) as response:
            return dict(json.load(response))

    def read_hottest(self) -> list[str]:
        """Return the words of the first row of `podgate nodes`."""
        url = f"http://{self.decisions()}"
        return run_installed("nodes", "--extender", url, "-o", "table", "--limit=1").out.splitlines()[1].split()

    def explain(self, *what: str) -> Done:
        """Return what `podgate explain` prints."""
        url = f"http://{self.decisions()}"
        return run_installed(
            "explain", *what, "-n", NAMESPACE, "--extender", url, "--kubeconfig", str(self.plane.kubeconfig)
        )

    def record(self, pod: str, replica: str = EXTENDER) -> Any:
        """Return a replica's record of a Pod, {} if it has none."""
        url = f"http://{self.decisions(replica)}/api/v1/scheduling?namespace={NAMESPACE}&name={pod}"
        with urlopen(url, timeout=HANG_SECONDS) as response:
            return next(iter(json.load(response)["records"]), {})

    def simulate(self, count: int, service: str, containers: list[dict[str, Any]]) -> dict[str, int]:
        """Return how many of these Pods, created at once, `podgate simulate` places on each node that gets any.

        Pods use nothing: the exporters go on reporting what a test has set.
        """
        folder = self._folder
        nodes = write_json(folder / "nodes.json", self.plane.api.get("/api/v1/nodes") or {})
        loads = write_json(folder / "loads.json", {"nodes": list(self.nodes().values())})
        pod = {"metadata": {"labels": {"podgate.io/service": service}}, "spec": {"containers": containers}}
        event = json.dumps({"at": 0, "pod": pod, "namespace": NAMESPACE})
        (folder / "pods.jsonl").write_text(f"{event}\n" * count)
        files = ("--policy", self.policy, "--nodes", nodes, "--loads", loads, "--pods", folder / "pods.jsonl")
        found = run_installed("simulate", *files, "--usage=0", "-o", "json").document
        return {node["name"]: node["pods"] for node in found["extender"]["nodes"] if node["pods"]}

    def metrics(self) -> str:
        with urlopen(f"http://{self._addresses[EXTENDER]['plain']}/metrics", timeout=HANG_SECONDS) as response:
            text: str = response.read().decode()
        return text

    def _find_addresses(self, replica: str) -> dict[str, list[str]] | None:
        """Return the addresses in the log of this start: the log has those of earlier ones too."""
        lines = self.plane.log(replica, 1000).splitlines()
        starts = [line for line in lines if '"msg":"listening"' in line]
        for line in starts[self._starts[replica] - 1 :]:
            found = json.loads(line)
            return {port: found[port] for port in ("extender", "plain", "decisions")}
        return None

    def _is_ready(self, replica: str) -> bool:
        try:
            with urlopen(f"http://{self._addresses[replica]['plain']}/readyz", timeout=HANG_SECONDS):
                return True
        except OSError:
            return False


def _bundle(*authorities: Authority) -> bytes:
    return encode_pem(*(authority.key_pair.certificate for authority in authorities))
