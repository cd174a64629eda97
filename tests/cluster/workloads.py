"""Helpers of the `workloads` tests that other tests use, too."""

from collections.abc import Mapping
from typing import Any

KINDS = {
    "Deployment": "apps/v1",
    "ReplicaSet": "apps/v1",
    "StatefulSet": "apps/v1",
    "DaemonSet": "apps/v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "ReplicationController": "v1",
}


def workload(kind: str, name: str, pod_spec: Mapping[str, Any], **spec: Any) -> dict[str, Any]:
    labels = {"app": name}
    restart = {"restartPolicy": "Never"} if "Job" in kind else {}
    template = {"metadata": {"labels": labels}}
    template["spec"] = {"containers": [{"name": "c", "image": "i"}], **restart, **pod_spec}
    body: dict[str, Any] = {"template": template, **spec}
    if kind == "CronJob":
        body = {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": template}}, **spec}
    elif kind == "ReplicationController":
        body["selector"] = labels
    elif kind != "Job":
        body["selector"] = {"matchLabels": labels}
    return {"apiVersion": KINDS[kind], "kind": kind, "metadata": {"name": name}, "spec": body}
