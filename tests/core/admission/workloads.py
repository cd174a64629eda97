"""Helpers of the `workloads` tests that other tests use, too."""

from typing import Any

from tests.core.reviewing import pod
from tests.core.strategies import Json


def template(labels: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    """Build a template without the fields that the policy sets, except for those given."""
    metadata = {"labels": labels or {"app": "web"}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": pod(**spec)["spec"]}


def request(pod_template: Json, group: str = "apps", resource: str = "deployments", **more: Any) -> Json:
    """Build the request of a workload's author: a CREATE of one object named `web`."""
    spec: Json = {"template": pod_template}
    if resource == "cronjobs":
        spec = {"jobTemplate": {"spec": spec}}
    metadata = {"name": "web", "namespace": "shop", "uid": "of-the-object"}
    return {
        "resource": {"group": group, "version": "v1", "resource": resource},
        "object": {"metadata": metadata, "spec": spec},
        **more,
    }
