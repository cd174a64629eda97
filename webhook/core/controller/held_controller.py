"""Workload controllers that create Pods: their template, how many Pods they lack, and why their Pods were denied."""

from typing import NamedTuple

from msgspec import Struct

from webhook.core.diagnosis.objects import OwnerSpec, ReportedEvent, ReportedOwner
from webhook.core.diagnosis.refusals import parse_failure
from webhook.core.findings import Code
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS
from webhook.core.kubernetes.pod import OwnerReference, Pod, PodMetadata, PodSpec
from webhook.core.placement import SERVICE_LABEL

CREATING_KINDS = {kind.kind: kind for kind in WORKLOAD_KINDS if not kind.maker}
"""Kinds whose controllers create Pods themselves, by name."""

_HOLDING = frozenset({Code.QUOTA_EXCEEDED, Code.BREAKER_OPEN, Code.BREAKER_PROBING, Code.STORE_UNAVAILABLE})
"""Denials that end without a change of the workload or of the policy."""


class CreatedPodTemplate(Struct, frozen=True):
    metadata: PodMetadata = PodMetadata()
    spec: PodSpec = PodSpec()


class TemplatedSpec(OwnerSpec, frozen=True, rename="camel"):
    template: CreatedPodTemplate | None = None
    pod_management_policy: str | None = None


class CreatingController(ReportedOwner, frozen=True):
    """A controller as read from the API server. A list or a subresource may leave out its kind."""

    spec: TemplatedSpec = TemplatedSpec()

    @property
    def missing(self) -> int:
        """How many Pods it would create now."""
        lacks = 0 if self.metadata.deletion_timestamp else max(0, self.wanted - self.present)
        one_by_one = self.kind == "StatefulSet" and self.spec.pod_management_policy != "Parallel"
        return min(lacks, 1) if one_by_one else lacks

    @property
    def pod(self) -> Pod:
        """The Pod that it creates. Admission replaces a service label that the template has."""
        template = self.spec.template or CreatedPodTemplate()
        labels = {key: value for key, value in (template.metadata.labels or {}).items() if key != SERVICE_LABEL}
        owner = OwnerReference(kind=self.kind, name=self.metadata.name, uid=self.metadata.uid, controller=True)
        metadata = PodMetadata(
            namespace=self.metadata.namespace,
            labels=labels,
            annotations=template.metadata.annotations,
            owner_references=(owner,),
        )
        return Pod(metadata, template.spec)


class ControllerReference(NamedTuple):
    """One controller object; another object of the same name has another uid."""

    kind: str
    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def identify_held_controller(event: ReportedEvent) -> tuple[ControllerReference, bool] | None:
    """Return the controller that an Event is about, and whether quota, breaker or store denied its newest Pod.

    None for an Event about another kind of object. Whoever may create Events can name any controller of the namespace.
    """
    subject = event.involved_object
    if subject.kind not in CREATING_KINDS or not subject.uid:
        return None
    failure = parse_failure(event.at, event.message or "")
    is_held = failure.is_ours and failure.code in _HOLDING
    return ControllerReference(subject.kind, subject.namespace, subject.name, subject.uid), is_held
