"""The objects of a workload as it creates them."""

from typing import Any

_CPU = "100m"


def build_workload(kind: str, namespace: str, name: str, replicas: int) -> dict[str, Any]:
    """Return a Deployment or StatefulSet."""
    labels = {"app": name}
    extra = {"serviceName": "none", "podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": _build_template(name), **extra}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def build_job(namespace: str, name: str, pods: int, *, is_indexed: bool) -> dict[str, Any]:
    """Return a Job all of whose Pods run at once, whatever happens to them."""
    template = _build_template(name)
    template["spec"]["restartPolicy"] = "Never"
    spec = {
        "parallelism": pods,
        "completions": pods,
        "backoffLimit": 1000,
        "completionMode": "Indexed" if is_indexed else "NonIndexed",
        "template": template,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def _build_template(name: str) -> dict[str, Any]:
    resources = {"requests": {"cpu": _CPU}}
    container = {
        "name": "c",
        "image": "i",
        "resources": resources,
        "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}],
    }
    spec = {"containers": [container], "terminationGracePeriodSeconds": 0}
    return {"metadata": {"labels": {"app": name}}, "spec": spec}
