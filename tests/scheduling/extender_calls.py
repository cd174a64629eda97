"""Helpers of the `extender_calls` tests that other tests use, too."""

from typing import Any

from webhook.core.scheduling.pod_fingerprint import ANNOTATION, ATTRIBUTE, METHOD_ATTRIBUTE

WHOLE = {"cpu": "16", "memory": "64Gi"}
"""Allocatable in each zone."""


def topology(
    node: str,
    *cpus: str,
    scope: str = "container",
    memory: str = "64Gi",
    fingerprint: str = "",
    is_legacy: bool = False,
) -> dict[str, Any]:
    """Return a report; `fingerprint` is that of its Pods. `is_legacy`: it is in the annotation of older exporters."""
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": name, "capacity": WHOLE[name], "allocatable": WHOLE[name], "available": amount}
                for name, amount in (("cpu", cpu), ("memory", memory))
            ],
        }
        for number, cpu in enumerate(cpus)
    ]
    attributes = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": scope}
    if fingerprint and not is_legacy:
        attributes |= {ATTRIBUTE: fingerprint, METHOD_ATTRIBUTE: "all"}
    annotations = {"annotations": {ANNOTATION: fingerprint}} if is_legacy else {}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node, **annotations},
        "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
        "zones": zones,
    }
