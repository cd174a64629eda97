"""PriorityClasses and RuntimeClasses of a cluster during a test."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.placement import pods

Json = dict[str, Any]


def priority_class(name: str, value: int, *, never: bool = False, everybodys: bool = False) -> Json:
    """Return a class; `never` preempts nobody, `everybodys` is the global default."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "globalDefault": everybodys,
        "preemptionPolicy": "Never" if never else "PreemptLowerPriority",
    }


def runtime_class(name: str, overhead: Mapping[str, str] | None = None, **scheduling: Any) -> Json:
    """Return a class; `nodeSelector` and `tolerations` are where its Pods can run."""
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": name},
        "handler": "handler",
        **({"overhead": {"podFixed": overhead}} if overhead else {}),
        **({"scheduling": scheduling} if scheduling else {}),
    }


@contextmanager
def classes(plane: ControlPlane, *objects: Json) -> Iterator[None]:
    """Have them from the first Pod of the block on, and no more for the first Pod after it."""
    plane.apply(*objects)
    try:
        plane.wait(lambda: all(_is_known(plane, one) for one in objects), "the plugins to know the classes")
        yield
    finally:
        plane.kubectl(
            "delete",
            "--ignore-not-found",
            "--wait=false",
            *(f"{one['kind']}/{one['metadata']['name']}" for one in objects),
        )
        plane.wait(lambda: not any(_is_known(plane, one) for one in objects), "the plugins to forget the classes")


def _is_known(plane: ControlPlane, one: Json) -> bool:
    """Ask what becomes of a Pod, as the admission plugins have caches of their own."""
    name = one["metadata"]["name"]
    field = "priorityClassName" if one["kind"] == "PriorityClass" else "runtimeClassName"
    asked: Json = {} if one.get("globalDefault") else {field: name}
    pod = pods.pod("asks", "asks", **asked)
    status, answer = plane.api.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
    return bool(status == 201 and answer["spec"].get(field) == name)
