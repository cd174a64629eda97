"""Helpers of the `check` tests that other tests use, too."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import yaml

from tests.cli.command_runner import Done, podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import MANIFESTS, Installation, install_podgate
from webhook.core.document import Purpose, load
from webhook.core.webhook_configurations import ClientConfig, ServiceReference, render_configurations

SHOP, WEB = "check-shop", "check-web"


POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: shop
  match: {{namespaces: [{SHOP}], podSelector: {{matchLabels: {{app: shop}}}}}}
  placement: {{nodeSelector: {{kubernetes.io/os: linux}}}}
- name: web
  match: {{namespaces: [{WEB}]}}
  failureMode: Closed
  quota: {{windows: [{{window: 30m, hard: {{pods: 1000}}}}]}}
"""


_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


_SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


_SECOND = {"app.kubernetes.io/name": "podgate-b"}
"""Labels of the Pods of a second Deployment."""


_SECONDS = 10
"""Timeout of the webhooks: the longest that is no finding, so that a slow machine fails no call."""


def check(installation: Installation, *arguments: str) -> Done:
    """Check through the server that was started last."""
    server = f"http://{installation.servers[-1].plain}"
    return podgate("check", "--kubeconfig", installation.plane.kubeconfig, "--server", server, *arguments)


def list_findings(installation: Installation) -> dict[str, list[dict[str, Any]]]:
    """Return the findings by code."""
    document = json.loads(check(installation, "-o", "json").out)
    checks = [check for section in document["sections"] for check in section["checks"]]
    return {check["code"]: check["findings"] for check in checks if check["findings"]}


def render_slow_configurations(
    installation: Installation, policy: str = POLICY, **client: Any
) -> tuple[dict[str, Any], ...]:
    bundle = (installation.files.folder / "ca.crt").read_bytes()
    loaded = load(policy.encode(), Purpose.SERVE).policy
    target = ClientConfig(ServiceReference(port=client.get("port", installation.load_balancer.port)), bundle)
    found = render_configurations(loaded.policy, target, loaded.hash)
    for webhook in (webhook for configuration in found for webhook in configuration["webhooks"]):
        webhook["timeoutSeconds"] = _SECONDS
    return found


def secret(plane: ControlPlane, name: str, **data: bytes) -> None:
    encoded = {key.replace("_", "."): base64.b64encode(value).decode() for key, value in data.items()}
    metadata = {"name": name, "namespace": NAMESPACE}
    plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded})


def secrets(plane: ControlPlane, identities: Identities) -> None:
    """Store the Secrets of the server and of the API server."""
    caller = identities.callers["good"]
    assert caller.certificate is not None
    assert caller.token is not None
    secret(plane, "podgate-tls", tls_crt=identities.files.pki.paths.certificate.read_bytes())
    secret(plane, "podgate-apiserver", tls_crt=caller.certificate.read_bytes(), token=caller.token.read_bytes())


@pytest.fixture(scope="module")
def healthy(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    """Install Podgate as by its manifests; the server is a process beside the simulated Pods of its Deployment."""
    with install_podgate(plane, identities.files, POLICY, [SHOP, WEB]) as installation:
        plane.apply(*render_slow_configurations(installation))
        secrets(plane, identities)
        plane.apply_file(MANIFESTS / "base" / "30-deployment.yaml")
        yield installation
        plane.delete(*(f"{_SECRETS}/{name}" for name in ("podgate-tls", "podgate-apiserver")))
        plane.delete(f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/podgate")


@contextmanager
def webhooks(installation: Installation, *configurations: dict[str, Any]) -> Iterator[None]:
    """Apply webhook configurations instead of the installation's, until the end of the block."""
    installation.plane.apply(*configurations)
    try:
        yield
    finally:
        installation.plane.apply(*render_slow_configurations(installation))


def service(name: str, selector: dict[str, str]) -> dict[str, Any]:
    spec = {"selector": selector, "ports": [{"port": 443}]}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def foreign(kind: str, name: str, **fields: Any) -> dict[str, Any]:
    """Return the configuration of another webhook, which is never called."""
    webhook = {
        "name": f"{name}.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Ignore",
        "namespaceSelector": {"matchLabels": {"nothing-has": "this"}},
        "matchConditions": [{"name": "never", "expression": "false"}],
    }
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": f"{kind}WebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [webhook | fields],
    }


def manifest(name: str) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all((MANIFESTS / "base" / name).read_text()) if document]


def second_server() -> dict[str, Any]:
    """Return a Deployment of servers on Redis, with another image."""
    [deployment] = manifest("30-deployment.yaml")
    template = deployment["spec"]["template"]
    deployment["metadata"]["name"] = "podgate-b"
    deployment["spec"]["selector"]["matchLabels"] = template["metadata"]["labels"] = _SECOND
    template["spec"]["containers"][0] |= {"image": "podgate:0.0.9", "args": ["--store=redis://redis:6379/0"]}
    return deployment


def budget() -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "podgate-b", "namespace": NAMESPACE},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": _SECOND}},
    }


def plant(plane: ControlPlane, name: str, key: str, text: str) -> None:
    """Store a document once the API server has noticed that the webhook that would refuse it is deleted."""
    metadata = {"name": name, "namespace": NAMESPACE}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {key: text}}
    path = f"{_CONFIG_MAPS}/{name}?fieldManager=kubectl&force=true"
    kind = "application/apply-patch+yaml"
    plane.wait(lambda: plane.api.request("PATCH", path, document, kind)[0] in {200, 201}, f"{name} to be stored")
