from typing import Any

import msgspec
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.core.document.documents import HEAD, only_service, problems, with_service
from webhook.core.document.defaults import ATOMIC, with_defaults
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.reader import read

KEYS = st.sampled_from(["a", "b", "c", "placement", "quota", *sorted(ATOMIC)])
VALUES = st.recursive(
    st.sampled_from(["x", "y", 1, True]),
    lambda inner: st.dictionaries(KEYS, inner, max_size=4) | st.lists(inner, max_size=2),
)
OBJECTS = st.dictionaries(KEYS, VALUES, max_size=5)


def merge_patch(target: Any, patch: Any, key: str = "") -> Any:
    """RFC 7386, section 2, with the atomic fields that the policy adds."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(target, dict) or key in ATOMIC:
        return patch
    result = dict(target)
    for name, value in patch.items():
        result[name] = merge_patch(result.get(name), value, name)
    return result


def merged(defaults: Any, service: Any) -> Any:
    document = yaml.safe_dump({"defaults": defaults, "services": [service]}, sort_keys=False)
    node: Node = with_defaults(read(document.encode()).root)
    plain: Any = node.plain()
    return plain["services"][0]


@given(OBJECTS, OBJECTS)
def test_defaults_are_an_rfc_7386_merge_patch(defaults: dict[str, Any], service: dict[str, Any]) -> None:
    assert merged(defaults, service) == merge_patch(defaults, service)


@given(OBJECTS)
def test_empty_service_gets_the_defaults(defaults: dict[str, Any]) -> None:
    assert merged(defaults, {}) == defaults


@given(OBJECTS, OBJECTS)
def test_merging_again_changes_nothing(defaults: dict[str, Any], service: dict[str, Any]) -> None:
    merged_once = merged(defaults, service)
    assert merged(defaults, merged_once) == merged_once


def test_null_removes_a_default() -> None:
    document = HEAD + (
        "defaults: {failureMode: Closed, placement: {schedulerName: s, nodeSelector: {a: b}}}\n"
        "services:\n- name: a\n  match: {namespaces: [x]}\n  failureMode: null\n  placement: {schedulerName: null}\n"
    )
    service = only_service(document)
    assert service.failure_mode == "Open"
    assert service.placement is not None
    assert service.placement.scheduler_name is None
    assert service.placement.node_selector == {"a": "b"}


def test_lists_are_replaced_as_a_whole() -> None:
    document = HEAD + (
        "defaults: {quota: {windows: [{window: 1m, hard: {pods: 1}}, {window: 1h, hard: {pods: 9}}]}}\n"
        "services:\n- name: a\n  match: {namespaces: [x]}\n  quota: {windows: [{window: 5m, hard: {pods: 2}}]}\n"
    )
    quota = only_service(document).quota
    assert quota is not None
    assert [window.window.text for window in quota.windows] == ["5m"]


def test_a_mistake_in_defaults_is_reported_once_and_at_its_own_line() -> None:
    services = "services:\n" + "".join(f"- {{name: s{n}, match: {{namespaces: [n{n}]}}}}\n" for n in range(5))
    [line] = problems(HEAD + "defaults:\n  breaker:\n    openFor: soon\n    quotaExceeded: {}\n" + services)
    assert line.startswith("5:14: defaults.breaker.openFor: soon: ")


def test_default_that_every_service_replaces_is_checked() -> None:
    document = (
        HEAD
        + "defaults: {failureMode: Shut}\n"
        + "services: [{name: a, match: {namespaces: [x]}, failureMode: Open}]\n"
    )
    [line] = problems(document)
    assert line.startswith("3:25: defaults.failureMode: Shut: ")


def test_service_may_complete_an_incomplete_default() -> None:
    document = HEAD + (
        "defaults: {breaker: {errorRate: {percent: 50}}}\n"
        "services:\n- name: a\n  match: {namespaces: [x]}\n"
        "  breaker: {outcomes: {source: Pushed, reporters: [edge]}}\n"
    )
    assert problems(document) == []


def test_absent_fields_get_built_in_defaults() -> None:
    service = only_service(with_service("  quota: {windows: [{window: 1m, hard: {pods: 1}}]}\n"))
    quota = msgspec.to_builtins(service.quota, enc_hook=str)
    assert quota["denial"] == {"status": 429, "retryAfter": "Never"}
    assert (quota["per"], quota["scope"], quota["whenStoreUnavailable"]) == ("Service", "Cluster", "Local")
    assert (service.sla_class, service.failure_mode, service.pool) == ("bronze", "Open", None)
