"""`container` of a range compared with the API server's own LimitRanger."""

import itertools
from collections.abc import Iterator
from typing import Any

import jsonpatch
import msgspec
import pytest

from tests.cluster.controlplane import ControlPlane
from webhook.core.container_resources import RangePlan, operations, violations
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.quantity import Quantity, quantity_value
from webhook.core.policy_spec import ResourceRules

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
]
ASKED: list[Json] = [
    {side: dict.fromkeys(NAMES, amount) for side, amount in (("requests", request), ("limits", limit)) if amount}
    for request, limit in itertools.product((None, "3", "9"), repeat=2)
    if not (request == "9" and limit == "3")  # never a Pod
]


INVALID = {"limits": {"below": "1"}}
"""LimitRanger's default limit is below the user's request: no Pod. A range gives the request as the limit instead."""


def of_kubernetes(plane: ControlPlane, namespace: str, asked: Json) -> Json | None:
    """Return a container's resources as the API server has them in the end, None where LimitRanger refuses it."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"generateName": "p-"},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": asked}]},
    }
    status, answer = plane.api.request("POST", f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)
    if status == 422:
        assert "must be less than or equal to" in answer["message"]
        return INVALID
    assert status in {201, 403}, answer
    return None if status == 403 else answer["spec"]["containers"][0]["resources"]


def of_ours(plan: RangePlan, asked: Json) -> Json | None:
    """Return the same by a range: rewritten, with what is still absent as the API server makes it; None if refused."""
    spec = {"containers": [{"name": "c", "resources": with_requests(asked)}]}
    pod = msgspec.convert({"metadata": {}, "spec": spec}, Pod)
    after = jsonpatch.apply_patch({"spec": spec}, msgspec.to_builtins(operations(pod, plan)))["spec"]
    if violations(msgspec.convert({"metadata": {}, "spec": after}, Pod), plan):
        return None
    return with_requests(after["containers"][0]["resources"])


def with_requests(asked: Json) -> Json:
    requests = {**(asked.get("limits") or {}), **(asked.get("requests") or {})}
    return {**asked, "requests": requests} if requests else asked


def exact(resources: Json | None) -> Json | None:
    if resources is None:
        return None
    return {side: {name: quantity_value(text) for name, text in found.items()} for side, found in resources.items()}


@pytest.fixture
def namespaces(api_alone: ControlPlane) -> Iterator[list[str]]:
    names = [f"limit-range-{index}" for index in range(len(RANGES))]
    for name, words in zip(names, RANGES, strict=True):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": name}}
        limits = {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "range", "namespace": name},
            "spec": {"limits": [{"type": "Container", **words}]},
        }
        api_alone.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}, account, limits)
    yield names
    for name in names:
        api_alone.api.request("DELETE", f"/api/v1/namespaces/{name}")


def test_range_defaults_and_denies_like_limit_ranger(api_alone: ControlPlane, namespaces: list[str]) -> None:
    differences = []
    for namespace, words in zip(namespaces, RANGES, strict=True):
        rules = msgspec.convert({"container": words}, ResourceRules, dec_hook=lambda _, text: Quantity.parse(text))
        plan = RangePlan.of(rules)
        for asked in ({}, *ASKED[1:]):
            theirs, ours = exact(of_kubernetes(api_alone, namespace, asked)), exact(of_ours(plan, asked))
            if theirs not in (ours, exact(INVALID)):
                differences.append((words, asked, theirs, ours))
    assert differences == []
