"""Kinds that are not Kubernetes' own: where their objects hold Pod templates, and the Pods that come of them.

Of most kinds only the template is known. Pods of a JobSet, a LeaderWorkerSet and a Volcano Job also get what tells
their group. Sources: `constructJob` of JobSet, `pod_webhook.go` of LWS, `createJobPod` of Volcano.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from webhook.core.kubernetes.controllers import BY_RESOURCE
from webhook.core.kubernetes.label_constraints import RESOLVED, UnresolvedLabel, UnresolvedLabels
from webhook.core.workloads.jobs import JOB_NAME_LABELS
from webhook.core.workloads.simulate import simulate
from webhook.core.workloads.workload import HASH, Json, read_mapping, read_whole

Path = tuple[str | int, ...]
TemplatePaths = Mapping[tuple[str, str], Sequence[str]]
"""Paths of Pod templates by API group and kind, as `spec.tasks.*.template`: `*` is each entry of a list or mapping."""

_JOB_SET = ("jobset.x-k8s.io", "JobSet")
_LEADER_WORKER_SET = ("leaderworkerset.x-k8s.io", "LeaderWorkerSet")
_VOLCANO_JOB = ("batch.volcano.sh", "Job")
_ROLLOUT = ("argoproj.io", "Rollout")
_RAY_CLUSTER = ("headGroupSpec.template", "workerGroupSpecs.*.template")
_KUBEFLOW = {
    "JAXJob": "jaxReplicaSpecs",
    "MPIJob": "mpiReplicaSpecs",
    "PaddleJob": "paddleReplicaSpecs",
    "PyTorchJob": "pytorchReplicaSpecs",
    "TFJob": "tfReplicaSpecs",
    "XGBoostJob": "xgbReplicaSpecs",
}
KNOWN_TEMPLATES: TemplatePaths = {
    _JOB_SET: ("spec.replicatedJobs.*.template.spec.template",),
    _LEADER_WORKER_SET: (
        "spec.leaderWorkerTemplate.leaderTemplate",
        "spec.leaderWorkerTemplate.workerTemplate",
    ),
    ("disaggregatedset.x-k8s.io", "DisaggregatedSet"): (
        "spec.roles.*.spec.leaderWorkerTemplate.leaderTemplate",
        "spec.roles.*.spec.leaderWorkerTemplate.workerTemplate",
    ),
    ("agents.x-k8s.io", "Sandbox"): ("spec.podTemplate",),
    _VOLCANO_JOB: ("spec.tasks.*.template",),
    ("batch.volcano.sh", "CronJob"): ("spec.jobTemplate.spec.tasks.*.template",),
    ("flow.volcano.sh", "JobTemplate"): ("spec.tasks.*.template",),
    ("ray.io", "RayCluster"): tuple(f"spec.{path}" for path in _RAY_CLUSTER),
    ("ray.io", "RayJob"): (*(f"spec.rayClusterSpec.{path}" for path in _RAY_CLUSTER), "spec.submitterPodTemplate"),
    ("ray.io", "RayService"): tuple(f"spec.rayClusterConfig.{path}" for path in _RAY_CLUSTER),
    **{("kubeflow.org", kind): (f"spec.{field}.*.template",) for kind, field in _KUBEFLOW.items()},
    ("trainer.kubeflow.org", "TrainingRuntime"): ("spec.template.spec.replicatedJobs.*.template.spec.template",),
    ("trainer.kubeflow.org", "ClusterTrainingRuntime"): ("spec.template.spec.replicatedJobs.*.template.spec.template",),
    _ROLLOUT: ("spec.template",),
    ("sparkoperator.k8s.io", "SparkApplication"): ("spec.driver.template", "spec.executor.template"),
    ("sparkoperator.k8s.io", "ScheduledSparkApplication"): (
        "spec.template.driver.template",
        "spec.template.executor.template",
    ),
}

_REPLICATED_JOBS, _TASKS = ("spec", "replicatedJobs"), ("spec", "tasks")
_LWS = "leaderworkerset.sigs.k8s.io/"
_UID = "00000000-0000-4000-8000-000000000000"
_VOLCANO_USER = "system:serviceaccount:volcano-system:volcano-controllers"
_SUFFIX = "x7k2p"


class CustomPod(Struct, frozen=True, gc=False):
    """A Pod as the controller of such a kind sends it; `user` is that controller, "" if it is not known.

    `kind` and `spec`: of the built-in workload that its Pods belong to, if the object makes one.
    `unresolved`: labels that differ between its Pods, or whose value is not known yet.
    """

    document: dict[str, Any]
    user: str = ""
    kind: str = ""
    spec: Json = {}
    unresolved: UnresolvedLabels = RESOLVED


def find_templates(document: Json, paths: Sequence[str]) -> Iterator[tuple[Path, Any]]:
    """Yield each place of a Pod template that the object has, with the value there, which may be of a wrong type."""
    for path in paths:
        yield from _find(document, path.split("."), ())


def _find(value: Any, steps: Sequence[str], at: Path) -> Iterator[tuple[Path, Any]]:
    if not steps:
        yield at, value
    elif steps[0] == "*":
        entries: Any = (
            value.items() if isinstance(value, Mapping) else enumerate(value if isinstance(value, list) else ())
        )
        for key, entry in entries:
            yield from _find(entry, steps[1:], (*at, key))
    elif isinstance(value, Mapping) and value.get(steps[0]) is not None:
        yield from _find(value[steps[0]], steps[1:], (*at, steps[0]))


def find_wrong_part(template: Any) -> str | None:
    """Return the field of a template that is no mapping, "" for the template itself; None if all are."""
    if not isinstance(template, Mapping):
        return ""
    if not isinstance(template.get("spec"), Mapping):
        return "spec"
    return None if isinstance(template.get("metadata"), Mapping | None) else "metadata"


def build_pod(group: str, document: Json, namespace: str, at: Path, template: Json) -> CustomPod:
    """Return the first Pod of one template. `document` has names of the right type, and the template a `spec`."""
    metadata = read_mapping(document.get("metadata"))
    name = str(metadata.get("name") or f"{metadata.get('generateName') or ''}{_SUFFIX}")
    kind, is_entry = (group, str(document.get("kind"))), len(at) > len(_REPLICATED_JOBS)
    if kind == _JOB_SET and at[:2] == _REPLICATED_JOBS and is_entry:
        return _build_job_set_pod(document, name, namespace, at, template)
    if kind == _LEADER_WORKER_SET:
        return _build_leader_worker_pod(document, name, namespace, at, template)
    if kind == _VOLCANO_JOB and at[:2] == _TASKS and is_entry:
        return _build_volcano_pod(document, name, namespace, at, template)
    if kind == _ROLLOUT:
        return _build_rollout_pod(name, namespace, template)
    metadata = {**read_mapping(template.get("metadata")), "generateName": f"{name}-", "namespace": namespace}
    metadata.pop("name", None)
    return CustomPod({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})


def _build_job_set_pod(document: Json, name: str, namespace: str, at: Path, template: Json) -> CustomPod:
    """Return the Pod of the first Job, which JobSet makes Indexed by default and labels with its own name."""
    replicated = read_mapping(document["spec"]["replicatedJobs"][at[2]])
    own, spec = str(replicated.get("name") or ""), read_mapping(read_mapping(replicated.get("template")).get("spec"))
    uid = str(read_mapping(document.get("metadata")).get("uid") or _UID)
    marks = {"jobset-name": name, "jobset-uid": uid, "replicatedjob-name": own, "job-index": "0"}
    marked = {f"jobset.sigs.k8s.io/{key}": value for key, value in marks.items()}
    job = {"metadata": {"name": f"{name}-{own}-0"}, "spec": {"completionMode": "Indexed", **spec}}
    jobs = range(read_whole(replicated.get("replicas"), 1))
    varying = _vary("jobset.sigs.k8s.io/job-index", "", jobs)
    for key in JOB_NAME_LABELS:
        varying |= _vary(key, f"{name}-{own}-", jobs)
    return _simulate("jobs", job, _mark(template, marked, marked), namespace, varying)


def _simulate(
    resource: str, document: Json, template: Json, namespace: str, varying: UnresolvedLabels = RESOLVED
) -> CustomPod:
    """Return the Pod of a built-in workload that an object makes."""
    source = BY_RESOURCE["batch" if resource == "jobs" else "apps", resource]
    made, spec = simulate(source, document, template, namespace), read_mapping(document.get("spec"))
    return CustomPod(made.document, source.controller, source.owner_kind, spec, {**made.unresolved, **varying})


def _vary(label: str, prefix: str, numbers: range) -> dict[str, UnresolvedLabel]:
    """Return a label that each of several Pods has with another number; nothing for one Pod."""
    return {label: UnresolvedLabel(f"{prefix}{numbers[0]}", prefix=prefix, numbers=numbers)} if len(numbers) > 1 else {}


def _build_rollout_pod(name: str, namespace: str, template: Json) -> CustomPod:
    """Return the Pod of the first ReplicaSet, which Argo names and labels by a hash of the template."""
    label, shown = "rollouts-pod-template-hash", "<rollouts-pod-template-hash>"
    owner = {"metadata": {"name": f"{name}-{shown}"}}
    varying = {label: UnresolvedLabel(shown, HASH)}
    return _simulate("replicasets", owner, _mark(template, {label: shown}, {}), namespace, varying)


def _build_leader_worker_pod(document: Json, name: str, namespace: str, at: Path, template: Json) -> CustomPod:
    """Return the leader of the first group, or its first worker: Pods of two StatefulSets.

    Without a template of its own the leader is as the workers, so the workers' stands for both.
    """
    spec = read_mapping(document.get("spec"))
    size = read_mapping(spec.get("leaderWorkerTemplate")).get("size")
    leader, is_worker = f"{name}-0", at[-1] == "workerTemplate"
    labels = {
        f"{_LWS}name": name,
        f"{_LWS}group-index": "0",
        f"{_LWS}worker-index": "1" if is_worker else "0",
        f"{_LWS}group-key": hashlib.sha1(f"{namespace}/{leader}".encode(), usedforsecurity=False).hexdigest(),
    }
    annotations = {f"{_LWS}size": str(size if isinstance(size, int) else 1)}
    given = read_mapping(read_mapping(document.get("metadata")).get("annotations"))
    if (exclusive := f"{_LWS}exclusive-topology") in given:
        annotations[exclusive] = str(given[exclusive])
    ordinals = {"ordinals": {"start": 1}} if is_worker else {}
    owner = {"metadata": {"name": leader if is_worker else name}, "spec": {"serviceName": name, **ordinals}}
    groups = range(read_whole(spec.get("replicas"), 1))
    varying = _vary(f"{_LWS}group-index", "", groups)
    if len(groups) > 1:
        varying[f"{_LWS}group-key"] = UnresolvedLabel(labels[f"{_LWS}group-key"], "[0-9a-f]{40}")
    if is_worker:
        varying |= _vary(f"{_LWS}worker-index", "", range(1, read_whole(size, 1)))
    return _simulate("statefulsets", owner, _mark(template, labels, annotations), namespace, varying)


def _build_volcano_pod(document: Json, name: str, namespace: str, at: Path, template: Json) -> CustomPod:
    spec = read_mapping(document.get("spec"))
    task = str(read_mapping(spec["tasks"][at[2]]).get("name") or "default")
    uid = str(read_mapping(document.get("metadata")).get("uid") or _UID)
    queue = str(spec.get("queue") or "default")
    marks = {"job-name": name, "task-spec": task, "task-index": "0", "queue-name": queue}
    marked = {f"volcano.sh/{key}": value for key, value in marks.items()}
    annotations = {**marked, "scheduling.k8s.io/group-name": f"{name}-{uid}"}
    labels = {**marked, "volcano.sh/job-namespace": namespace}
    metadata = read_mapping(_mark(template, labels, annotations)["metadata"])
    pod_spec = dict(template["spec"])
    for field in ("schedulerName", "priorityClassName"):
        if spec.get(field) and not pod_spec.get(field):
            pod_spec[field] = spec[field]
    names = {"name": f"{name}-{task}-0", "namespace": namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**metadata, **names}, "spec": pod_spec}
    number = read_whole(read_mapping(spec["tasks"][at[2]]).get("replicas"), 1)
    return CustomPod(pod, _VOLCANO_USER, unresolved=_vary("volcano.sh/task-index", "", range(number)))


def _mark(template: Json, labels: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return a template with further labels and annotations; values of a wrong type are kept for the Pod's decoder."""
    metadata = dict(read_mapping(template.get("metadata")))
    for field, added in (("labels", labels), ("annotations", annotations)):
        given = metadata.get(field)
        if given is None or isinstance(given, Mapping):
            metadata[field] = {**(given or {}), **added}
    return {**template, "metadata": metadata}
