"""The Helm chart on a real API server: accepted strictly in each way of running, installed, upgraded, and removed."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chart.rendering import CHART, RELEASE, WAYS, run_helm, templates, values
from tests.cli.command_runner import podgate
from tests.cluster import manifests
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.custom_kinds import await_storage
from tests.cluster.kwok import NODES
from tests.cluster.processes import ComponentError
from tests.harness.yaml_documents import parse_documents
from webhook.core.installation.objects import ObjectReference

NOT_SERVED = ("cert-manager.io/", "monitoring.coreos.com/")
POLICY = f"/api/v1/namespaces/{NAMESPACE}/configmaps/podgate-policy"
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
_OF_NAMESPACE = f"namespaces/{NAMESPACE}"
KINDS = {
    "customresourcedefinition.apiextensions.k8s.io": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    **{
        f"{kind}.rbac.authorization.k8s.io": f"/apis/rbac.authorization.k8s.io/v1/{path}s"
        for kind, path in (
            *((name, name) for name in ("clusterrole", "clusterrolebinding")),
            *((name, f"{_OF_NAMESPACE}/{name}") for name in ("role", "rolebinding")),
        )
    },
    **{
        kind: f"/api/v1/{_OF_NAMESPACE}/{kind}s"
        for kind in ("serviceaccount", "configmap", "secret", "service", "resourcequota", "pod")
    },
    "networkpolicy.networking.k8s.io": f"/apis/networking.k8s.io/v1/{_OF_NAMESPACE}/networkpolicies",
    "poddisruptionbudget.policy": f"/apis/policy/v1/{_OF_NAMESPACE}/poddisruptionbudgets",
    **{f"{kind}.apps": f"/apis/apps/v1/{_OF_NAMESPACE}/{kind}s" for kind in ("deployment", "daemonset", "replicaset")},
}
"""Paths of all kinds that the chart has or causes, by the names that kubectl gives to their objects."""
REDIS = ("--set", "store.type=redis,store.url=redis://redis:6379/0,server.replicas=2")


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane() as running:
        running.add_nodes(*NODES)
        running.apply_file(manifests.FOLDER / "base/00-namespace.yaml")
        usual = {"serviceaccount/default", "configmap/kube-root-ca.crt"}
        running.wait(lambda: usual <= objects(running), "the objects of each namespace")
        yield running


def helm(plane: ControlPlane, *arguments: str | Path) -> str:
    """Run Helm as the administrator."""
    done = run_helm(*arguments, home=plane.folder, kubeconfig=plane.kubeconfig)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(plane: ControlPlane) -> set[str]:
    """Return the objects of all kinds that the chart has or causes."""
    names = {
        f"{kind}/{item['metadata']['name']}" for kind, path in KINDS.items() for item in plane.api.get(path)["items"]
    }
    return {name for name in names if not name.startswith("clusterrole") or "podgate" in name}


def uninstall(plane: ControlPlane) -> None:
    await_storage(plane)
    helm(plane, "uninstall", RELEASE)


def wait_for_objects(plane: ControlPlane, expected: set[str]) -> None:
    """Wait until only these exist: objects of a release are deleted in the background."""
    found: set[str] = set()

    def are_expected() -> bool:
        nonlocal found
        found = objects(plane)
        return found == expected

    try:
        plane.wait(are_expected, "the release's objects to be deleted")
    except ComponentError as error:
        raise AssertionError(f"left over: {found - expected}, missing: {expected - found}") from error


def write_policy_options(folder: Path) -> tuple[str, ...]:
    """Return the options for a policy in the release."""
    path = folder / "policy.yaml"
    path.write_text(manifests.policy())
    return ("--set", "policy.create=true", "--set-file", f"policy.document={path}")


def deployments(plane: ControlPlane) -> dict[str, Any]:
    return {deployment["metadata"]["name"]: deployment["spec"] for deployment in plane.api.get(DEPLOYMENTS)["items"]}


def policy(plane: ControlPlane) -> str:
    text: str = plane.api.get(POLICY)["data"]["policy.yaml"]
    return text


@pytest.mark.parametrize("way", WAYS)
def test_api_server_accepts_every_field(plane: ControlPlane, way: str) -> None:
    query = "dryRun=All&fieldValidation=Strict&fieldManager=helm&force=true"
    for document in parse_documents(templates(plane.folder, *values(way))):
        if not document["apiVersion"].startswith(NOT_SERVED):
            path = f"{ObjectReference.from_document(document).path}?{query}"
            status, response = plane.api.request("PATCH", path, document, "application/apply-patch+yaml")
            assert status in {200, 201}, response


def test_release_is_installed_upgraded_and_removed(plane: ControlPlane, tmp_path: Path) -> None:
    """An upgrade changes no policy, and nothing but the policy is left at the end."""
    before = objects(plane)
    create = write_policy_options(tmp_path)

    notes = helm(plane, "install", RELEASE, CHART, *create)
    assert "kubectl apply --server-side -f -" in notes, "the webhooks remain to be created"
    assert policy(plane) == manifests.policy()
    assert {*deployments(plane)} == {"podgate"}
    assert "clusterrolebinding.rbac.authorization.k8s.io/podgate-in-memory" in objects(plane)

    edited = manifests.policy().replace("payment-api", "edited-by-its-user")
    plane.kubectl(
        "patch", "configmap", "podgate-policy", "-n", NAMESPACE, "-p", json.dumps({"data": {"policy.yaml": edited}})
    )
    helm(plane, "upgrade", RELEASE, CHART, *create, *REDIS)
    assert policy(plane) == edited
    assert {name: spec["replicas"] for name, spec in deployments(plane).items()} == {
        "podgate": 2,
        "podgate-controller": 2,
    }
    assert "clusterrolebinding.rbac.authorization.k8s.io/podgate-in-memory" not in objects(plane)

    uninstall(plane)
    wait_for_objects(plane, before | {"configmap/podgate-policy"})
    assert policy(plane) == edited
    assert before <= objects(plane)


def test_release_is_left_to_helm_by_install(plane: ControlPlane, tmp_path: Path) -> None:
    before = objects(plane)
    helm(plane, "install", RELEASE, CHART)
    plane.wait(lambda: any(name.startswith("pod/") for name in objects(plane) - before), "the Pod of the Deployment")
    installed = objects(plane)
    for options in ((), ("--force-conflicts",)):
        done = podgate("install", "--kubeconfig", plane.kubeconfig, "--pki", tmp_path / "pki", *options)
        assert (done.code, done.out) == (2, "")
        assert done.error.startswith("deployment.apps/podgate: metadata.labels[app.kubernetes.io/managed-by]: 'Helm'")
    assert objects(plane) == installed
    uninstall(plane)
    wait_for_objects(plane, before)


def test_release_takes_over_applied_manifests(plane: ControlPlane) -> None:
    before = objects(plane)
    plane.kubectl("apply", "-k", str(manifests.FOLDER))
    helm(plane, "install", RELEASE, CHART, "--take-ownership", "--force-conflicts")
    uninstall(plane)
    wait_for_objects(plane, before)


def test_existing_policy_is_not_replaced_by_an_installation(plane: ControlPlane, tmp_path: Path) -> None:
    live = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "podgate-policy", "namespace": NAMESPACE}}
    plane.apply({**live, "data": {"policy.yaml": "kind: Policy\n"}})
    create = write_policy_options(tmp_path)
    rendered = parse_documents(helm(plane, "template", RELEASE, CHART, *create, "--dry-run=server"))
    assert "podgate-policy" not in {document["metadata"]["name"] for document in rendered}
    assert "podgate-policy" in {
        document["metadata"]["name"] for document in parse_documents(templates(tmp_path, *create))
    }
