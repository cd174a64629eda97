"""Refusals that are not Podgate's: by ResourceQuota, PodSecurity, other webhooks and policies, with remedies."""

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from webhook.core.admission.decision import Half
from webhook.core.diagnosis.facts import Surroundings, WorkloadFacts
from webhook.core.diagnosis.refusals import CreateFailure
from webhook.core.diagnosis.report import Cause
from webhook.core.placement.plan import PlacementPlan
from webhook.core.policy.matching import NAME_LABEL
from webhook.core.policy.model import Service


class _ClassField(NamedTuple):
    """A field of a Pod that names a class, and the message about a class that does not exist."""

    kind: str
    field: str
    absent: re.Pattern[str]
    read_plan: Callable[[PlacementPlan], str | None]


_CLASS_FIELDS = (
    _ClassField(
        "PriorityClass",
        "priorityClassName",
        re.compile(r"no PriorityClass with name (\S+) was found"),
        lambda plan: plan.priority_class_name,
    ),
    _ClassField(
        "RuntimeClass",
        "runtimeClassName",
        re.compile(r'RuntimeClass "([^"]+)" not found'),
        lambda plan: plan.runtime_class_name,
    ),
)
_REMEDIES = (
    (
        re.compile(r"exceeded quota: (?P<name>[^,\s]+)"),
        "raise ResourceQuota {name} in namespace {namespace}, or end Pods that it counts",
    ),
    (
        re.compile(r"failed quota: (?P<name>[^:\s]+): must specify (?P<what>.*)"),
        "set in the Pod template what ResourceQuota {name} counts: {what}",
    ),
    (
        re.compile(r'violates PodSecurity "[^"]+"'),
        "change the Pod template accordingly, or label pod-security.kubernetes.io/enforce of namespace {namespace}",
    ),
    (
        re.compile(r'error looking up service account \S+: serviceaccount "(?P<name>[^"]+)" not found'),
        "kubectl create serviceaccount {name} -n {namespace}",
    ),
    (
        re.compile(r"ValidatingAdmissionPolicy '(?P<name>[^']+)'"),
        "change the Pod template as ValidatingAdmissionPolicy {name} asks",
    ),
    (
        re.compile(r"(?:minimum|maximum) \S+ (?:usage|limit to request ratio) per (?:Container|Pod)"),
        "keep the resources in the Pod template within kubectl get limitrange -n {namespace}",
    ),
    (re.compile(r'Pod "[^"]*" is invalid: '), "correct the Pod template as the message says"),
)


def explain_other_denial(facts: WorkloadFacts, found: CreateFailure, around: Surroundings) -> Cause:
    """Return who refused a Pod if Podgate did not, and the remedy."""
    absent = _find_absent_class(facts, found.message, around)
    return absent or Cause(f"{found.by}{found.message}", _find_remedy(facts.namespace, found))


def _find_remedy(namespace: str, found: CreateFailure) -> str:
    if found.webhook and not found.was_called:
        return f"see that the service of webhook {found.webhook} answers"
    if found.webhook:
        return f"change the Pod template as webhook {found.webhook} asks"
    for pattern, remedy in _REMEDIES:
        if match := pattern.search(found.message):
            return remedy.format(namespace=namespace, **match.groupdict())
    return ""


def _find_absent_class(facts: WorkloadFacts, message: str, around: Surroundings) -> Cause | None:
    """Return which class does not exist, and who names it: the policy's service, or the Pod template."""
    for class_field in _CLASS_FIELDS:
        found = class_field.absent.search(message)
        if found is None:
            continue
        name, writers = found[1], _list_writing_services(facts, around)
        plans = ((service, service.placement_plan) for service in writers)
        writer = next(
            (service for service, plan in plans if plan is not None and class_field.read_plan(plan) == name), None
        )
        kind, field = class_field.kind, class_field.field
        if writer is None:
            remedy = f"create {kind} {name}, or correct spec.{field} in the Pod template"
            return Cause(f"not by Podgate: {message}", remedy)
        text = f"{kind} {name} does not exist, and service {writer.name} writes it (placement.{field})"
        return Cause(text, f"create {kind} {name}, or change placement.{field} of service {writer.name}")
    return None


def _list_writing_services(facts: WorkloadFacts, around: Surroundings) -> Iterator[Service]:
    """Yield the service that may have rewritten the Pod: by the newest record, or else by the policy in force."""
    record = next((record for record in facts.records if record.half is Half.MUTATE and not record.dry_run), None)
    policy = around.find_policy(record.policy) if record is not None else around.in_force
    if policy is None:
        return
    if record is not None:
        found = policy.services.get(record.service)
    else:
        labels = {NAME_LABEL: facts.namespace, **around.namespace_labels}
        found = policy.matcher.find_owner(facts.namespace, labels, None, None)
    if found is not None:
        yield found
