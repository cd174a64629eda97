"""Faults of webhook configurations, each alone: its finding, and the command that renders all of them again."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.core.checks.checks import CHECKS, FACTS
from webhook.core.checks import ClusterFacts
from webhook.core.checks.check import run_check
from webhook.core.checks.facts import TrustFact
from webhook.core.checks.objects import ClusterMetadata, ClusterObject
from webhook.core.checks.repair_command import build_render_command
from webhook.core.document import Purpose, load
from webhook.core.document.configmap import KEY, ConfigMap
from webhook.core.webhook_configurations import ClientConfig, ServiceReference, render_configurations

NAME_LABEL = "kubernetes.io/metadata.name"
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: shop
  match: {namespaces: [shop], podSelector: {matchLabels: {app: shop}}}
  placement: {nodeSelector: {kubernetes.io/os: linux}}
- name: web
  match: {namespaces: [web]}
  failureMode: Closed
  quota: {windows: [{window: 1m, hard: {pods: 10}}]}
"""
SHOP, WEB = (ClusterObject(ClusterMetadata(name=name, labels={NAME_LABEL: name})) for name in ("shop", "web"))
Json = dict[str, Any]


@pytest.fixture
def healthy() -> ClusterFacts:
    """Return facts with the webhooks of a policy, in a cluster with the namespaces of its services."""
    policy = load(POLICY.encode(), Purpose.SERVE).policy
    rendered = render_configurations(policy.policy, ClientConfig(ServiceReference(), b"CA"), policy.hash)
    mutating, validating, of_policy = live = copy.deepcopy(rendered)
    for configuration in live:
        configuration["metadata"]["resourceVersion"] = "1"
    trust = [TrustFact("ValidatingWebhookConfiguration/podgate", "validate-closed.podgate.io", "")]
    return replace(
        FACTS,
        policy_map=ConfigMap(data={KEY: POLICY}),
        mutating=[mutating],
        validating=[validating, of_policy],
        namespaces=[SHOP, WEB],
        trust=trust,
    )


def select_no_shop(mutating: Json, _: Json) -> None:
    for webhook in mutating["webhooks"]:
        nowhere = {"key": NAME_LABEL, "operator": "NotIn", "values": ["shop", "web"]}
        webhook["namespaceSelector"].setdefault("matchExpressions", []).append(nowhere)


def select_all(_: Json, validating: Json) -> None:
    validating["webhooks"][0].update(failurePolicy="Fail", namespaceSelector={}, matchConditions=[])


FAULTS: dict[str, Callable[[Json, Json], object]] = {
    "webhooks-stale": lambda mutating, _: mutating["webhooks"][0].update(matchConditions=[]),
    "failure-policy": lambda _, validating: validating["webhooks"][0].update(failurePolicy="Ignore"),
    "namespaces-left-out": select_no_shop,
    "own-namespace-selected": select_all,
    "webhook-timeout": lambda mutating, _: mutating["webhooks"][0].update(timeoutSeconds=1),
}


def list_found(facts: ClusterFacts) -> dict[str, set[str]]:
    """Return the commands of the findings by code."""
    found = {code: run_check(CHECKS[code], facts).findings for code in ("webhooks-missing", "ca-bundle", *FAULTS)}
    return {code: {finding.command for finding in findings} for code, findings in found.items() if findings}


def test_webhooks_as_rendered_have_no_finding(healthy: ClusterFacts) -> None:
    assert list_found(healthy) == {}


@pytest.mark.parametrize("code", FAULTS)
def test_a_changed_webhook_is_found_and_rendered_again(healthy: ClusterFacts, code: str) -> None:
    FAULTS[code](healthy.mutating[0], healthy.validating[0])
    found = list_found(healthy)
    assert found.pop(code) == {build_render_command(healthy)}
    assert found.keys() <= {"webhooks-stale"}, "another fault"


def test_a_ca_bundle_of_another_authority_is_rendered_again(healthy: ClusterFacts) -> None:
    [trust] = healthy.trust
    facts = replace(healthy, trust=[trust._replace(error="unknown authority")])
    assert list_found(facts) == {"ca-bundle": {build_render_command(facts)}}


def test_a_webhook_configuration_that_is_absent_is_rendered_again(healthy: ClusterFacts) -> None:
    facts = replace(healthy, mutating=[])
    found = list_found(facts)
    assert found == {"webhooks-missing": {build_render_command(facts)}}
