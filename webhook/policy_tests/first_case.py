"""First test of an object: the present effect of a policy, as a document for the user to narrow."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webhook.commands.pages.yaml_text import format_yaml
from webhook.commands.review_object import ReviewedObject
from webhook.core.admission.decision import Decision
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.placement import SERVICE_LABEL
from webhook.policy_tests.comparison import ABSENT, CaseAnswer, find_value, format_field

_OWN = frozenset({SERVICE_LABEL, HASH_ANNOTATION})
_COMMENT = "# What the policy does today. Keep what must stay so.\n"


def build_first_test(
    judged: list[ReviewedObject], manifest: Path, policy: Path, folder: Path, labels: Mapping[str, Any]
) -> str:
    """Return a test with a case for each object; paths are relative to `folder`, in which the new file is."""
    cases = []
    for reviewed in judged:
        case: dict[str, Any] = {"name": f"{reviewed.subject.name}: {reviewed.admission.validated.verdict}"}
        # The file is named only if it has one object: a case has one expectation.
        case["objects"] = [_format_relative(manifest, folder)] if len(judged) == 1 else [dict(reviewed.subject.written)]
        cases.append({**case, "expect": _build_expectation(reviewed)})
    document = {"apiVersion": "podgate.io/v1alpha1", "kind": "PolicyTest", "policy": _format_relative(policy, folder)}
    namespaces = {"namespaceLabels": labels} if labels else {}
    return _COMMENT + format_yaml({**document, **namespaces, "cases": cases})


def _build_expectation(judged: ReviewedObject) -> dict[str, Any]:
    answer, decision = CaseAnswer(judged.admission), judged.admission.validated
    expect: dict[str, Any] = {"decision": str(decision.verdict)}
    if decision.service is not None:
        expect["service"] = decision.service
    expect["codes"] = list(answer.codes)
    if answer.warnings:
        expect["warnings"] = [warning.partition(":")[0] for warning in answer.warnings]
    patched = _list_patched(judged.admission.mutated, judged.admission.pod) if decision.allowed else {}
    return expect | ({"patched": patched} if patched else {})


def _list_patched(mutated: Decision, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the written fields by path, without the service and the policy's hash."""
    found = {}
    for operation in mutated.patch:
        steps = _name_containers(
            pod, [step.replace("~1", "/").replace("~0", "~") for step in operation.path.split("/")[1:]]
        )
        path = format_field(tuple(steps))
        value = find_value(pod, path)
        is_label = steps[0] == "metadata" and isinstance(value, str) and steps[-1] not in _OWN
        if value is not ABSENT and (steps[0] == "spec" or is_label):
            found[path] = value
    return found


def _name_containers(pod: Mapping[str, Any], steps: list[str]) -> list[str]:
    """Return the steps of a pointer, with the name of a container in place of its index."""
    if len(steps) > 2 and steps[0] == "spec" and steps[1].endswith("ontainers"):  # noqa: PLR2004  spec, field, index
        containers = pod["spec"][steps[1]]
        if steps[2].isdecimal() and int(steps[2]) < len(containers):
            return [*steps[:2], containers[int(steps[2])]["name"], *steps[3:]]
    return steps


def _format_relative(path: Path, folder: Path) -> str:
    return os.path.relpath(path, folder)
