"""Pods with various container resources, and builders of minimal valid Pods."""

from typing import Any

Json = dict[str, Any]


def build_pod(metadata: Json | None = None, **spec: Any) -> Json:
    """Return a Pod with one container without resources, and the fields of `spec`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "sample-", "namespace": "default", **(metadata or {})},
        "spec": {"containers": [{"name": "app", "image": "app"}], **spec},
    }


def wrap_containers(*containers: Json, **spec: Any) -> Json:
    """Return a Pod with these containers; name and image are filled in if absent."""
    named = [{"name": f"c{place}", "image": "app", **container} for place, container in enumerate(containers)]
    return build_pod(containers=named, **spec)


def build_container(requests: Any = None, limits: Any = None, **more: Any) -> Json:
    """Return a container with these resources."""
    asked = {"requests": requests, "limits": limits}
    return {"resources": {word: amounts for word, amounts in asked.items() if amounts is not None}, **more}


_SIDECAR = {"name": "sidecar", "image": "app", "restartPolicy": "Always"}

CONTAINERS: dict[str, Json] = {
    "a Pod with requests only": wrap_containers(build_container({"cpu": "100m", "memory": "64Mi"})),
    "a Pod with limits only": wrap_containers(build_container(limits={"cpu": "2", "memory": "1Gi"})),
    "a Pod with requests equal to limits": wrap_containers(
        build_container({"cpu": "1", "memory": "1Gi"}, {"cpu": "1000m", "memory": "1024Mi"})
    ),
    "a Pod with a request of one resource and a limit of another": wrap_containers(
        build_container({"cpu": "1500m"}, {"memory": "2Gi"})
    ),
    "a Pod with empty and null resources": wrap_containers(
        {"resources": {}}, {"resources": None}, {"resources": {"requests": None, "limits": {}}}, {}
    ),
    "a Pod with amounts that are numbers": wrap_containers(
        build_container({"cpu": 1, "memory": 1073741824}, {"cpu": 1.5})
    ),
    "a Pod with oddly written amounts": wrap_containers(
        build_container(
            {"cpu": "0.1", "memory": "1e8"}, {"cpu": "2e0", "memory": "128974848000m", "ephemeral-storage": "1.5Gi"}
        )
    ),
    "a Pod with amounts of zero": wrap_containers(build_container({"cpu": "0", "memory": "0"}, {"cpu": "0"})),
    "a Pod with the smallest and the largest amounts": wrap_containers(
        build_container({"cpu": "1m", "memory": "1"}, {"cpu": "100k", "memory": "7Ei"})
    ),
    "a Pod with ephemeral storage": wrap_containers(
        build_container({"ephemeral-storage": "1Gi"}, {"ephemeral-storage": "2Gi"})
    ),
    "a Pod with an extended resource": wrap_containers(
        build_container({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1", "cpu": "4"}),
        build_container(limits={"nvidia.com/gpu": 2}),
    ),
    "a Pod with huge pages": wrap_containers(
        build_container({"hugepages-2Mi": "64Mi", "memory": "128Mi"}, {"hugepages-2Mi": "64Mi", "memory": "128Mi"})
    ),
    "a Pod with init containers": wrap_containers(
        build_container({"cpu": "100m"}),
        initContainers=[
            {"name": "first", "image": "app", **build_container({"cpu": "4", "memory": "4Gi"})},
            {"name": "second", "image": "app"},
        ],
    ),
    "a Pod with sidecars": wrap_containers(
        build_container({"cpu": "100m"}, {"cpu": "200m"}),
        initContainers=[
            _SIDECAR,
            {**_SIDECAR, "name": "another", **build_container({"memory": "32Mi"}, {"memory": "32Mi"})},
        ],
    ),
    "a Pod with containers that others inject": wrap_containers(
        build_container({"cpu": "100m"}),
        {"name": "istio-proxy", **build_container({"cpu": "10m"})},
        {"name": "linkerd-proxy"},
    ),
    "a Pod with resources of its own level": build_pod(
        resources={"requests": {"cpu": "2", "memory": "2Gi"}, "limits": {"cpu": "4", "memory": "4Gi"}}
    ),
    "a Pod with resources of both levels": wrap_containers(
        build_container({"cpu": "500m"}), {}, resources={"limits": {"cpu": "1"}, "requests": {"memory": "1Gi"}}
    ),
    "a Pod with claims for devices": build_pod(
        containers=[{"name": "app", "image": "app", "resources": {"claims": [{"name": "gpu", "request": "one"}]}}],
        resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
    ),
    "a Pod with many containers": wrap_containers(*({} for _ in range(12))),
}
