"""A null that removes nothing: lint and the JSON schema accept it in the same fields, and it changes nothing."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from webhook.core.document import DocumentError, schema
from webhook.core.document.loading import load_unproved

VALIDATOR = Draft202012Validator(schema())
EXAMPLE = yaml.safe_load((Path(__file__).parent / "complete_example.yaml").read_text())
SELECTING = yaml.safe_load("""
apiVersion: podgate.io/v1alpha1
kind: Policy
pools: [{name: prod, windows: [{window: 1m, hard: {pods: 300}}]}]
services:
- name: a
  pool: prod
  match:
    namespaces: [x]
    namespaceSelector: {matchLabels: {tier: prod}}
    podSelector: {matchLabels: {app: a}, matchExpressions: [{key: k, operator: In, values: [v]}]}
  placement:
    nodeSelector: {disk-type: ssd}
    labels: {team: {fromNamespace: team}, queue: prod}
    onConflict: {default: Deny, priorityClassName: Keep}
    affinity:
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: k, operator: In, values: [v]}]}]
      podAntiAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
        - {weight: 1, podAffinityTerm: {topologyKey: zone, labelSelector: {matchLabels: {app: a}}}}
    tolerations: [{key: gpu, operator: Exists}]
  quota: {standing: {hard: {pods: 9, memory: 4Gi}}, windows: [{window: 1m, hard: {pods: 3}}]}
""")
FieldPath = tuple[str | int, ...]


def list_paths(part: Any, path: FieldPath = ()) -> Iterator[FieldPath]:
    steps = part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ()
    for step, inner in steps:
        yield (*path, step)
        yield from list_paths(inner, (*path, step))


def set_null(document: dict[str, Any], path: FieldPath) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    part: Any = changed
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = None
    return changed


def is_refusing_nulls(document: dict[str, Any]) -> bool:
    """Return whether lint refuses a null itself; what its absence means is another question."""
    try:
        load_unproved(yaml.safe_dump(document, sort_keys=False).encode(), None)
    except DocumentError as error:
        return any(problem.value == "null" for problem in error.problems)
    return False


@pytest.mark.parametrize("document", [EXAMPLE, SELECTING], ids=["complete", "selecting"])
def test_lint_and_schema_accept_a_null_in_the_same_fields(document: dict[str, Any]) -> None:
    assert VALIDATOR.is_valid(document)
    paths = [*list_paths(document)]
    with_nulls = {path: set_null(document, path) for path in paths}
    found = {
        path: (not VALIDATOR.is_valid(changed), is_refusing_nulls(changed)) for path, changed in with_nulls.items()
    }
    assert {path: results for path, results in found.items() if len({*results}) > 1} == {}
    assert set(found.values()) == {(True, True), (False, False)}


@pytest.mark.parametrize("defaults", ["", "defaults: {quota: {standing: {hard: {pods: 5}}}}\n"])
@pytest.mark.parametrize(
    ("service", "path"),
    [
        ("  failureMode: null\n", "failureMode"),
        ("  breaker:\n", "breaker"),
        ("  quota: {standing: {hard: {memory: null, pods: 1}}}\n", "quota.standing.hard.memory"),
        ("  placement: {nodeSelector: {disk-type: null}, schedulerName: s}\n", "placement.nodeSelector.disk-type"),
    ],
)
def test_null_that_removes_nothing_is_accepted_changes_nothing_and_is_named(
    defaults: str, service: str, path: str
) -> None:
    head = "apiVersion: podgate.io/v1alpha1\nkind: Policy\n" + defaults
    head += "services:\n- name: a\n  match: {namespaces: [x]}\n"
    loaded = load_unproved((head + service).encode(), None)
    [advice] = [str(problem) for problem in loaded.warnings if "removes nothing" in str(problem)]
    assert f"services[0].{path}: " in advice
    assert "`defaults` has no such key: write a value, or remove the key" in advice
    rest = service.replace("memory: null, ", "").replace("nodeSelector: {disk-type: null}, ", "")
    without = "" if "null" in rest or rest.endswith(":\n") else rest
    assert loaded.policy == load_unproved((head + without).encode(), None).policy
