"""The metrics API of a control plane: a metrics-server that reads the simulated kubelets, behind the aggregator."""

from collections.abc import Mapping
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.processes import find_free_ports
from tests.scheduling.programs import metrics_server

NAME = "metrics-server"
PATH = "/apis/metrics.k8s.io/v1beta1/nodes"
KUBELET_ANNOTATION = "metrics.k8s.io/resource-metrics-path"
USED_CPU = "kwok.x-k8s.io/usage-cpu"
"""Annotation of a Pod: the usage that its kubelet reports; without it a thousandth of a cpu."""


def kubelet_path(node: str) -> str:
    """Return the path of a node's resource metrics in kwok."""
    return f"/metrics/nodes/{node}/metrics/resource"


def measure_node(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a Node whose kubelet's metrics are those of kwok."""
    metadata, status = document["metadata"], document["status"]
    name = metadata["name"]
    addresses = {"InternalIP": "127.0.0.1", "Hostname": name}  # without one of them kwok replaces both
    listed = [{"type": kind, "address": address} for kind, address in addresses.items()]
    return {
        **document,
        "metadata": {**metadata, "annotations": {KUBELET_ANNOTATION: kubelet_path(name)}},
        "status": {**status, "addresses": listed},
    }


def start_metrics_server(plane: ControlPlane) -> None:
    """Start it, and register it; its first answer follows after two scrapes."""
    [port] = find_free_ports(1)
    kubeconfig = plane.kubeconfig
    plane.processes.start(
        NAME,
        [
            metrics_server(),
            *(
                f"--{name}={kubeconfig}"
                for name in ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
            ),
            *(f"--cert-dir={plane.folder / NAME}", "--bind-address=127.0.0.1", f"--secure-port={port}"),
            *("--kubelet-insecure-tls", f"--kubelet-port={plane.kubelet_port}"),
            *(
                "--kubelet-preferred-address-types=InternalIP",
                "--metric-resolution=10s",
                "--kubelet-request-timeout=5s",
            ),
        ],
    )
    plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": NAME, "namespace": "kube-system"},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "service": {"name": NAME, "namespace": "kube-system", "port": port},
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": True,
            },
        },
    )


def list_measured_nodes(plane: ControlPlane) -> set[str]:
    """Return the nodes of which the API has metrics: not those without Pods. An empty set while it does not answer."""
    status, answer = plane.api.request("GET", PATH)
    return {item["metadata"]["name"] for item in answer["items"]} if status == 200 else set()
