"""Differences of two policies for one Pod: verdict, owner, placement, resources, charge and findings."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

from webhook.core.admission.decision import Decision, Verdict
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.placement import SERVICE_LABEL
from webhook.core.shares import DELETION_COST, SLOT_ANNOTATIONS

_OWN_KEYS = frozenset({HASH_ANNOTATION, SERVICE_LABEL, *SLOT_ANNOTATIONS, DELETION_COST})
"""What Podgate writes besides the placement: a slot says nothing but by its variant."""


class Difference(StrEnum):
    """What the candidate changes for a Pod."""

    DENIED = "denied"
    """It is no longer admitted: denied, or made to wait."""
    ADMITTED = "admitted"
    """It is admitted now."""
    OWNER = "owner"
    PLACEMENT = "placement"
    RESOURCES = "resources"
    CHARGE = "charge"
    FINDINGS = "findings"
    """Other codes, or other modes of them."""


class JudgedPod(NamedTuple):
    """The decision about a new Pod, and the Pod as it would be stored."""

    decision: Decision
    pod: Mapping[str, Any]


def find_differences(before: JudgedPod, after: JudgedPod) -> list[Difference]:
    """Return how the decisions about one Pod differ, in the order of `Difference`."""
    former, new = before.decision, after.decision
    found = {
        Difference.DENIED: _is_admitted(former) and not _is_admitted(new),
        Difference.ADMITTED: _is_admitted(new) and not _is_admitted(former),
        Difference.OWNER: former.service != new.service,
        Difference.PLACEMENT: _select_placement(before.pod) != _select_placement(after.pod),
        Difference.RESOURCES: _select_resources(before.pod) != _select_resources(after.pod),
        Difference.CHARGE: _select_charge(former) != _select_charge(new),
        Difference.FINDINGS: _list_findings(former) != _list_findings(new),
    }
    return [difference for difference, is_found in found.items() if is_found]


def _is_admitted(decision: Decision) -> bool:
    """Whether the Pod may be scheduled now: a waiting one is created, and may not."""
    return decision.allowed and decision.verdict is not Verdict.QUEUE


def _select_placement(pod: Mapping[str, Any]) -> list[Any]:
    """Return the fields of a Pod that a placement may set."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    keys = [
        {key: value for key, value in (metadata.get(field) or {}).items() if key not in _OWN_KEYS}
        for field in ("labels", "annotations")
    ]
    without = {"containers", "initContainers", "resources", "schedulingGates"}
    return [*keys, {field: value for field, value in spec.items() if field not in without}]


def _select_resources(pod: Mapping[str, Any]) -> list[Any]:
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    return [spec.get("resources"), *(container.get("resources") for container in containers)]


def _select_charge(decision: Decision) -> Any:
    """Return the counters that the Pod is charged to, with the amounts; None without limits. `hard` is no part."""
    asked = decision.charge.asked
    if asked is None or not asked.plan.limits:
        return None
    plan = asked.plan
    pool = plan.pool.name if plan.pool else ""
    counters = {
        (holder, window.seconds, limit.counts): asked.cost.get(limit.counts, 0) for holder, window, limit in plan.limits
    }
    return plan.key, plan.fleet, pool, plan.scope_of(asked), counters


def _list_findings(decision: Decision) -> set[tuple[str, str]]:
    return {(finding.code, finding.mode) for finding in decision.findings}
