"""Probes: a Pod that a service owns, and how the API server's answers are read."""

from typing import Any

import pytest

from webhook.core.document import Purpose, load
from webhook.core.installation import probe
from webhook.core.installation.call_remedies import FLAG, find_remedy
from webhook.core.policy.model import Policy

SELECTORS = [
    ("{matchLabels: {app: web}}", {"app": "web"}),
    ("{matchExpressions: [{key: tier, operator: In, values: [b, a]}]}", {"tier": "a"}),
    ("{matchExpressions: [{key: tier, operator: Exists}]}", {"tier": "podgate-probe"}),
    ("{matchExpressions: [{key: old, operator: DoesNotExist}]}", {}),
    ("{matchExpressions: [{key: a, operator: Exists}, {key: a, operator: NotIn, values: [podgate-probe]}]}", None),
]


def policy(services: str) -> Policy:
    text = f"apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n{services}"
    return load(text.encode(), Purpose.SERVE).policy.policy


def service(name: str, match: str, more: str = "placement: {nodeSelector: {disk: ssd}}") -> str:
    return f"- {{name: {name}, match: {match}, {more}}}\n"


@pytest.mark.parametrize(("selector", "labels"), SELECTORS)
def test_pod_has_labels_that_its_service_selects(selector: str, labels: dict[str, str] | None) -> None:
    found = probe.find_pod_probe(
        policy(service("web", f"{{namespaces: [shop], podSelector: {selector}}}")), {"shop": {}}
    )
    assert found is not None
    assert found.service == "web"
    assert found.pod["metadata"]["namespace"] == "shop"
    assert labels is None or found.pod["metadata"]["labels"] == labels


@pytest.mark.parametrize("namespaces", [{}, {"other": {}}, {"kube-system": {}}, {"exempt-1": {}}])
def test_no_pod_is_tried_without_a_namespace_of_a_service(namespaces: dict[str, dict[str, str]]) -> None:
    found = policy(
        service("web", "{namespaces: [shop, kube-system, exempt-1]}") + "exemptions: {namespaces: ['exempt-*']}\n"
    )
    assert probe.find_pod_probe(found, namespaces) is None


def test_namespace_is_selected_by_its_labels() -> None:
    found = policy(service("prod", "{namespaceSelector: {matchLabels: {tier: prod}}}"))
    chosen = probe.find_pod_probe(found, {"a": {"tier": "test"}, "b": {"tier": "prod"}})
    assert chosen is not None
    assert chosen.pod["metadata"]["namespace"] == "b"


def test_service_that_writes_nothing_proves_nothing() -> None:
    off = "modes: {placement: Disabled, quota: Disabled, breaker: Disabled, resources: Disabled}"
    assert probe.find_pod_probe(policy(service("web", "{namespaces: [shop]}", off)), {"shop": {}}) is None


def test_first_service_that_selects_the_pod_is_the_owner() -> None:
    narrow = service("first", "{namespaces: [shop], podSelector: {matchLabels: {app: web}}}")
    services = narrow + service("second", "{namespaces: [shop]}")
    found = probe.find_pod_probe(policy(services), {"shop": {}})
    assert found is not None
    assert found.service == "first"


@pytest.mark.parametrize(
    ("labels", "annotations", "expected"),
    [
        ({"podgate.io/service": "web"}, {"podgate.io/policy-hash": "0"}, True),
        ({"podgate.io/service": "other"}, {"podgate.io/policy-hash": "0"}, False),
        ({"podgate.io/service": "web"}, None, False),
        (None, None, False),
    ],
)
def test_rewritten_pod_carries_label_and_annotation(labels: Any, annotations: Any, expected: bool) -> None:  # noqa: FBT001  a parameter
    found = probe.find_pod_probe(policy(service("web", "{namespaces: [shop]}")), {"shop": {}})
    assert found is not None
    assert found.is_rewritten({"metadata": {"labels": labels, "annotations": annotations}}) is expected


def test_errors_of_the_api_server_are_told_apart() -> None:
    denied = 'admission webhook "policy.podgate.io" denied the request: PolicyInvalid'
    failed = 'failed calling webhook "mutate.podgate.io": failed to call webhook: Post "https://x": EOF'
    others = 'admission webhook "other.example.com" denied the request: no'
    assert [probe.is_denied_by_podgate(text) for text in (denied, failed, others)] == [True, False, False]
    assert [probe.find_failed_call(text) for text in (denied, others)] == ["", ""]
    assert probe.find_failed_call(failed) == 'failed to call webhook: Post "https://x": EOF'


@pytest.mark.parametrize(
    ("reason", "part"),
    [
        ("dial tcp 127.0.0.1:8443: connect: connection refused", "nothing listens"),
        ("tls: failed to verify certificate: x509: certificate signed by unknown authority", "caBundle"),
        ("remote error: tls: certificate required", FLAG),
        ('Post "https://x": EOF', FLAG),
        ("the server has asked for the client to provide credentials", FLAG),
        ("dial tcp: lookup podgate.podgate-system.svc: no such host", "cannot reach"),
        ("context deadline exceeded", "cannot reach"),
        ('Post "https://h:1/mutate?timeout=5s": write tcp h:2->h:1: use of closed network connection', FLAG),
        ("", FLAG),
    ],
)
def test_remedy_fits_the_reason(reason: str, part: str) -> None:
    assert part in find_remedy(reason)
