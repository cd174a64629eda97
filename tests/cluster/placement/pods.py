"""Pods and Deployments for tests of placement; the label `app` selects their service."""

from typing import Any

Json = dict[str, Any]


def pod(name: str, app: str, *, labels: dict[str, str] | None = None, **spec: Any) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": app, **(labels or {})}},
        "spec": {"containers": [{"name": "c", "image": "i"}], **spec},
    }


def deployment(name: str, app: str, **spec: Any) -> Json:
    """Return a Deployment of one Pod."""
    labels = {"app": app, "deployment": name}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}], **spec}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def service(name: str, namespace: str, placement: Json, **more: Any) -> Json:
    """Return a service that owns all Pods whose label `app` is its name."""
    match = {"namespaces": [namespace], "podSelector": {"matchLabels": {"app": name}}}
    return {"name": name, "match": match, "failureMode": "Closed", "placement": placement, **more}


def policy(*services: Json) -> Json:
    return {"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": list(services)}
