"""Workload kinds: the path of their Pod template, and the controller that creates the Pods."""

from typing import NamedTuple

_CONTROLLERS = "system:serviceaccount:kube-system:"


class WorkloadKind(NamedTuple):
    """One kind; `controller` is the user that creates its Pods, `maker` the kind that owns them, if another."""

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
    def owner_kind(self) -> str:
        """The kind that the Pods are said to belong to: a CronJob's are those of its Jobs."""
        return "Job" if self.kind == "CronJob" else self.kind

    @property
    def makes(self) -> str:
        """The kind of the controllers that it makes, "" if it creates its Pods itself."""
        return self.maker or ("" if self.owner_kind == self.kind else self.owner_kind)

    @property
    def api_version(self) -> str:
        return f"{self.group}/v1" if self.group else "v1"


WORKLOAD_KINDS = (
    WorkloadKind("apps", "deployments", "Deployment", f"{_CONTROLLERS}replicaset-controller", "ReplicaSet"),
    WorkloadKind("apps", "replicasets", "ReplicaSet", f"{_CONTROLLERS}replicaset-controller"),
    WorkloadKind("apps", "statefulsets", "StatefulSet", f"{_CONTROLLERS}statefulset-controller"),
    WorkloadKind("apps", "daemonsets", "DaemonSet", f"{_CONTROLLERS}daemon-set-controller"),
    WorkloadKind("batch", "jobs", "Job", f"{_CONTROLLERS}job-controller"),
    WorkloadKind(
        "batch",
        "cronjobs",
        "CronJob",
        f"{_CONTROLLERS}job-controller",
        "Job",
        ("spec", "jobTemplate", "spec", "template"),
    ),
    WorkloadKind("", "replicationcontrollers", "ReplicationController", f"{_CONTROLLERS}replication-controller"),
)
BY_RESOURCE = {(source.group, source.resource): source for source in WORKLOAD_KINDS}
