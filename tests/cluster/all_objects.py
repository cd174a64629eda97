"""All objects of a cluster, named as `podgate install` names them, except those that Kubernetes itself creates."""

from collections.abc import Iterator
from typing import Any

from tests.cluster.controlplane import ControlPlane
from webhook.core.installation.objects import ObjectReference

_OF_KUBERNETES = frozenset(
    {
        *("apiservice", "controllerrevision", "endpoints", "endpointslice", "event", "ipaddress", "pod", "replicaset"),
        *("componentstatus", "servicecidr"),
    }
)
"""Kinds of objects that follow others, or that users of the cluster create."""
_OF_NAMESPACES = ("serviceaccount/default", "configmap/kube-root-ca.crt")


def list_objects(plane: ControlPlane) -> dict[str, dict[str, Any]]:
    """Return the objects by kind, group and name; in namespaces of Kubernetes only those named after Podgate."""
    found = {}
    for api_version, resource in _resources(plane):
        for item in _items(plane, f"{_root(api_version)}/{resource['name']}"):
            namespace = item["metadata"].get("namespace", "")
            reference = ObjectReference(api_version, resource["kind"], item["metadata"]["name"], namespace)
            is_of_podgate = not namespace.startswith("kube-") or "podgate" in reference.name
            if is_of_podgate and str(reference) not in _OF_NAMESPACES:
                found[str(reference)] = item
    return found


def _resources(plane: ControlPlane) -> Iterator[tuple[str, dict[str, Any]]]:
    groups = [group["preferredVersion"]["groupVersion"] for group in plane.api.get("/apis")["groups"]]
    for api_version in ("v1", *groups):
        for resource in plane.api.get(_root(api_version))["resources"]:
            if "list" in resource["verbs"] and resource["kind"].lower() not in _OF_KUBERNETES:
                yield api_version, resource


def _items(plane: ControlPlane, path: str) -> list[dict[str, Any]]:
    """Return the objects of a list, once a kind that has just been defined can be listed."""
    found: list[dict[str, Any]] = []

    def are_listed() -> bool:
        status, answer = plane.api.request("GET", path)
        assert status in {200, 429}, answer
        found[:] = answer["items"] if status == 200 else []
        return status == 200

    plane.wait(are_listed, f"{path} to be listed", "kube-apiserver")
    return found


def _root(api_version: str) -> str:
    return f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
