"""Workloads of every built-in kind, and policies that select labels added by controllers, generated from a seed."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import yaml

from webhook.core.document import DocumentError, Purpose, load
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS

ID = "example.com/id"
"""A label of every template, which identifies its Pods."""
NAMESPACE_COUNT = 6
"""Number of namespaces of a set, each with its own services."""
_THEIRS = "theirs"
_KINDS = [source.kind for source in WORKLOAD_KINDS]
_UID = "00000000-0000-4000-8000-000000000000"
_HASHES = ["7d4b6c9f5d", "5c8f4b", "aeiou"]
_INDEXES = ["0", "1", "2", "7"]
_JOB_NAMES = ("job-name", "batch.kubernetes.io/job-name")
_JOB_UIDS = ("controller-uid", "batch.kubernetes.io/controller-uid")
_COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
_POD_NAME, _POD_INDEX = "statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"
_KEYS = (
    *("app", "tier"),
    *_JOB_NAMES,
    *_JOB_UIDS,
    *(_COMPLETION_INDEX, _POD_NAME, _POD_INDEX),
    *("pod-template-hash", "controller-revision-hash", "pod-template-generation"),
)


@dataclass
class GeneratedSet:
    """A policy, and the workloads in its namespaces."""

    policy: str
    namespaces: list[str]
    objects: list[dict[str, Any]] = field(default_factory=list)


def generate(seed: int, count: int, *, strict: bool) -> GeneratedSet:
    """Generate a set. `strict`: Pods without a service are denied, and Pods of DaemonSets are not exempt."""
    random = Random(seed)  # noqa: S311  not for secrets
    namespaces = [f"made-up-{seed}-{'strict' if strict else 'lenient'}-{number}" for number in range(NAMESPACE_COUNT)]
    objects = [_object(random, number, random.choice(namespaces)) for number in range(count)]
    services = [service for namespace in namespaces for service in _valid_services(random, namespace, objects)]
    policy = _policy(services)
    if strict:
        policy |= {"unmatched": "Deny", "exemptions": {"daemonSets": False}}
    return GeneratedSet(yaml.safe_dump(policy, sort_keys=False), namespaces, objects)


def id_of(workload: dict[str, Any]) -> str:
    metadata = workload["metadata"]
    return str(metadata.get("name") or metadata["generateName"].removesuffix("-"))


# --- objects ---


def _object(random: Random, number: int, namespace: str) -> dict[str, Any]:
    name, kind = f"w{number:03}", random.choice(_KINDS)
    source = next(source for source in WORKLOAD_KINDS if source.kind == kind)
    is_generated = random.random() < 0.15
    metadata = {"generateName": f"{name}-"} if is_generated else {"name": name}
    template = _template(random, kind, name)
    spec: dict[str, Any] = {"template": template}
    if kind in {"Job", "CronJob"}:
        spec |= _job_spec(random, template, kind, None if is_generated else name)
    elif kind == "ReplicationController":
        spec["selector"] = {ID: name}
    else:
        spec["selector"] = {"matchLabels": {ID: name}}
    if kind == "StatefulSet":
        ordinals = {"ordinals": {"start": random.choice([1, 2])}} if random.random() < 0.3 else {}
        spec |= {"replicas": random.choice([1, 2, 2]), "podManagementPolicy": "Parallel", **ordinals}
    if kind == "CronJob":
        spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": {"spec": spec}}
    return {
        "apiVersion": source.api_version,
        "kind": kind,
        "metadata": {"namespace": namespace, **metadata},
        "spec": spec,
    }


def _template(random: Random, kind: str, name: str) -> dict[str, Any]:
    labels = {ID: name, "app": random.choice(["web", "batch", "db"])}
    if random.random() < 0.5:
        labels["tier"] = random.choice(["front", "back"])
    if random.random() < 0.1:
        labels["podgate.io/service"] = random.choice(["s0", "s1"])
    # A label that the controller writes too; the API server rejects Jobs with wrong labels.
    controller_keys = [
        key for key in _KEYS[2:] if key not in {*_JOB_NAMES, *_JOB_UIDS} or kind not in {"Job", "CronJob"}
    ]
    for key in random.sample(controller_keys, random.choice([0, 0, 1, 2])):
        labels[key] = random.choice([*_HASHES, *_INDEXES, name])
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "i"}]}
    if random.random() < 0.4:
        spec["schedulerName"] = _THEIRS
    if kind in {"Job", "CronJob"}:
        spec["restartPolicy"] = "Never"
    if kind != "DaemonSet":  # unschedulable Pods cost nothing
        spec["nodeSelector"] = {"example.com/nowhere": "true"}
    return {"metadata": {"labels": labels}, "spec": spec}


def _job_spec(random: Random, template: dict[str, Any], kind: str, name: str | None) -> dict[str, Any]:
    labels, spec = template["metadata"]["labels"], {}
    if random.random() < 0.4:
        completions = random.choice([1, 2, 2])
        spec = {"completionMode": "Indexed", "completions": completions, "parallelism": completions}
    if kind == "Job" and random.random() < 0.25:  # not allowed in CronJobs
        labels |= {key: random.choice(["own", _UID]) for key in random.sample([*_JOB_NAMES, *_JOB_UIDS], 2)}
        spec |= {"manualSelector": True, "selector": {"matchLabels": {ID: labels[ID]}}}
    elif kind == "Job" and name and random.random() < 0.2:
        labels[_JOB_NAMES[0]] = name
    return spec


# --- policies ---


def _policy(services: list[dict[str, Any]]) -> dict[str, Any]:
    return {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": services}


def _valid_services(random: Random, namespace: str, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return services of a valid policy: for example, none is hidden by an earlier one."""
    while True:
        services = _services(random, namespace, objects)
        try:
            load(yaml.safe_dump(_policy(services)).encode(), Purpose.SERVE)
        except DocumentError:
            continue
        return services


