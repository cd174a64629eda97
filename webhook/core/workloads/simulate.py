"""Simulation of Kubernetes' built-in controllers: the first Pod that each creates from a workload object.

Source: pkg/controller/controller_utils.go (`GetPodFromTemplate`) of Kubernetes 1.36, and its callers.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from webhook.core.kubernetes.controllers import WorkloadKind
from webhook.core.kubernetes.label_constraints import UnresolvedLabel, UnresolvedLabels
from webhook.core.workloads.daemon_sets import build_daemon_set_additions
from webhook.core.workloads.jobs import build_cron_job_additions, build_job_additions
from webhook.core.workloads.stateful_sets import build_stateful_set_additions
from webhook.core.workloads.workload import (
    HASH,
    Additions,
    GeneratedName,
    Json,
    WorkloadObject,
    read_items,
    read_mapping,
)

HASH_LABEL = "pod-template-hash"
_NAME_MAX = 253
_COPIED = frozenset({"labels", "annotations", "finalizers"})


class SimulatedPod(NamedTuple):
    """A Pod as its controller sends it. Values that are not known yet are in angle brackets.

    `unresolved`: its labels whose value is not known, or differs between Pods.
    """

    document: dict[str, Any]
    unresolved: UnresolvedLabels


def simulate(
    source: WorkloadKind, document: Json, template: Json, namespace: str, *, is_stored: bool = False
) -> SimulatedPod:
    """Return the Pod of a workload object with this `template`.

    `is_stored`: the object's name and uid are final, as they are not in a dry run of CREATE.
    """
    metadata, spec = read_mapping(document.get("metadata")), read_mapping(document.get("spec"))
    if source.kind == "CronJob":
        spec = read_mapping(read_mapping(spec.get("jobTemplate")).get("spec"))
    name = GeneratedName.from_metadata(metadata, is_stored=is_stored)
    workload = WorkloadObject(source, name, metadata, spec, template, is_stored)
    added = _CONTROLLERS[source.kind](workload)
    unresolved = {key: value for key, value in added.labels.items() if isinstance(value, UnresolvedLabel)}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": _build_metadata(workload, added, namespace)}
    return SimulatedPod({**pod, "spec": _merge(template.get("spec"), added.spec)}, unresolved)


def _build_metadata(workload: WorkloadObject, added: Additions, namespace: str) -> Any:
    """Return the Pod's metadata: controllers copy the template's labels, annotations and finalizers."""
    given = workload.template.get("metadata")
    if given is not None and not isinstance(given, Mapping):
        return given
    own = {key: value for key, value in (given or {}).items() if key in _COPIED}
    more: dict[str, Any] = {}
    if added.labels:
        settled = {
            key: value.sample if isinstance(value, UnresolvedLabel) else value for key, value in added.labels.items()
        }
        more["labels"] = _merge(own.get("labels"), settled)
    if added.annotations:
        more["annotations"] = _merge(own.get("annotations"), added.annotations)
    if added.finalizers:
        more["finalizers"] = [*dict.fromkeys((*read_items(own.get("finalizers")), *added.finalizers))]
    prefix = f"{added.maker.shown}-"
    names = {"generateName": added.prefix or (prefix if len(prefix) <= _NAME_MAX else added.maker.shown)}
    if added.name is not None:
        names["name"] = added.name.shown
    return {**names, "namespace": namespace, **own, **more, "ownerReferences": [_build_owner(workload, added.maker)]}


def _merge(given: Any, added: Json) -> Any:
    """Return a mapping with `added`; values of a wrong type are kept, so that the Pod's decoder reports them."""
    if given is None:
        return dict(added)
    if not isinstance(given, Mapping):
        return given
    fitting = {key: value for key, value in added.items() if isinstance(given.get(key), type(value) | None)}
    return {**given, **fitting}


def _build_owner(workload: WorkloadObject, maker: GeneratedName) -> dict[str, Any]:
    source = workload.source
    uid = "" if source.maker else workload.metadata.get("uid")
    return {
        "apiVersion": source.api_version,
        "kind": source.maker or source.kind,
        "name": maker.shown,
        "uid": uid or "<uid>",
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _build_deployment_additions(workload: WorkloadObject) -> Additions:
    shown = f"<{HASH_LABEL}>"
    return Additions(workload.name.append(f"-{shown}", f"-{HASH}"), {HASH_LABEL: UnresolvedLabel(shown, HASH)})


def _build_replicas_additions(workload: WorkloadObject) -> Additions:
    return Additions(workload.name)


_CONTROLLERS: Mapping[str, Callable[[WorkloadObject], Additions]] = {
    "Deployment": _build_deployment_additions,
    "ReplicaSet": _build_replicas_additions,
    "ReplicationController": _build_replicas_additions,
    "StatefulSet": build_stateful_set_additions,
    "DaemonSet": build_daemon_set_additions,
    "Job": build_job_additions,
    "CronJob": build_cron_job_additions,
}
