from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.core.document.documents import HEAD, build_document, list_problems, load_only_service
from tests.core.oracle.merging import merge_patch
from webhook.core.document.defaults import ATOMIC, advise_on_merge, merge_defaults
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.reader import read_yaml

KEYS = st.sampled_from(["a", "b", "c", "placement", "quota", *sorted(ATOMIC)])
VALUES = st.recursive(
    st.sampled_from(["x", "y", 1, True]),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=2),
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)


def merge_documents(defaults: Any, service: Any) -> Any:
    document = yaml.safe_dump({"defaults": defaults, "services": [service]}, sort_keys=False)
    node: Node = merge_defaults(read_yaml(document.encode()).root)
    plain: Any = node.strip_positions()
    return plain["services"][0]


@given(OBJECTS, OBJECTS)
def test_defaults_are_an_rfc_7386_merge_patch(defaults: dict[str, Any], service: dict[str, Any]) -> None:
    assert merge_documents(defaults, service) == merge_patch(defaults, service)


@given(OBJECTS)
def test_empty_service_gets_the_defaults(defaults: dict[str, Any]) -> None:
    assert merge_documents(defaults, {}) == defaults


@given(OBJECTS, OBJECTS)
def test_merging_again_changes_nothing(defaults: dict[str, Any], service: dict[str, Any]) -> None:
    merged_once = merge_documents(defaults, service)
    assert merge_documents(defaults, merged_once) == merged_once


def test_null_removes_a_default() -> None:
    document = HEAD + (
        "defaults: {failureMode: Closed, placement: {schedulerName: s, nodeSelector: {a: b}}}\n"
        "services:\n- name: a\n  match: {namespaces: [x]}\n  failureMode: null\n  placement: {schedulerName: null}\n"
    )
    service = load_only_service(document)
    assert service.failure_mode == "Open"
    assert service.placement is not None
    assert service.placement.scheduler_name is None
    assert service.placement.node_selector == {"a": "b"}


def test_lists_are_replaced_as_a_whole() -> None:
    document = HEAD + (
        "defaults: {quota: {windows: [{window: 1m, hard: {pods: 1}}, {window: 1h, hard: {pods: 9}}]}}\n"
        "services:\n- name: a\n  match: {namespaces: [x]}\n  quota: {windows: [{window: 5m, hard: {pods: 2}}]}\n"
    )
    quota = load_only_service(document).quota
    assert quota is not None
    assert [window.window.text for window in quota.windows] == ["5m"]


def test_a_mistake_in_defaults_is_reported_once_and_at_its_own_line() -> None:
    services = "services:\n" + "".join(f"- {{name: s{n}, match: {{namespaces: [n{n}]}}}}\n" for n in range(5))
    [line] = list_problems(HEAD + "defaults:\n  breaker:\n    openFor: soon\n    quotaExceeded: {}\n" + services)
    assert line.startswith("5:14: defaults.breaker.openFor: soon: ")


def test_default_that_every_service_replaces_is_checked() -> None:
    document = (
        HEAD
        + "defaults: {failureMode: Shut}\n"
        + "services: [{name: a, match: {namespaces: [x]}, failureMode: Open}]\n"
    )
    [line] = list_problems(document)
    assert line.startswith("3:25: defaults.failureMode: Shut: ")


def test_service_may_complete_an_incomplete_default() -> None:
    document = HEAD + (
        "defaults: {breaker: {errorRate: {percent: 50}}}\n"
        "services:\n- name: a\n  match: {namespaces: [x]}\n"
        "  breaker: {outcomes: {source: Pushed, reporters: [edge]}}\n"
    )
    assert list_problems(document) == []


def test_absent_fields_get_built_in_defaults() -> None:
    service = load_only_service(build_document("  quota: {windows: [{window: 1m, hard: {pods: 1}}]}\n"))
    quota = msgspec.to_builtins(service.quota, enc_hook=str)
    assert quota["denial"] == {"status": 429, "retryAfter": "Never"}
    assert (quota["per"], quota["scope"], quota["whenStoreUnavailable"]) == ("Service", "Cluster", "Local")
    assert (service.sla_class, service.failure_mode, service.pool) == ("bronze", "Open", None)


MATCH = "services:\n- name: a\n  match: {namespaces: [x]}\n"


def test_a_limit_of_defaults_stays_beside_a_service_s_own() -> None:
    document = HEAD + (
        "defaults: {quota: {standing: {hard: {pods: 200, memory: 400Gi}}}}\n"
        + MATCH
        + "  quota: {standing: {hard: {pods: 50}}}\n"
    )
    quota = load_only_service(document).quota
    assert quota is not None
    assert quota.standing is not None
    assert {name: amount.text for name, amount in quota.standing.hard.items()} == {"pods": "50", "memory": "400Gi"}


