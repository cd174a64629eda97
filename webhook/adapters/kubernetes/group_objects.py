"""Sizes of groups: how many Pods a Job, a JobSet or a PodGroup makes or asks for at once."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.requests import ApiError, send_request
from webhook.core.groups.completeness import Size
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.policy_fields import GroupSource

_REQUEST_SECONDS = 5.0
_EXCLUSIVE, _BY_NODE_SELECTOR = (f"alpha.jobset.sigs.k8s.io/{key}" for key in ("exclusive-topology", "node-selector"))
_ANNOTATE = "annotate its Pods with podgate.io/group and podgate.io/group-size"


class _Metadata(Struct, frozen=True):
    uid: str = ""
    annotations: dict[str, str] | None = None


class _JobSpec(Struct, frozen=True):
    parallelism: int | None = None
    completions: int | None = None


class _JobStatus(Struct, frozen=True, rename="camel"):
    succeeded: int | None = None
    failed_indexes: str | None = None


class _Job(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _JobSpec = _JobSpec()
    status: _JobStatus = _JobStatus()


class _JobTemplate(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _JobSpec = _JobSpec()


class _ReplicatedJob(Struct, frozen=True, rename="camel"):
    replicas: int | None = None
    depends_on: tuple[msgspec.Raw, ...] | None = None
    template: _JobTemplate = _JobTemplate()


class _StartupPolicy(Struct, frozen=True, rename="camel"):
    startup_policy_order: str = ""


class _JobSetSpec(Struct, frozen=True, rename="camel"):
    replicated_jobs: tuple[_ReplicatedJob, ...] = ()
    startup_policy: _StartupPolicy | None = None


class _JobSet(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _JobSetSpec = _JobSetSpec()


class _Gang(Struct, frozen=True, rename="camel"):
    min_count: int | None = None


class _SchedulingPolicy(Struct, frozen=True):
    gang: _Gang | None = None


class _PodGroupSpec(Struct, frozen=True, rename="camel"):
    min_member: int | None = None
    scheduling_policy: _SchedulingPolicy | None = None


class _PodGroup(Struct, frozen=True):
    """A PodGroup of any of the three API groups that have such a kind."""

    spec: _PodGroupSpec = _PodGroupSpec()


class _Kind(NamedTuple):
    """Where objects of a source are, in the versions to try, and how their size is read."""

    kind: str
    group: str
    versions: Sequence[str]
    resource: str
    read: Callable[[bytes, str], Size]


class GroupObjectReader:
    """A `ports.GroupObjects`."""

    def __init__(self, client: ApiClient, *, request_seconds: float = _REQUEST_SECONDS) -> None:
        self._client = client
        self._request_seconds = request_seconds

    async def read_size(self, source: GroupSource, namespace: str, name: str, owner: str) -> Size:
        kind = _KINDS[source]
        shown, gone = f"{kind.kind} {namespace}/{name}", False
        for version in kind.versions:
            path = f"/apis/{kind.group}/{version}/namespaces/{namespace}/{kind.resource}/{quote(name, safe='')}"
            try:
                found = kind.read(await send_request(self._client, "GET", path, self._request_seconds), owner)
            except ApiError as error:
                if not error.is_absent:
                    right = f"get {kind.resource}.{kind.group} in all namespaces"
                    return Size(problem=f"its {shown} cannot be read: {error.describe(right)}")
                gone = True
            except UNREADABLE_JSON as error:
                return Size(problem=f"its {shown} is not understood: {error}")
            else:
                return Size(found.pods, found.problem and f"its {shown} {found.problem}")
        return Size(problem=f"its {shown} does not exist: create it, or {_ANNOTATE}" if gone else "")


def _read_job(body: bytes, owner: str) -> Size:
    job = decode_object(body, _Job)
    if job.metadata.uid != owner:
        return Size(problem="is another one than that of its Pods: they are being deleted")
    ended = (job.status.succeeded or 0) + _count_indexes(job.status.failed_indexes or "")
    return Size(_count_pods(job.spec, ended))


def _count_indexes(ranges: str) -> int:
    """Return how many indexes are in a text such as `1,3-5`."""
    bounds = [part.split("-") for part in ranges.split(",") if part]
    return sum(int(its[-1]) - int(its[0]) + 1 for its in bounds if all(map(str.isdecimal, its)))


def _count_pods(spec: _JobSpec, ended: int = 0) -> int:
    """Return how many Pods a Job runs at once; `ended` is how many completions need no further Pod."""
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    return parallelism if spec.completions is None else max(0, min(parallelism, spec.completions - ended))


def _read_job_set(body: bytes, owner: str) -> Size:
    job_set = decode_object(body, _JobSet)
    if owner and job_set.metadata.uid != owner:
        return Size(problem="is another one than that of its Pods: they are being deleted")
    startup = job_set.spec.startup_policy
    is_in_order = startup is not None and startup.startup_policy_order == "InOrder"
    if is_in_order or any(jobs.depends_on for jobs in job_set.spec.replicated_jobs):
        return Size(problem=f"starts its Jobs one after another, so that they cannot wait for each other: {_ANNOTATE}")
    if any(_follows_leader(job_set.metadata, jobs.template) for jobs in job_set.spec.replicated_jobs):
        remedy = f"create it with the annotation {_BY_NODE_SELECTOR}, or leave JobSet and Job out of groups.from"
        return Size(problem=f"makes the other Pods of a Job after the first one is on a node ({_EXCLUSIVE}): {remedy}")
    counts = (
        (1 if jobs.replicas is None else jobs.replicas) * _count_pods(jobs.template.spec)
        for jobs in job_set.spec.replicated_jobs
    )
    return Size(sum(counts))


def _follows_leader(metadata: _Metadata, template: _JobTemplate) -> bool:
    """Whether JobSet's webhook denies the Pods of a Job until its first one, in the same topology, is scheduled."""
    if _count_pods(template.spec) <= 1:
        return False
    levels = (metadata.annotations or {}, template.metadata.annotations or {})
    exclusive = [annotations for annotations in levels if _EXCLUSIVE in annotations]
    return bool(exclusive) and not any(_BY_NODE_SELECTOR in annotations for annotations in exclusive)


def _read_pod_group(body: bytes, _: str) -> Size:
    """Return the size of a PodGroup; 1 of one that is no gang."""
    spec = decode_object(body, _PodGroup).spec
    if spec.scheduling_policy is not None:
        gang = spec.scheduling_policy.gang
        return Size(max(1, (gang.min_count if gang is not None else None) or 1))
    return Size(max(1, spec.min_member or 1))


_KINDS: Mapping[GroupSource, _Kind] = {
    GroupSource.JOB: _Kind("Job", "batch", ("v1",), "jobs", _read_job),
    GroupSource.JOB_SET: _Kind("JobSet", "jobset.x-k8s.io", ("v1alpha2",), "jobsets", _read_job_set),
    GroupSource.POD_GROUP: _Kind(
        "PodGroup", "scheduling.k8s.io", ("v1beta1", "v1alpha3", "v1alpha2"), "podgroups", _read_pod_group
    ),
    GroupSource.COSCHEDULING: _Kind("PodGroup", "scheduling.x-k8s.io", ("v1alpha1",), "podgroups", _read_pod_group),
    GroupSource.VOLCANO: _Kind("PodGroup", "scheduling.volcano.sh", ("v1beta1",), "podgroups", _read_pod_group),
}
