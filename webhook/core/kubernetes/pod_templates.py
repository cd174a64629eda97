"""Workload objects: the kinds that Pods are made from, where their template stands, and who makes the Pods."""

from typing import NamedTuple

_CONTROLLERS = "system:serviceaccount:kube-system:"


class Source(NamedTuple):
    """One kind; `controller` is the user that its Pods are made by, `maker` the kind that owns them."""

    group: str
    resource: str
    kind: str
    controller: str
    maker: str = ""
    template_at: tuple[str, ...] = ("spec", "template")

    @property
    def shown(self) -> str:
        """The kind as kubectl writes it before a name."""
        kind = self.kind.lower()
        return f"{kind}.{self.group}" if self.group else kind

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1" if self.group else "v1"


SOURCES = (
    Source("apps", "deployments", "Deployment", f"{_CONTROLLERS}replicaset-controller", "ReplicaSet"),
    Source("apps", "replicasets", "ReplicaSet", f"{_CONTROLLERS}replicaset-controller"),
    Source("apps", "statefulsets", "StatefulSet", f"{_CONTROLLERS}statefulset-controller"),
    Source("apps", "daemonsets", "DaemonSet", f"{_CONTROLLERS}daemon-set-controller"),
    Source("batch", "jobs", "Job", f"{_CONTROLLERS}job-controller"),
    Source(
        "batch",
        "cronjobs",
        "CronJob",
        f"{_CONTROLLERS}job-controller",
        "Job",
        ("spec", "jobTemplate", "spec", "template"),
    ),
    Source("", "replicationcontrollers", "ReplicationController", f"{_CONTROLLERS}replication-controller"),
)
BY_RESOURCE = {(source.group, source.resource): source for source in SOURCES}
