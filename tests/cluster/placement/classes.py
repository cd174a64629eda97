"""PriorityClasses and RuntimeClasses during a test."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from tests.cluster.controlplane import ControlPlane
from tests.cluster.placement import pods

Json = dict[str, Any]


def priority_class(name: str, value: int, *, never: bool = False, is_global_default: bool = False) -> Json:
    """Return a PriorityClass, with `preemptionPolicy: Never` if `never`."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        "globalDefault": is_global_default,
        "preemptionPolicy": "Never" if never else "PreemptLowerPriority",
    }


def runtime_class(name: str, overhead: Mapping[str, str] | None = None, **scheduling: Any) -> Json:
    """Return a RuntimeClass; `scheduling` has `nodeSelector` and `tolerations`."""
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
    """Create classes, and delete them at the end; wait each time until the admission plugins have seen it."""
    plane.apply(*objects)
    try:
        plane.wait(lambda: all(_is_known(plane, document) for document in objects), "the plugins to know the classes")
        yield
    finally:
        plane.kubectl(
            "delete",
            "--ignore-not-found",
            "--wait=false",
            *(f"{document['kind']}/{document['metadata']['name']}" for document in objects),
        )
        plane.wait(
            lambda: not any(_is_known(plane, document) for document in objects), "the plugins to forget the classes"
        )


def _is_known(plane: ControlPlane, document: Json) -> bool:
    """Whether a dry run of a Pod uses the class: the admission plugins have their own caches."""
    name = document["metadata"]["name"]
    field = "priorityClassName" if document["kind"] == "PriorityClass" else "runtimeClassName"
    spec: Json = {} if document.get("globalDefault") else {field: name}
    pod = pods.pod("asks", "asks", **spec)
    status, answer = plane.api.request("POST", "/api/v1/namespaces/default/pods?dryRun=All", pod)
    return bool(status == 201 and answer["spec"].get(field) == name)
