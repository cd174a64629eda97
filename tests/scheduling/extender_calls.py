"""Helpers of the `extender_calls` tests that other tests use, too."""

from typing import Any


def topology(node: str, *cpus: str, scope: str = "container", memory: str = "64Gi") -> dict[str, Any]:
    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                {"name": name, "capacity": cpu, "allocatable": cpu, "available": amount}
                for name, cpu, amount in (("cpu", cpu, cpu), ("memory", memory, memory))
            ],
        }
        for number, cpu in enumerate(cpus)
    ]
    attributes = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": scope}
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": node},
        "attributes": [{"name": name, "value": value} for name, value in attributes.items()],
        "zones": zones,
    }
