"""Builders of the corpus: minimal valid Pods with the given fields."""

from typing import Any

Json = dict[str, Any]


def pod(metadata: Json | None = None, **spec: Any) -> Json:
    """Return a Pod with one container without resources, and the fields of `spec`."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "sample-", "namespace": "default", **(metadata or {})},
        "spec": {"containers": [{"name": "app", "image": "app"}], **spec},
    }


def in_pod(*containers: Json, **spec: Any) -> Json:
    """Return a Pod with these containers; name and image are filled in if absent."""
    named = [{"name": f"c{place}", "image": "app", **container} for place, container in enumerate(containers)]
    return pod(containers=named, **spec)


def asking(requests: Any = None, limits: Any = None, **more: Any) -> Json:
    """Return a container with these resources."""
    asked = {"requests": requests, "limits": limits}
    return {"resources": {word: amounts for word, amounts in asked.items() if amounts is not None}, **more}
