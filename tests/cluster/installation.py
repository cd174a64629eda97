"""Installation of Podgate as by its manifests: policy in a ConfigMap, servers, webhook configurations."""

import itertools
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.load_balancer import LoadBalancer
from tests.cluster.server import PODGATE, Server
from tests.harness.server_process import Files
from webhook.core.document import Purpose, configmap, load
from webhook.core.webhook_configurations import ClientConfig, ServiceReference, render_configurations

MANIFESTS = Path(__file__).parents[2] / "manifests"
RBAC = MANIFESTS / "base" / "10-rbac.yaml"
CONTROLLER_RBAC = MANIFESTS / "redis" / "11-rbac-controller.yaml"
CERTIFICATES_RBAC = MANIFESTS / "certificates" / "12-rbac-certificates.yaml"
"""Rights of a controller that manages certificates."""
WEBHOOKS_RBAC = RBAC.with_name("11-rbac-webhooks.yaml")
CONTROLLER_WEBHOOKS_RBAC = CONTROLLER_RBAC.with_name("12-rbac-webhooks.yaml")
"""Rights of the leader to write webhook configurations and CA bundles."""
RETRIES_RBAC = RBAC.with_name("12-rbac-retries.yaml")
CONTROLLER_RETRIES_RBAC = CONTROLLER_RBAC.with_name("13-rbac-retries.yaml")
ROLLOUT_RBAC = RBAC.with_name("13-rbac-rollout.yaml")
CONTROLLER_ROLLOUT_RBAC = CONTROLLER_RBAC.with_name("14-rbac-rollout.yaml")
"""Rights of the leader to wake controllers whose Pods were denied."""
SERVICE_ACCOUNT, CONTROLLER_ACCOUNT = "podgate", "podgate-controller"
LEASE = "podgate-leader"
HALVES = ("mutating", "validating")
POLICY, LAST_GOOD, KEY = configmap.NAME, configmap.LAST_GOOD, configmap.KEY
OVERRIDES = configmap.OVERRIDES
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_REVISIONS = f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
_CALLED_FOR = {"podgate.io/service": "asked"}
"""Labels of a Pod for which no mutating call is left out, whether a service owns it or not."""
PATIENT = ("--handshake-timeout", "1m", "--body-timeout", "1m")
"""Flags of a server that refuses no call of an API server on a busy machine."""
_numbers = itertools.count(1)


