"""Selection of the requests that a canary's candidate judges: deterministic, and growing with each step."""

from collections.abc import Iterable, Mapping
from hashlib import sha256

from msgspec import Struct

from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.controllers import BY_RESOURCE, add_cron_job, find_workload
from webhook.core.kubernetes.name_patterns import matches_any
from webhook.core.policy.matching import NAME_LABEL
from webhook.core.policy_fields.rollout import Canary, CanaryBy, CanaryStep

BUCKETS = 10_000
_ALL_PERCENT = 100
_CRON_JOB = BY_RESOURCE["batch", "cronjobs"].shown


def compute_bucket(candidate: str, key: str) -> int:
    """Return the bucket of a key, from 0 to 9999: another one under each candidate."""
    return int.from_bytes(sha256(f"{candidate}\0{key}".encode()).digest()[:8]) % BUCKETS


class Reach(Struct, frozen=True):
    """The part of the cluster that the steps of a canary have reached. A step includes those before it."""

    by: CanaryBy
    namespaces: tuple[str, ...] = ()
    percent: int = 0

    @classmethod
    def from_steps(cls, by: CanaryBy, steps: Iterable[CanaryStep]) -> "Reach":
        taken = tuple(steps)
        namespaces = tuple(pattern for step in taken for pattern in step.namespaces)
        return cls(by, namespaces, max((step.percent or 0 for step in taken), default=0))

    @classmethod
    def from_canary(cls, canary: Canary, step: int) -> "Reach":
        """Return the reach of the steps up to the one with index `step`."""
        return cls.from_steps(canary.by, canary.steps[: step + 1])

    def includes(self, candidate: str, namespace: str, key: str) -> bool:
        """Return whether a key in a namespace is reached. Raising the percentage only adds keys."""
        if self.namespaces and matches_any(self.namespaces, namespace):
            return True
        return self.percent >= _ALL_PERCENT or (
            self.percent > 0 and compute_bucket(candidate, key) < self.percent * BUCKETS // _ALL_PERCENT
        )


def build_workload_key(request: Request) -> str:
    """Return NAMESPACE/KIND/NAME of the workload that a Pod belongs to, or of the Pod itself without one.

    A workload is believed only from Kubernetes' own controllers: a tenant can write ownerReferences. A ReplicaSet of a
    Deployment counts as the Deployment, a Job of a CronJob as the CronJob.
    """
    resource, _, own_name = request.workload.name.rpartition("/") if request.workload is not None else ("", "", "")
    if resource == _CRON_JOB:  # the Jobs that it will create have no names yet
        return f"{request.namespace}/CronJob/{own_name}"
    if request.pod is None:
        return f"{request.namespace}//{own_name}" if own_name else f"{request.namespace}/"
    kind, name = add_cron_job(*find_workload(request.user, request.pod))[-1]
    return f"{request.namespace}/{kind}/{name}"


def find_service_name(request: Request, policy: CompiledPolicy, namespace_labels: Mapping[str, str]) -> str:
    """Return the service that owns a new Pod, as far as these labels say; "" for none."""
    labels = request.pod.labels if request.pod is not None else {}
    named = {NAME_LABEL: request.namespace, **namespace_labels}
    service = policy.matcher.find_owner(request.namespace, named, labels, request.owner_kind)
    return "" if service is None else service.name
