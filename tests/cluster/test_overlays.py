"""The shipped kustomizations: built by `podgate install` as by kubectl, and accepted by a real API server."""

import os
import subprocess
from collections.abc import Iterable
from typing import Any

import pytest

from tests.cluster import manifests
from tests.cluster.binaries import binaries
from tests.cluster.controlplane import ControlPlane
from tests.cluster.go_programs import NO_COLLECTIONS
from tests.harness.yaml_documents import parse_documents
from webhook.core.installation.objects import ObjectReference, is_namespaced

OVERLAYS = sorted(f"overlays/{path.name}" for path in (manifests.FOLDER / "overlays").iterdir())
KUSTOMIZATIONS = [".", *OVERLAYS, "apiserver"]


def index_by_reference(objects: Iterable[dict[str, Any]]) -> dict[ObjectReference, dict[str, Any]]:
    return {ObjectReference.from_document(document): document for document in objects}


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_install_builds_what_kubectl_builds(kustomization: str) -> None:
    command = [binaries().kubectl, "kustomize", manifests.FOLDER / kustomization]
    environment = {**os.environ, **NO_COLLECTIONS}
    printed = subprocess.run(command, env=environment, capture_output=True, check=True, text=True).stdout
    assert index_by_reference(manifests.build_kustomization(kustomization)) == index_by_reference(
        parse_documents(printed)
    )


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_no_kustomization_has_the_policy(kustomization: str) -> None:
    assert "podgate-policy" not in {
        document["metadata"]["name"] for document in manifests.build_kustomization(kustomization)
    }


@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS)
def test_each_namespaced_object_names_its_namespace(kustomization: str) -> None:
    for document in manifests.build_kustomization(kustomization):
        assert is_namespaced(document) == ("namespace" in document["metadata"]), ObjectReference.from_document(document)


@pytest.mark.parametrize("overlay", [".", *(name for name in OVERLAYS if "cert-manager" not in name)])
def test_api_server_accepts_the_overlay(plane: ControlPlane, overlay: str) -> None:
    command = ("apply", "--server-side", "--force-conflicts", "--dry-run=server", "--validate=strict")
    plane.kubectl(*command, "-k", str(manifests.FOLDER / overlay))


def test_several_servers_are_spread_and_survive_a_drain() -> None:
    objects = manifests.build_kustomization("overlays/redis")
    deployments = [document for document in objects if document["kind"] == "Deployment"]
    budgets = [document["spec"]["selector"] for document in objects if document["kind"] == "PodDisruptionBudget"]
    assert [deployment["spec"]["selector"] for deployment in deployments] == budgets
    for deployment in deployments:
        assert deployment["spec"]["replicas"] > 1
        keys = {spread["topologyKey"] for spread in deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]}
        assert keys == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
