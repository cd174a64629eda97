"""How a Pod of the corpus is made: the least that Kubernetes takes, and what is odd about this one."""

from typing import Any

Json = dict[str, Any]


def pod(metadata: Json | None = None, **spec: Any) -> Json:
    """Return a Pod of one container that asks for nothing, with `spec` over its own fields."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "sample-", "namespace": "default", **(metadata or {})},
        "spec": {"containers": [{"name": "app", "image": "app"}], **spec},
    }


def in_pod(*containers: Json, **spec: Any) -> Json:
    """Return a Pod of these containers; each has a name and an image unless it says otherwise."""
    named = [{"name": f"c{place}", "image": "app", **container} for place, container in enumerate(containers)]
    return pod(containers=named, **spec)


def asking(requests: Any = None, limits: Any = None, **more: Any) -> Json:
    """Return a container that asks for resources."""
    asked = {"requests": requests, "limits": limits}
    return {"resources": {word: amounts for word, amounts in asked.items() if amounts is not None}, **more}