def lengthen_timeouts(configurations: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    """Give all calls of webhook configurations 30 s, so that a busy machine fails none."""
    for webhook in (webhook for configuration in configurations for webhook in configuration["webhooks"]):
        webhook["timeoutSeconds"] = 30
    return configurations


@dataclass
class Installation:
    """An installation; the API server reaches its servers through `load_balancer`."""

    plane: ControlPlane
    files: Files
    load_balancer: LoadBalancer
    policy: str
    namespaces: Sequence[str] = ()
    program: Sequence[str | Path] = PODGATE
    """Arguments of Python in place of `-m webhook`."""
    python: str | Path = sys.executable
    """As in `Server.start`."""
    servers: list[Server] = field(default_factory=list)
    controllers: list[Server] = field(default_factory=list)

    # --- servers ---

    def start_server(self, *arguments: str, kubeconfig: Path | None = None) -> Server:
        """Start a server with the rights of the manifests, and wait until it listens."""
        name = f"podgate-{next(_numbers)}"
        server_flags = self.files.arguments()[2:]  # the policy comes from the cluster
        kubeconfig_flags = ("--kubeconfig", kubeconfig or self.kubeconfig())
        command = (*server_flags, *kubeconfig_flags, *arguments)
        server = Server.start(self.plane, name, *command, program=self.program, python=self.python)
        self.servers.append(server)
        self.route()
        return server

    def stop_server(self, server: Server, *, kill: bool = False, pre_stop_seconds: float = 0.0) -> None:
        """Stop a server as Kubernetes does: no new connections, then SIGTERM. Its log must contain no traceback.

        `pre_stop_seconds` is the Deployment's preStop, during which connections in flight still reach the server.
        """
        self.servers.remove(server)
        self.route()
        time.sleep(pre_stop_seconds)
        self.plane.stop_component(server.name, kill=kill)
        assert "Traceback" not in self.log(server), self.log(server)

    def route(self) -> None:
        self.load_balancer.targets = [server.target for server in self.servers]

    def log(self, server: Server, lines: int = 1000) -> str:
        return self.plane.log(server.name, lines)

    def kubeconfig(self, server: str | None = None, *, account: str = SERVICE_ACCOUNT) -> Path:
        """Return a kubeconfig of the service account; `server` is another URL of the API server."""
        token = self.plane.create_token(account, NAMESPACE)
        return self.plane.write_kubeconfig(account, token=token, server=server)

    # --- controllers ---

    def start_controller(self, *arguments: str) -> Server:
        """Start a controller with the rights of the manifests, and wait until it listens."""
        for rights in (CONTROLLER_RBAC, CONTROLLER_WEBHOOKS_RBAC, CONTROLLER_RETRIES_RBAC, CERTIFICATES_RBAC):
            self.plane.apply_file(rights)
        self.plane.apply_file(CONTROLLER_ROLLOUT_RBAC)
        return self.launch_controller(*arguments)

    def launch_controller(self, *arguments: str) -> Server:
        """Start a controller with the rights that its account has, and wait until it listens."""
        controller_flags = (
            "--kubeconfig",
            self.kubeconfig(account=CONTROLLER_ACCOUNT),
            "--plain-listen",
            "127.0.0.1:0",
        )
        name = f"podgate-controller-{next(_numbers)}"
        flags = (*controller_flags, *arguments)
        chosen = {"program": self.program, "python": self.python}
        controller = Server.start(self.plane, name, *flags, command="controller", **chosen)
        self.controllers.append(controller)
        return controller

    def stop_controller(self, controller: Server, *, kill: bool = False) -> None:
        """Stop or kill a controller; its log must contain no traceback."""
        self.controllers.remove(controller)
        self.plane.stop_component(controller.name, kill=kill)
        assert "Traceback" not in self.log(controller), self.log(controller)

    def stop(self) -> None:
        """Delete the webhook configurations, then stop all servers and controllers."""
        self.plane.delete(*(f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations" for kind in HALVES))
        for server in list(self.servers):
            self.stop_server(server)
        for controller in list(self.controllers):
            self.stop_controller(controller)

    # --- policy ---

    def apply_policy(self, text: str, *, check: bool = True) -> str:
        """Apply a policy with kubectl; return its output."""
        # A client-side apply copies the policy into an annotation, whose maximum size is smaller.
        command = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        done = self.plane.kubectl(*command, input=json.dumps(_config_map(text)), check=check)
        return done.stdout + done.stderr

    def change_policy(self, text: str) -> None:
        """Apply a policy and wait until it is in force on every server."""
        self.plane.apply(_config_map(text))
        self.wait_for_policy(text)

    def wait_for_policy(self, text: str) -> None:
        policy_hash = load(text.encode(), Purpose.SERVE).policy.hash
        self.plane.wait(
            lambda: all(server.status()["policy"]["hash"] == policy_hash for server in self.servers),
            f"policy {policy_hash} to be in force",
            *(server.name for server in self.servers),
        )

    def read_stored(self, name: str) -> str | None:
        """Return the document in a ConfigMap of Podgate."""
        config_map = self.plane.api.get(f"{_CONFIG_MAPS}/{name}")
        return None if config_map is None else config_map["data"][KEY]

    # --- webhooks ---

    def configure(self, policy: str | None = None) -> None:
        """Apply the webhook configurations of a policy."""
        loaded_policy = load((policy or self.policy).encode(), Purpose.SERVE).policy.policy
        bundle = (self.files.folder / "ca.crt").read_bytes()
        client = ClientConfig(ServiceReference(port=self.load_balancer.port), bundle)
        self.plane.apply(*lengthen_timeouts(render_configurations(loaded_policy, client)))

    def wait_for_calls(self) -> None:
        """Wait until the API server calls both webhooks for Pods of the first namespace, and the one for policies."""
        namespace = self.namespaces[0]
        text = (self.read_stored(POLICY) or self.policy) + "# changed\n"
        patch = {"data": {KEY: text}}

        def calls_arrive() -> bool:
            before = self._call_counts()
            self.create_pod(namespace, dry_run=True, labels=_CALLED_FOR)
            content_type = "application/merge-patch+json"
            self.plane.api.request("PATCH", f"{_CONFIG_MAPS}/{POLICY}?dryRun=All", patch, content_type)
            return all(now > then for now, then in zip(self._call_counts(), before, strict=True))

        self.plane.wait(calls_arrive, f"the API server to call the webhooks for {namespace}", "kube-apiserver")

    def _call_counts(self) -> tuple[float, ...]:
        halves = [("podgate_reviews_total", f'half="{half}"') for half in ("mutate", "validate")]
        names = [*halves, ("podgate_policy_reviews_total",)]
        return tuple(sum(server.total(*name) for server in self.servers) for name in names)

    # --- Pods ---

    def create_pod(
        self,
        namespace: str,
        name: str | None = None,
        *,
        dry_run: bool = False,
        labels: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> tuple[int, Any]:
        """Create a Pod as the administrator; return the status and body of the response."""
        metadata: dict[str, Any] = {"name": name} if name else {"generateName": "web-"}
        metadata["annotations"] = annotations or {}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "labels": {"app": "web", **(labels or {})}},
            "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
        }
        query = "?dryRun=All" if dry_run else ""
        return self.plane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods{query}", pod)

    def find_tier(self, namespace: str) -> str | None:
        """Return the node selector `tier` of a new Pod; None if Podgate was not called for it, or wrote none."""
        status, pod = self.create_pod(namespace, dry_run=True)
        assert status == 201, pod
        found: str | None = pod["spec"].get("nodeSelector", {}).get("tier")
        return found

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        pod_list = self.plane.api.get(f"/api/v1/namespaces/{namespace}/pods")
        return list(pod_list["items"])


@contextmanager
def install_podgate(  # noqa: PLR0913  the parts of an installation
    plane: ControlPlane,
    files: Files,
    policy: str,
    namespaces: Sequence[str],
    *,
    load_balancer: str = "good",
    servers: int = 1,
    arguments: Sequence[str] = ("--drain", "0s"),
    namespace_labels: Mapping[str, str] | None = None,
) -> Iterator[Installation]:
    """Install Podgate with new namespaces and this policy; at the end uninstall it and empty them."""
    for namespace in namespaces:
        plane.create_namespace(namespace, **(namespace_labels or {}))
    for rights in (RBAC, WEBHOOKS_RBAC, RETRIES_RBAC, ROLLOUT_RBAC):
        plane.apply_file(rights)
    installation = Installation(plane, files, plane.load_balancers[load_balancer], policy, namespaces)
    plane.apply(_config_map(policy))
    try:
        for _ in range(servers):
            installation.start_server(*arguments)
        installation.configure()
        yield installation
    finally:
        installation.stop()
        plane.delete(*(f"{_CONFIG_MAPS}/{name}" for name in (POLICY, LAST_GOOD, OVERRIDES, configmap.ROLLOUT_STATE)))
        plane.delete(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}")
        plane.delete(_REVISIONS)
        # Each test has its own namespaces, which stay.
        for namespace in namespaces:
            plane.empty_namespace(namespace)


def _config_map(policy: str) -> dict[str, Any]:
    metadata = {"name": POLICY, "namespace": NAMESPACE}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: policy}}
