"""Kinds of other projects on a control plane: their definitions, without a controller."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.cluster.controlplane import ControlPlane

_DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def build_crd(group: str, version: str, kind: str, plural: str) -> dict[str, Any]:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, experimental-only"},
        },
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced",
            "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }


@contextmanager
def custom_kinds(plane: ControlPlane, definitions: Sequence[dict[str, Any]]) -> Iterator[None]:
    """Serve these kinds. At the end their definitions are gone, so that the next test can create them anew."""
    paths = [f"{_DEFINITIONS}/{found['metadata']['name']}" for found in definitions]
    plane.apply(*definitions)
    for path in map(_find_list_path, definitions):
        plane.wait(lambda path=path: plane.api.request("GET", path)[0] == 200, f"{path} to be served")
    try:
        yield
    finally:
        plane.delete(*paths)
        for path in paths:
            plane.wait(lambda path=path: plane.api.get(path) is None, f"{path} to be gone")


def await_storage(plane: ControlPlane) -> None:
    """Wait until the objects of each defined kind can be listed, so that its definition can be deleted.

    Before, kube-apiserver may forget a definition that is being deleted, until its next resync after five minutes.
    """
    for definition in plane.api.get(_DEFINITIONS)["items"]:
        if "deletionTimestamp" not in definition["metadata"]:
            path = _find_list_path(definition)
            plane.wait(lambda path=path: plane.api.request("GET", path)[0] == 200, f"{path} to be listed")


def _find_list_path(definition: dict[str, Any]) -> str:
    spec = definition["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
