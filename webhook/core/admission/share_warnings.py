"""Warnings about workloads whose Pods are divided over variants: labels that Podgate chooses, and Jobs that fail."""

from collections.abc import Iterator, Mapping
from typing import Any

from webhook.core.admission.decision import Finding
from webhook.core.admission.evaluation import Evaluation
from webhook.core.findings import Code, shorten_value
from webhook.core.placement import VARIANT_LABEL
from webhook.core.policy_fields import Mode
from webhook.core.workloads.workload import Json, read_items, read_mapping

_LABEL = f"spec.template.metadata.labels[{VARIANT_LABEL}]"
_DISRUPTED = "DisruptionTarget"


def check_workload(evaluation: Evaluation) -> Iterator[Finding]:
    """Yield the findings about a workload of a service with shares."""
    workload, labels = evaluation.request.workload, evaluation.pod.labels
    if workload is None:
        return
    head = f"service {evaluation.owner.name}: "
    if VARIANT_LABEL in labels:
        text = (
            f"{_LABEL} is {shorten_value(labels[VARIANT_LABEL])!r}, and Podgate alone chooses the variant;"
            " remove the label from the template, and from the selector of the workload"
        )
        yield Finding(Code.PLACEMENT_CONFLICT, "placement", Mode.ENFORCE, head + text, _LABEL)
    elif _selects_by_variant(workload.spec.get("selector")):
        text = (
            f"spec.selector reads {VARIANT_LABEL}, which Podgate writes: a controller that does not know its Pods by"
            " the selector makes others without end; select by other labels"
        )
        yield Finding(Code.SHARES_UNSAFE, "placement", Mode.WARN, head + text, "spec.selector")
    if workload.kind == "Job" and not _ignores_disruptions(workload.spec.get("podFailurePolicy")):
        text = (
            "spec.podFailurePolicy does not ignore disruptions: a Pod that is evicted because its variant has no node"
            " counts towards backoffLimit; with restartPolicy: Never, write rules: [{action: Ignore, onPodConditions:"
            f" [{{type: {_DISRUPTED}}}]}}] first"
        )
        yield Finding(Code.SHARES_UNSAFE, "placement", Mode.WARN, head + text, "spec.podFailurePolicy")


def _selects_by_variant(selector: Any) -> bool:
    """Return whether a selector reads the label. Requirements of a wrong type are the API server's to refuse."""
    given = read_mapping(selector)
    expressions = [read_mapping(expression) for expression in read_items(given.get("matchExpressions"))]
    is_of_labels = not {"matchLabels", "matchExpressions"} & given.keys()  # of a ReplicationController
    exact = given if is_of_labels else read_mapping(given.get("matchLabels"))
    return VARIANT_LABEL in exact or any(expression.get("key") == VARIANT_LABEL for expression in expressions)


def _ignores_disruptions(policy: Any) -> bool:
    """Return whether the first rule about disrupted Pods ignores them: Kubernetes stops at the first that matches."""
    rules = [read_mapping(rule) for rule in read_items(read_mapping(policy).get("rules"))]
    return next((rule.get("action") == "Ignore" for rule in rules if _is_about_disruptions(rule)), False)


def _is_about_disruptions(rule: Json) -> bool:
    conditions: list[Mapping[str, Any]] = [read_mapping(item) for item in read_items(rule.get("onPodConditions"))]
    return any(
        condition.get("type") == _DISRUPTED and condition.get("status", "True") == "True" for condition in conditions
    )
