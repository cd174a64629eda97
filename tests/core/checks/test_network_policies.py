"""NetworkPolicies in reduced mode: which ones restrict callers, and how an installation corrects the others."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

from tests.core.checks.checks import CHECKS, FACTS, decode_object
from webhook.core.checks.check import run_check
from webhook.core.checks.facts import ClusterFacts
from webhook.core.checks.objects import NetworkPolicyObject
from webhook.core.document.configmap import ConfigMap

ROOT = Path(__file__).parents[3]
SERVER_LABELS = {"app.kubernetes.io/name": "podgate"}
REDUCED = replace(FACTS, status={**FACTS.status, "clientIdentity": "reduced"})
API_SERVER = [{"ipBlock": {"cidr": "10.0.0.1/32"}}]
EVERYBODY = "absent: it admits every address"


def list_found_values(facts: ClusterFacts) -> list[str]:
    return [seen.value for seen in run_check(CHECKS["reduced-unprotected"], facts).findings]


def network_policy(*rules: dict[str, Any], name: str = "x", helm: bool = False, **spec: Any) -> NetworkPolicyObject:
    labels = {"app.kubernetes.io/managed-by": "Helm"} if helm else {}
    spec = {"podSelector": {"matchLabels": SERVER_LABELS}, "ingress": rules, **spec}
    return cast(
        "NetworkPolicyObject",
        decode_object(NetworkPolicyObject, {"metadata": {"name": name, "labels": labels}, "spec": spec}),
    )


def shipped_policies(path: str) -> list[NetworkPolicyObject]:
    documents = yaml.safe_load_all((ROOT / "manifests" / path).read_text())
    return [decode_object(NetworkPolicyObject, document) for document in documents]


@pytest.mark.parametrize(
    ("policies", "found"),
    [
        ([network_policy({"from": API_SERVER})], []),
        ([network_policy({"from": API_SERVER, "ports": [{"port": 8443}]}, {"ports": [{"port": 8081}]})], []),
        ([network_policy({"ports": [{"port": "plain"}]})], []),
        ([network_policy({"ports": [{"port": 8443, "protocol": "UDP"}]})], []),
        ([network_policy({"from": [{"podSelector": {}}]})], []),
        ([network_policy({"from": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.244.0.0/16"]}}]})], []),
        ([network_policy({})], [EVERYBODY]),
        ([network_policy({"from": []})], [EVERYBODY]),
        ([network_policy({"ports": [{"port": "admission"}]})], [EVERYBODY]),
        ([network_policy({"ports": [{"port": 8000, "endPort": 9000}]})], [EVERYBODY]),
        ([network_policy({"from": [*API_SERVER, {"ipBlock": {"cidr": "::/0"}}]})], ["::/0: it admits every address"]),
        (
            [network_policy({"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}}]})],
            ["namespaceSelector: it admits Pods of every namespace"],
        ),
        ([network_policy({"from": API_SERVER}), network_policy({})], [EVERYBODY]),
        ([network_policy({"from": API_SERVER}), network_policy({}, podSelector={"matchLabels": {"a": "b"}})], []),
        ([network_policy({"from": API_SERVER}), network_policy({}, policyTypes=["Egress"])], []),
        (shipped_policies("base/35-networkpolicy.yaml"), [EVERYBODY]),
        (
            shipped_policies("components/reduced/35-networkpolicy.yaml"),
            [f"192.0.2.{number}/32: a placeholder, not your API server" for number in (1, 2)],
        ),
    ],
)
def test_reduced_mode_wants_every_policy_to_restrict_callers(
    policies: list[NetworkPolicyObject], found: list[str]
) -> None:
    """What several policies admit adds up."""
    assert list_found_values(replace(REDUCED, network_policies=policies)) == found


def test_who_authenticates_callers_needs_no_policy() -> None:
    assert list_found_values(FACTS) == []


def test_only_an_egress_policy_leaves_reduced_mode_unprotected() -> None:
    facts = replace(REDUCED, network_policies=[network_policy(policyTypes=["Egress"])])
    [value] = list_found_values(facts)
    assert "no NetworkPolicy selects the servers" in value


@pytest.mark.parametrize(
    ("policies", "is_recorded", "words", "command"),
    [
        ([], False, "manifests/components/reduced/35-networkpolicy.yaml and apply it", ""),
        ([], True, "repeat podgate install", ""),
        (
            shipped_policies("components/reduced/35-networkpolicy.yaml"),
            True,
            "replace it by the addresses",
            "kubectl edit networkpolicy podgate-reduced -n podgate-system",
        ),
        (
            shipped_policies("components/reduced/35-networkpolicy.yaml"),
            False,
            "in manifests/components/reduced/35-networkpolicy.yaml",
            "",
        ),
        (
            [network_policy({"from": API_SERVER}), *shipped_policies("base/35-networkpolicy.yaml")],
            False,
            "delete it",
            "kubectl delete networkpolicy podgate -n podgate-system",
        ),
        (shipped_policies("base/35-networkpolicy.yaml"), True, "repeat podgate install", ""),
        ([network_policy({}, helm=True)], False, "networkPolicy.admissionFrom", ""),
        ([network_policy({})], False, "name your API servers only, or delete it", ""),
    ],
)
def test_remedy_of_unprotected_reduced_mode_is_that_of_the_installation(
    policies: list[NetworkPolicyObject], words: str, command: str, *, is_recorded: bool
) -> None:
    record = ConfigMap(data={"mode": "reduced", "certificates": "files"}) if is_recorded else None
    facts = replace(REDUCED, network_policies=policies, record_map=record)
    finding, *_ = run_check(CHECKS["reduced-unprotected"], facts).findings
    assert words in finding.remedy
    assert finding.command == command