def test_a_limit_under_another_name_of_its_resource_replaces_the_default() -> None:
    document = HEAD + (
        "defaults: {quota: {standing: {hard: {requests.cpu: 40, memory: 1Gi}}}}\n"
        + MATCH
        + "  quota: {standing: {hard: {cpu: 10, requests.memory: null}}}\n"
    )
    quota = load_only_service(document).quota
    assert quota is not None
    assert quota.standing is not None
    assert {name: amount.text for name, amount in quota.standing.hard.items()} == {"cpu": "10"}


@pytest.mark.parametrize("hard", ["{cpu: 10, requests.cpu: null}", "{requests.cpu: null, cpu: 10}"])
def test_a_limit_may_be_removed_under_one_name_and_written_under_the_other(hard: str) -> None:
    document = HEAD + "defaults: {quota: {standing: {hard: {requests.cpu: 40}}}}\n" + MATCH
    quota = load_only_service(document + f"  quota: {{standing: {{hard: {hard}}}}}\n").quota
    assert quota is not None
    assert quota.standing is not None
    assert {name: amount.text for name, amount in quota.standing.hard.items()} == {"cpu": "10"}


def test_the_selector_of_pods_to_be_near_to_is_replaced_as_a_whole() -> None:
    nodes = "nodes: {sources: [{metricsAPI: {}}]}\n"
    default = "defaults: {scheduling: {near: {to: {matchLabels: {app: redis}}, levels: [Zone]}}}\n"
    own = "  scheduling: {near: {to: {matchLabels: {tier: db}}}}\n"
    scheduling = load_only_service(HEAD + nodes + default + MATCH + own).scheduling
    assert scheduling is not None
    assert scheduling.near is not None
    assert scheduling.near.to.match_labels == {"tier": "db"}
    assert scheduling.near.levels == ("Zone",)


PCI = (
    "defaults: {placement: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution:"
    " {nodeSelectorTerms: [{matchExpressions: [{key: compliance, operator: In, values: [pci]}]}]}}}}}\n"
)
SPREAD = (
    "{preferredDuringSchedulingIgnoredDuringExecution:"
    " [{weight: 1, podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {}}}]}"
)


def test_a_required_affinity_of_defaults_stays_beside_a_service_s_own() -> None:
    for affinity, has_own in (("{}", False), (f"{{podAntiAffinity: {SPREAD}}}", True)):
        service = load_only_service(HEAD + PCI + MATCH + f"  placement: {{affinity: {affinity}}}\n")
        assert service.placement is not None
        merged_affinity = service.placement.affinity
        assert merged_affinity is not None
        assert merged_affinity.node_affinity is not None
        assert merged_affinity.node_affinity.required is not None
        assert (merged_affinity.pod_anti_affinity is not None) is has_own


def list_advice(document: str) -> list[str]:
    return [str(problem) for problem in advise_on_merge(read_yaml((HEAD + document).encode()).root)]


def test_a_default_replaced_in_part_is_noted() -> None:
    [note] = list_advice(
        "defaults: {quota: {standing: {hard: {pods: 200, memory: 400Gi}}}}\n"
        + MATCH
        + "  quota: {standing: {hard: {pods: 50}}}\n"
    )
    assert note == (
        "7:22: services[0].quota.standing.hard: {...}: replaces pods of `defaults` in line 3; memory still applies:"
        " keep it so, or remove that too with memory: null"
    )


def test_a_default_that_is_kept_removed_or_replaced_whole_is_not_noted() -> None:
    default = "defaults: {quota: {standing: {hard: {pods: 200, memory: 400Gi}}}}\n" + MATCH
    for hard in ("{cpu: 1}", "{pods: 50, memory: null}", "{pods: null}", "{pods: 1, requests.memory: 1Gi}"):
        assert list_advice(default + f"  quota: {{standing: {{hard: {hard}}}}}\n") == []
    assert list_advice(default) == []


def test_an_affinity_of_defaults_replaced_in_part_is_noted() -> None:
    default = PCI.replace("nodeAffinity:", f"podAntiAffinity: {SPREAD}, nodeAffinity:", 1) + MATCH
    [note] = list_advice(default + f"  placement: {{affinity: {{podAntiAffinity: {SPREAD}}}}}\n")
    assert "replaces podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution of `defaults`" in note
    assert "nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms still applies" in note
