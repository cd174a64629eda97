"""Pods of a Job or CronJob: labels with the Job's name and uid, and an index if the Job is Indexed.

Source: pkg/registry/batch/job/strategy.go and pkg/controller/job of Kubernetes 1.36.
"""

from collections.abc import Mapping
from typing import Any

from webhook.core.kubernetes.label_constraints import UnresolvedLabel
from webhook.core.workloads.workload import (
    GENERATED_FROM_MAX,
    Additions,
    GeneratedName,
    Json,
    WorkloadObject,
    read_items,
    read_mapping,
    read_whole,
)

JOB_NAME_LABELS = ("job-name", "batch.kubernetes.io/job-name")
JOB_UID_LABELS = ("controller-uid", "batch.kubernetes.io/controller-uid")
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_UID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
_INDEX_VARIABLE = "JOB_COMPLETION_INDEX"
_FINALIZER = "batch.kubernetes.io/job-tracking"


def build_job_additions(workload: WorkloadObject) -> Additions:
    return _build_additions(workload, workload.name)


def build_cron_job_additions(workload: WorkloadObject) -> Additions:
    return _build_additions(workload, workload.name.append("-<minute>", "-[0-9]+"))


def _build_additions(workload: WorkloadObject, name: GeneratedName) -> Additions:
    """Return the fields that the API server adds to a Job's template, and the controller to Indexed Pods."""
    given = read_mapping(read_mapping(workload.template.get("metadata")).get("labels"))
    uid = workload.metadata.get("uid")
    labels: dict[str, str | UnresolvedLabel] = {}
    if workload.spec.get("manualSelector") is not True:
        generated = {**dict.fromkeys(JOB_NAME_LABELS, name.build_label())}
        generated |= dict.fromkeys(JOB_UID_LABELS, UnresolvedLabel("<uid>", _UID))
        # In a dry run, name and uid are placeholders that the created object does not have.
        placeholders = () if workload.is_stored else (uid, workload.metadata.get("name"))
        labels = {
            key: value
            for key, value in generated.items()
            if key not in given or (isinstance(value, UnresolvedLabel) and given[key] in placeholders)
        }
    if workload.spec.get("completionMode") != "Indexed":
        return Additions(name, labels, finalizers=(_FINALIZER,))
    labels[COMPLETION_INDEX] = "0"
    indexes = range(max(1, read_whole(workload.spec.get("completions"), 1)))
    if len(indexes) > 1:
        labels[COMPLETION_INDEX] = UnresolvedLabel("0", numbers=indexes)
    annotations = {COMPLETION_INDEX: "0"}
    if workload.spec.get("backoffLimitPerIndex") is not None:
        annotations[_INDEX_FAILURES] = "0"
    spec = {"hostname": f"{name.shown}-0", **_add_index(workload.pod_spec)}
    prefix = f"{name.shown[: GENERATED_FROM_MAX - len('-0-')]}-0-"
    return Additions(name, labels, annotations, (_FINALIZER,), prefix=prefix, spec=spec)


def _add_index(spec: Json) -> dict[str, Any]:
    """Return the containers, with the index variable in those without their own variable of that name."""
    source = {"fieldRef": {"fieldPath": f"metadata.labels['{COMPLETION_INDEX}']"}}
    variable = {"name": _INDEX_VARIABLE, "valueFrom": source}
    return {
        field: [_add_variable(container, variable) for container in spec[field]]
        for field in ("initContainers", "containers")
        if isinstance(spec.get(field), list)
    }


def _add_variable(container: Any, variable: Json) -> Any:
    if not isinstance(container, Mapping):
        return container
    known = read_items(container.get("env"))
    if any(read_mapping(entry).get("name") == variable["name"] for entry in known):
        return container
    return {**container, "env": [*known, variable]}
