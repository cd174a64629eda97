"""Checks of manifests compared with the API server: it rejects what they find, at the same field."""

from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from webhook.core.pods.object_checks import check_pod, check_selector

Json = dict[str, Any]


def container(**fields: Any) -> Json:
    return {"name": "c", "image": "i", **fields}


PODS: dict[str, Json] = {
    "a good one": {"containers": [container()]},
    "no container": {"containers": []},
    "no image": {"containers": [{"name": "c"}]},
    "no name": {"containers": [{"image": "i"}]},
    "a name twice": {"containers": [container(), container()]},
    "a name of an init container": {"containers": [container()], "initContainers": [container()]},
    "a request above its limit": {
        "containers": [container(resources={"requests": {"cpu": "1"}, "limits": {"cpu": "999m"}})]
    },
    "a request as high as its limit": {
        "containers": [container(resources={"requests": {"cpu": "1"}, "limits": {"cpu": "1000m"}})]
    },
    "a request above a limit of 0": {
        "containers": [container(resources={"requests": {"memory": "1"}, "limits": {"memory": "0"}})]
    },
    "an unknown operator": {"containers": [container()], "tolerations": [{"key": "a", "operator": "In"}]},
    "a value of Exists": {
        "containers": [container()],
        "tolerations": [{"key": "a", "operator": "Exists", "value": "b"}],
    },
    "Equal without a key": {"containers": [container()], "tolerations": [{"operator": "Equal", "value": "b"}]},
    "Exists without a key": {"containers": [container()], "tolerations": [{"operator": "Exists"}]},
}
SELECTORS: dict[str, Json | None] = {
    "the labels": {"matchLabels": {"app": "web"}},
    "none": None,
    "an empty one": {},
    "another value": {"matchLabels": {"app": "other"}},
    "an absent label": {"matchLabels": {"tier": "front"}},
    "an expression that fits": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "x"]}]},
    "an expression that does not": {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
}


def find_rejected_fields(plane: ControlPlane, path: str, document: Json) -> set[str]:
    """Return the fields that the API server rejects in a dry run; none if it would create the object."""
    status, answer = plane.api.request("POST", f"{path}?dryRun=All", document)
    assert status in {201, 422}, answer
    return {cause["field"] for cause in answer["details"]["causes"]} if status == 422 else set()


@pytest.mark.parametrize("spec", PODS.values(), ids=list(PODS))
def test_a_pod_has_the_faults_for_which_the_api_server_rejects_it(plane: ControlPlane, spec: Json) -> None:
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}
    fields = find_rejected_fields(plane, "/api/v1/namespaces/default/pods", document)
    found = {fault.field.partition("[")[0] for fault in check_pod(spec)}
    assert found == {field.partition("[")[0] for field in fields}


@pytest.mark.parametrize("selector", SELECTORS.values(), ids=list(SELECTORS))
def test_a_selector_has_a_fault_where_the_api_server_rejects_it(plane: ControlPlane, selector: Json | None) -> None:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": PODS["a good one"]}
    spec = {"template": template, **({} if selector is None else {"selector": selector})}
    document = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}
    fields = find_rejected_fields(plane, "/apis/apps/v1/namespaces/default/deployments", document)
    assert bool(list(check_selector(selector, template))) is bool(fields)
