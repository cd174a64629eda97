"""Podgate in a cluster, as its manifests install it: policy in a ConfigMap, servers, webhook configurations."""

import itertools
import json
import time
from collections.abc import Iterator, Sequence
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
from webhook.core.webhook_configurations import ClientConfig, ServiceReference, configurations

MANIFESTS = Path(__file__).parents[2] / "manifests"
RBAC = MANIFESTS / "10-rbac.yaml"
CONTROLLER_RBAC = MANIFESTS / "redis" / "11-rbac-controller.yaml"
CERTIFICATES_RBAC = MANIFESTS / "certificates" / "12-rbac-certificates.yaml"
"""Of a controller that keeps certificates."""
BUNDLES_RBAC = CERTIFICATES_RBAC.with_name("14-rbac-bundles.yaml")
"""Of one that writes whom the API server trusts, too."""
SERVICE_ACCOUNT, CONTROLLER_ACCOUNT = "podgate", "podgate-controller"
LEASE = "podgate-leader"
HALVES = ("mutating", "validating")
POLICY, LAST_GOOD, KEY = configmap.NAME, configmap.LAST_GOOD, configmap.KEY
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_numbers = itertools.count(1)


@dataclass
class Installation:
    """What `installed` made; `load_balancer` is the API server's way to the servers."""

    plane: ControlPlane
    files: Files
    load_balancer: LoadBalancer
    policy: str
    namespaces: Sequence[str] = ()
    program: Sequence[str | Path] = PODGATE
    """What runs in place of `python -m webhook`."""
    servers: list[Server] = field(default_factory=list)
    controllers: list[Server] = field(default_factory=list)

    # --- servers ---

    def start_server(self, *arguments: str, kubeconfig: Path | None = None) -> Server:
        """Start one under the rights of the manifests, and wait until it listens."""
        name = f"podgate-{next(_numbers)}"
        server_flags = self.files.arguments()[2:]  # the policy comes from the cluster
        whose = ("--kubeconfig", kubeconfig or self.kubeconfig())
        server = Server.start(self.plane, name, *server_flags, *whose, *arguments, program=self.program)
        self.servers.append(server)
        self.route()
        return server

    def stop_server(self, server: Server, *, kill: bool = False, pre_stop_seconds: float = 0.0) -> None:
        """End one as Kubernetes would: first it gets no more new connections, then SIGTERM; its log must be clean.

        `pre_stop_seconds` is the Deployment's preStop: whoever was on the way to it when it left the Service arrives.
        """
        self.servers.remove(server)
        self.route()
        time.sleep(pre_stop_seconds)
        self.plane.stop_component(server.name, kill=kill)
        assert "Traceback" not in self.log(server), self.log(server)

    def route(self) -> None:
        self.load_balancer.targets = [one.target for one in self.servers]

    def log(self, server: Server, lines: int = 1000) -> str:
        return self.plane.log(server.name, lines)

    def kubeconfig(self, server: str | None = None, *, account: str = SERVICE_ACCOUNT) -> Path:
        """Return a kubeconfig of the service account; `server` is for a way to the API server of one's own."""
        token = self.plane.token_of(account, NAMESPACE)
        return self.plane.kubeconfig_for(account, token=token, server=server)

    # --- controllers ---

    def start_controller(self, *arguments: str) -> Server:
        """Start one under the rights of the manifests, and wait until it leads or stands by."""
        for rights in (CONTROLLER_RBAC, CERTIFICATES_RBAC, BUNDLES_RBAC):
            self.plane.apply_file(rights)
        controller_flags = (
            "--kubeconfig",
            self.kubeconfig(account=CONTROLLER_ACCOUNT),
            "--plain-listen",
            "127.0.0.1:0",
        )
        name = f"podgate-controller-{next(_numbers)}"
        found = Server.start(
            self.plane, name, *controller_flags, *arguments, command="controller", program=self.program
        )
        self.controllers.append(found)
        return found

    def stop_controller(self, found: Server, *, kill: bool = False) -> None:
        """End one as Kubernetes would, or as a crash would; its log must be clean."""
        self.controllers.remove(found)
        self.plane.stop_component(found.name, kill=kill)
        assert "Traceback" not in self.log(found), self.log(found)

    # --- policy ---

    def apply_policy(self, text: str, *, check: bool = True) -> str:
        """Apply a policy as its owner would; return what kubectl said."""
        config_map = json.dumps(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": POLICY, "namespace": NAMESPACE},
                "data": {KEY: text},
            }
        )
        # A client-side apply keeps a second copy in an annotation, which holds less than a ConfigMap does.
        how = ("apply", "--server-side", "--force-conflicts", "-f", "-")
        done = self.plane.kubectl(*how, input=config_map, check=check)
        return done.stdout + done.stderr

    def change_policy(self, text: str) -> None:
        """Apply a policy and wait until every server judges by it."""
        self.apply_policy(text)
        self.wait_for_policy(text)

    def wait_for_policy(self, text: str) -> None:
        wanted = load(text.encode(), Purpose.SERVE).policy.hash
        self.plane.wait(
            lambda: all(one.status()["policy"]["hash"] == wanted for one in self.servers),
            f"policy {wanted} to be in force",
            *(one.name for one in self.servers),
        )

    def stored(self, name: str) -> str | None:
        """Return the document in a ConfigMap of ours."""
        found = self.plane.api.get(f"{_CONFIG_MAPS}/{name}")
        return None if found is None else found["data"][KEY]

    # --- webhooks ---

    def configure(self, policy: str | None = None) -> None:
        """Apply the webhook configurations of a policy, and wait until the API server goes by them."""
        judged = load((policy or self.policy).encode(), Purpose.SERVE).policy.policy
        bundle = (self.files.folder / "ca.crt").read_bytes()
        client = ClientConfig(ServiceReference(port=self.load_balancer.port), bundle)
        rendered = configurations(judged, client)
        for webhook in (one for configuration in rendered for one in configuration["webhooks"]):
            webhook["timeoutSeconds"] = 30  # an answer that is late on a busy machine is still one
        self.plane.apply(*rendered)

    def wait_asked(self) -> None:
        """Wait until the API server asks about Pods of the first namespace, in both halves, and about policies."""
        namespace = self.namespaces[0]
        text = (self.stored(POLICY) or self.policy) + "# changed\n"
        patch = {"data": {KEY: text}}

        def asked() -> bool:
            before = self._asked()
            self.create_pod(namespace, dry_run=True)
            content_type = "application/merge-patch+json"
            self.plane.api.request("PATCH", f"{_CONFIG_MAPS}/{POLICY}?dryRun=All", patch, content_type)
            return all(now > then for now, then in zip(self._asked(), before, strict=True))

        self.plane.wait(asked, f"the API server to ask about {namespace}", "kube-apiserver")

    def _asked(self) -> tuple[float, ...]:
        halves = [("podgate_reviews_total", f'half="{half}"') for half in ("mutate", "validate")]
        names = [*halves, ("podgate_policy_reviews_total",)]
        return tuple(sum(one.total(*name) for one in self.servers) for name in names)

    # --- Pods ---

    def create_pod(
        self, namespace: str, name: str | None = None, *, dry_run: bool = False, **spec: Any
    ) -> tuple[int, Any]:
        """Create a Pod as the administrator; return the API server's status and answer."""
        metadata = {"name": name} if name else {"generateName": "web-"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**metadata, "labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
        }
        query = "?dryRun=All" if dry_run else ""
        return self.plane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods{query}", pod)

    def pods(self, namespace: str) -> list[dict[str, Any]]:
        found = self.plane.api.get(f"/api/v1/namespaces/{namespace}/pods")
        return list(found["items"])


@contextmanager
def installed(
    plane: ControlPlane,
    files: Files,
    policy: str,
    namespaces: Sequence[str],
    *,
    load_balancer: str = "good",
    servers: int = 1,
    arguments: Sequence[str] = ("--drain", "0s"),
) -> Iterator[Installation]:
    """Install Podgate for some new namespaces and this policy; take it all away again."""
    for namespace in namespaces:
        plane.create_namespace(namespace)
    plane.apply_file(RBAC)
    found = Installation(plane, files, plane.load_balancers[load_balancer], policy, namespaces)
    found.apply_policy(policy)
    try:
        for _ in range(servers):
            found.start_server(*arguments)
        found.configure()
        yield found
    finally:
        plane.delete(*(f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations" for kind in HALVES))
        for server in list(found.servers):
            found.stop_server(server)
        for controller in list(found.controllers):
            found.stop_controller(controller)
        plane.delete(*(f"{_CONFIG_MAPS}/{name}" for name in (POLICY, LAST_GOOD)))
        # It takes a while: a test has namespaces of its own.
        plane.delete(*(f"/api/v1/namespaces/{namespace}" for namespace in namespaces))
