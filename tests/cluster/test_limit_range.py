"""Stanza `container` of a range compared with the LimitRanger of the API server."""

import itertools
from collections.abc import Iterator
from typing import Any

import jsonpatch
import msgspec
import pytest

from tests.cluster.controlplane import ControlPlane
from webhook.core.container_resources import RangePlan, build_operations, find_violations
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Quantity, parse_quantity
from webhook.core.policy_fields import ResourceRules

Json = dict[str, Any]
NAMES = ("cpu", "memory", "ephemeral-storage")
RANGES: list[Json] = [
    {"max": {"cpu": "8"}},
    {"min": {"cpu": "1"}},
    {"min": {"cpu": "1"}, "max": {"cpu": "8"}},
    {"default": {"cpu": "2"}},
    {"defaultRequest": {"cpu": "2"}},
    {"default": {"cpu": "4"}, "max": {"cpu": "8"}},
    {"defaultRequest": {"cpu": "2"}, "max": {"cpu": "8"}},
    {"defaultRequest": {"cpu": "2"}, "min": {"cpu": "1"}},
    {"default": {"cpu": "4"}, "min": {"cpu": "1"}},
    {"min": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}, "default": {"cpu": "4"}, "max": {"cpu": "8"}},
    {"max": {"memory": "8Gi"}, "default": {"cpu": "4"}},
    {"max": {"ephemeral-storage": "8Gi"}, "min": {"memory": "1Gi"}},
    {"maxLimitRequestRatio": {"cpu": "2"}},
    {"maxLimitRequestRatio": {"cpu": "3"}, "default": {"cpu": "8"}, "defaultRequest": {"cpu": "4"}},
]
REQUESTED: list[Json] = [
    {side: dict.fromkeys(NAMES, amount) for side, amount in (("requests", request), ("limits", limit)) if amount}
    for request, limit in itertools.product((None, "3", "9"), repeat=2)
    if not (request == "9" and limit == "3")  # the API server rejects it
]


INVALID = {"limits": {"below": "1"}}
"""LimitRanger's default limit is below the user's request, which is invalid. A range sets the request as the limit."""


def resources_by_limit_ranger(plane: ControlPlane, namespace: str, requested: Json) -> Json | None:
    """Return a container's final resources with a LimitRange, or None if LimitRanger rejects the Pod."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "p-"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": requested}]},
    }
    status, answer = plane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    if status == 422:
        assert "must be less than or equal to" in answer["message"]
        return INVALID
    assert status in {201, 403}, answer
    return None if status == 403 else answer["spec"]["containers"][0]["resources"]


def resources_by_range(plan: RangePlan, requested: Json) -> Json | None:
    """Return a container's final resources with a range, defaulted as by the API server, or None if it is denied."""
    spec = {"containers": [{"name": "c", "resources": add_requests(requested)}]}
    pod = msgspec.convert({"metadata": {}, "spec": spec}, Pod)
    after = jsonpatch.apply_patch({"spec": spec}, msgspec.to_builtins(build_operations(pod, plan)))["spec"]
    if find_violations(msgspec.convert({"metadata": {}, "spec": after}, Pod), plan):
        return None
    return add_requests(after["containers"][0]["resources"])


def add_requests(requested: Json) -> Json:
    requests = {**(requested.get("limits") or {}), **(requested.get("requests") or {})}
    return {**requested, "requests": requests} if requests else requested


def exact(resources: Json | None) -> Json | None:
    if resources is None:
        return None
    return {side: {name: parse_quantity(text) for name, text in amounts.items()} for side, amounts in resources.items()}


@pytest.fixture
def namespaces(api_alone: ControlPlane) -> Iterator[list[str]]:
    names = [f"limit-range-{index}" for index in range(len(RANGES))]
    for name, range_spec in zip(names, RANGES, strict=True):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        limits = {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "range", "namespace": name},
            "spec": {"limits": [{"type": "Container", **range_spec}]},
        }
        api_alone.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, account, limits)
    yield names
    for name in names:
        api_alone.api.request("DELETE", f"/api/v1/namespaces/{name}")


def test_range_defaults_and_denies_like_limit_ranger(api_alone: ControlPlane, namespaces: list[str]) -> None:
    differences = []
    for namespace, range_spec in zip(namespaces, RANGES, strict=True):
        rules = msgspec.convert({"container": range_spec}, ResourceRules, dec_hook=lambda _, text: Quantity.parse(text))
        plan = RangePlan.from_rules(rules)
        for requested in ({}, *REQUESTED[1:]):
            by_limit_ranger, by_range = (
                exact(resources_by_limit_ranger(api_alone, namespace, requested)),
                exact(resources_by_range(plan, requested)),
            )
            if by_limit_ranger not in (by_range, exact(INVALID)):
                differences.append((range_spec, requested, by_limit_ranger, by_range))
    assert differences == []
