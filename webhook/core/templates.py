"""Workload objects: the kinds that Pods are made from, where their template stands, and whose word makes the Pods."""

from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.pod import Metadata, Pod, Spec

_CONTROLLERS = "system:serviceaccount:kube-system:"


class _Template(Struct, frozen=True, gc=False):
    metadata: Metadata = Metadata()
    spec: Spec = Spec()


class _Templated(Struct, frozen=True, gc=False):
    template: _Template | None = None


class _JobTemplate(Struct, frozen=True, gc=False):
    spec: _Templated = _Templated()


class _WorkloadSpec(Struct, frozen=True, gc=False, rename="camel"):
    template: _Template | None = None
    job_template: _JobTemplate = _JobTemplate()


class WorkloadObject(Struct, frozen=True, gc=False):
    """An object of any of these kinds, as far as it is read; only a CronJob's template stands deeper than others'."""

    metadata: Metadata = Metadata()
    spec: _WorkloadSpec = _WorkloadSpec()

    def pod(self, namespace: str) -> Pod | None:
        """Return the Pod that its controller would make; None without a template.

        The labels that a controller adds tell its own Pods apart: no policy goes by them.
        """
        template = self.spec.template or self.spec.job_template.spec.template
        if template is None:
            return None
        name = f"{self.metadata.name or self.metadata.generate_name}-"
        return Pod(replace(template.metadata, generate_name=name, namespace=namespace), template.spec)

    @property
    def shown_name(self) -> str:
        """What a person would call it; a generated name is not always known."""
        return self.metadata.name or f"{self.metadata.generate_name}*"


class Source(NamedTuple):
    """One kind; `controller` is the user that its Pods are made by."""

    group: str
    resource: str
    controller: str

    @property
    def shown(self) -> str:
        """The kind as kubectl writes it before a name."""
        kind = self.resource.removesuffix("s")
        return f"{kind}.{self.group}" if self.group else kind


SOURCES = (
    Source("apps", "deployments", f"{_CONTROLLERS}replicaset-controller"),
    Source("apps", "replicasets", f"{_CONTROLLERS}replicaset-controller"),
    Source("apps", "statefulsets", f"{_CONTROLLERS}statefulset-controller"),
    Source("apps", "daemonsets", f"{_CONTROLLERS}daemon-set-controller"),
    Source("batch", "jobs", f"{_CONTROLLERS}job-controller"),
    Source("batch", "cronjobs", f"{_CONTROLLERS}job-controller"),
    Source("", "replicationcontrollers", f"{_CONTROLLERS}replication-controller"),
)
BY_RESOURCE = {(source.group, source.resource): source for source in SOURCES}
