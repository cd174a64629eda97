"""Limits of cpu that a policy takes out or forbids, and amounts of init containers, in Pods that are stored."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate

Json = dict[str, Any]
TAKEN, FORBIDDEN, STARTING = "limits-taken", "limits-forbidden", "limits-of-init"
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: taken
  failureMode: Closed
  match: {{namespaces: [{TAKEN}]}}
  resources: {{container: {{remove: [limits.cpu], ignore: [istio-proxy]}}}}
- name: forbidden
  failureMode: Closed
  match: {{namespaces: [{FORBIDDEN}]}}
  resources: {{container: {{forbid: [limits.cpu]}}}}
- name: starting
  failureMode: Closed
  match: {{namespaces: [{STARTING}]}}
  resources:
    container: {{defaultRequest: {{cpu: 100m, memory: 128Mi}}, default: {{memory: 256Mi}}}}
    initContainer: {{defaultRequest: {{cpu: "1"}}, default: {{memory: 1Gi}}}}
"""
BOTH: Json = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
WITHOUT: Json = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}
STRATEGIC = "application/strategic-merge-patch+json"


@pytest.fixture(scope="module")
def running(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    with install_podgate(plane, identities.files, POLICY, [TAKEN, FORBIDDEN, STARTING]) as installation:
        installation.wait_for_calls()
        yield installation


def create_pod(plane: ControlPlane, namespace: str, **spec: Any) -> tuple[int, Json]:
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        container["image"] = "i"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}
    return plane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


def list_resources(pod: Json) -> dict[str, Json]:
    containers = (*pod["spec"]["containers"], *pod["spec"].get("initContainers", ()))
    return {container["name"]: container["resources"] for container in containers}


def resize(plane: ControlPlane, pod: Json, resources: Json) -> tuple[int, Json]:
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    patch = {"spec": {"containers": [{"name": "app", "resources": resources}]}}
    return plane.api.request("PATCH", f"/api/v1/namespaces/{namespace}/pods/{name}/resize", patch, STRATEGIC)


def test_limits_of_cpu_are_taken_out_of_every_container_but_ignored_ones(running: Installation) -> None:
    proxy = {"name": "istio-proxy", "restartPolicy": "Always", "resources": BOTH}
    status, pod = create_pod(
        running.plane,
        TAKEN,
        containers=[{"name": "app", "resources": BOTH}, {"name": "alone", "resources": {"limits": {"cpu": "2"}}}],
        initContainers=[
            {"name": "migrate", "resources": BOTH},
            {"name": "sidecar", "restartPolicy": "Always", "resources": BOTH},
            proxy,
        ],
    )
    assert status == 201, pod
    assert list_resources(pod) == {
        "app": WITHOUT,
        "alone": {"requests": {"cpu": "2"}},
        "migrate": WITHOUT,
        "sidecar": WITHOUT,
        "istio-proxy": BOTH,
    }
    assert pod["status"]["qosClass"] == "Burstable"


def test_limit_of_a_limit_range_is_taken_out_for_good(running: Installation) -> None:
    limits = {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "range", "namespace": TAKEN},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "2", "memory": "1Gi"}}]},
    }
    running.plane.apply(limits)
    try:
        running.plane.wait(
            lambda: (
                "memory"
                in list_resources(create_pod(running.plane, TAKEN, containers=[{"name": "app"}])[1])["app"].get(
                    "limits", {}
                )
            ),
            "the LimitRange to be seen",
        )
        status, pod = create_pod(running.plane, TAKEN, containers=[{"name": "app"}])
    finally:
        running.plane.api.request("DELETE", f"/api/v1/namespaces/{TAKEN}/limitranges/range")
    assert (status, list_resources(pod)) == (
        201,
        {"app": {"requests": {"cpu": "2", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}},
    )


@pytest.mark.parametrize(
    "spec",
    [
        {"containers": [{"name": "app", "resources": BOTH}]},
        {"containers": [{"name": "app"}], "initContainers": [{"name": "migrate", "resources": BOTH}]},
        {"containers": [{"name": "app"}], "resources": {"limits": {"cpu": "2"}}},
    ],
    ids=["container", "init container", "Pod"],
)
def test_pod_with_a_forbidden_limit_is_denied_with_a_remedy(running: Installation, spec: Json) -> None:
    status, answer = create_pod(running.plane, FORBIDDEN, **spec)
    assert (status, "ResourcesOutside" in answer["message"], "leave it out" in answer["message"]) == (403, True, True)


@pytest.mark.parametrize(
    ("namespace", "code"),
    [(TAKEN, "ResourcesUnfulfilled"), (FORBIDDEN, "ResourcesOutside")],
    ids=["taken", "forbidden"],
)
def test_resize_that_adds_a_limit_of_cpu_is_denied(running: Installation, namespace: str, code: str) -> None:
    status, pod = create_pod(running.plane, namespace, containers=[{"name": "app", "resources": WITHOUT}])
    assert status == 201, pod
    status, answer = resize(running.plane, pod, {"limits": {"cpu": "2"}})
    assert (status, code in answer["message"]) == (403, True), answer
    status, answer = resize(running.plane, pod, {"requests": {"cpu": "2"}})
    assert status == 200, answer


def test_init_containers_have_amounts_of_their_own_and_sidecars_those_of_containers(running: Installation) -> None:
    status, pod = create_pod(
        running.plane,
        STARTING,
        containers=[{"name": "app"}],
        initContainers=[{"name": "migrate"}, {"name": "sidecar", "restartPolicy": "Always"}],
    )
    assert status == 201, pod
    usual = {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}}
    assert list_resources(pod) == {
        "app": usual,
        "sidecar": usual,
        "migrate": {"requests": {"cpu": "1", "memory": "128Mi"}, "limits": {"memory": "1Gi"}},
    }