def _services(random: Random, namespace: str, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    names = [id_of(document) for document in objects if document["metadata"]["namespace"] == namespace]
    number = int(namespace.rpartition("-")[2])
    services = []
    for index in range(random.choice([2, 3, 4])):
        service: dict[str, Any] = {"name": f"s{number}{'' if index == 0 else f'-{index}'}", "failureMode": "Closed"}
        service["match"] = {"namespaces": [namespace], "podSelector": _selector(random, names)}
        conflict_kind = random.choice(["conflict", "conflict", "warn", "none"])
        if conflict_kind != "none":
            service["placement"] = {"schedulerName": f"scheduler-{service['name']}"}
        if conflict_kind == "warn":
            service["modes"] = {"placement": "Warn"}
        services.append(service)
    return services


def _selector(random: Random, names: list[str]) -> dict[str, Any]:
    keys = random.sample(_KEYS, random.choice([1, 1, 2]))
    return {"matchExpressions": [_requirement(random, key, names) for key in keys]}


def _requirement(random: Random, key: str, names: list[str]) -> dict[str, Any]:
    operator = random.choice([*["In"] * 4, "NotIn", "NotIn", "Exists", "DoesNotExist"])
    requirement: dict[str, Any] = {"key": key, "operator": operator}
    if operator in {"In", "NotIn"}:
        requirement["values"] = sorted({*_values(random, key, names)})
    return requirement


def _values(random: Random, key: str, names: list[str]) -> list[str]:
    candidates = random.sample(names, min(len(names), 6)) or ["nobody"]
    job_names = [*candidates, f"{random.choice(candidates)}-29012345"] if random.random() < 0.3 else candidates
    values_by_key = {
        "app": random.sample(["web", "batch", "db"], 2),
        "tier": [random.choice(["front", "back"])],
        **dict.fromkeys(_JOB_NAMES, job_names),
        **{key: [random.choice([_UID, "own"])] for key in _JOB_UIDS},
        _POD_NAME: [f"{name}-{random.choice('012')}" for name in candidates],
        "controller-revision-hash": [random.choice([*_HASHES, f"{candidates[0]}-7d4b6c9f5d"])],
        "pod-template-hash": [random.choice(_HASHES), "7d4b6c9f5d"],
    }
    return values_by_key.get(key) or random.sample(_INDEXES, 2)
