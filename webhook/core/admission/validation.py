"""Validation: the final Pod satisfies its service's policy, and Podgate's own fields are unchanged."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from webhook.core import container_resources, placement
from webhook.core.admission.decision import Finding
from webhook.core.admission.mutation import HASH_ANNOTATION, QUEUE_GATE, has_queue_gate
from webhook.core.findings import Code, Violation, shorten_text, shorten_value
from webhook.core.groups.membership import GROUP_ANNOTATION
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_size import OversizedPod
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.model import FailureMode, Service
from webhook.core.policy_fields import Mode, WhenOpen

USERS_OWN = frozenset(
    {
        Code.PLACEMENT_CONFLICT,
        Code.PLACEMENT_CONTRADICTION,
        Code.PLACEMENT_NOT_ALLOWED,
        Code.NODE_NAME_SET,
        Code.RESOURCES_OUTSIDE,
    }
)
"""Violations written by the user; all others mean that the rewrite is missing or was undone."""
GATE = "spec.schedulingGates"
_LABEL = f"metadata.labels[{SERVICE_LABEL}]"
_ANNOTATION = f"metadata.annotations[{HASH_ANNOTATION}]"
_GROUP = f"metadata.annotations[{GROUP_ANNOTATION}]"


def find_own_mode(service: Service) -> Mode:
    """Return the mode for Podgate's own label and annotation: the strictest mode of the service's stanzas.

    Absent stanzas do not count: a service that only tries a policy out must see nothing denied.
    """
    modes = service.modes
    stanzas = (service.placement, service.resources, service.quota or service.pool, service.breaker)
    of_each = (modes.placement, modes.resources, modes.quota, modes.breaker)
    in_force = {mode for stanza, mode in zip(stanzas, of_each, strict=True) if stanza is not None}
    in_force = in_force.union(rule.mode for rule in service.rules) or set(of_each)
    return next((mode for mode in (Mode.ENFORCE, Mode.WARN) if mode in in_force), Mode.AUDIT)


def find_gate_mode(service: Service) -> Mode | None:
    """Return the mode for Podgate's scheduling gate: the stricter mode of quota and queueing breaker, if any.

    A Pod may wait although its service's Pods no longer do: it is not charged yet.
    """
    quota, breaker = service.quota or service.pool, service.breaker
    modes = {service.modes.quota} if quota else set[Mode]()
    if breaker is not None and breaker.when_open is WhenOpen.QUEUE:
        modes.add(service.modes.breaker)
    return next((mode for mode in (Mode.ENFORCE, Mode.WARN, Mode.AUDIT) if mode in modes), None)


def check(pod: Pod, service: Service, *, hash_known: bool, stored: Pod | None = None) -> tuple[Finding, ...]:
    """Return all violations of a service's policy by a new Pod.

    For concerns in Warn or Audit, `pod` must be as Enforce would have written it: see `enforcement_preview`; `stored`:
    the Pod without that, whose QoS class an enforced placement goes by.
    `hash_known`: the Pod was rewritten by the same policy. If not, a missing rewrite cannot be told from another
    policy's rewrite, and is not reported as MutationMissing.
    """
    if service.modes.is_all_disabled():
        return ()
    labels = pod.labels
    skipped = SERVICE_LABEL not in labels or HASH_ANNOTATION not in pod.annotations
    placed = stored if stored is not None and service.modes.placement is Mode.ENFORCE else pod
    unfulfilled = tuple(_check_fields(placed, pod, service))
    carried = labels.get(SERVICE_LABEL, service.name)
    foreign = () if carried == service.name else (_build_label_finding(carried, service, was_rewritten=not skipped),)
    if skipped and hash_known:
        # The rewrite never happened: report only what the user wrote.
        return (
            _build_missing_mutation_finding(pod, service),
            *foreign,
            *(found for found in unfulfilled if found.code in USERS_OWN),
        )
    return (*foreign, *unfulfilled)


def _check_fields(placed: Pod, ranged: Pod, service: Service) -> Iterator[Finding]:
    """Yield the violations in the fields of the Pod that each concern checks. ValueError: an unreadable quantity."""
    for concern, pod in (("placement", placed), ("resources", ranged)):
        mode, lacks = _find_violations(pod, service, concern)
        yield from _build_findings(lacks, service, concern, mode)
    plan, mode = service.placement_plan, service.modes.placement
    if plan is not None and (plan.required or plan.node_selector) and mode is not Mode.DISABLED:
        hopeless = placement.find_contradiction(placed)
        if hopeless is not None:
            # Affinity terms are ANDed, so such a Pod is never scheduled to a wrong node: a warning is enough.
            (found,) = _build_findings(
                [hopeless], service, "placement", Mode.AUDIT if mode is Mode.AUDIT else Mode.WARN
            )
            yield replace(found, is_advice=True)


def _find_violations(pod: Pod, service: Service, concern: str, old: Pod | None = None) -> tuple[Mode, list[Violation]]:
    """Return the mode of one concern and its violations, without those that `old` already had."""
    if concern == "placement":
        mode, plan = service.modes.placement, service.placement_plan
        if plan is None or mode is Mode.DISABLED:
            return mode, []
        return mode, placement.find_violations(pod, plan) if old is None else placement.find_update_violations(
            old, pod, plan
        )
    mode, ranged = service.modes.resources, service.range_plan
    return mode, [] if ranged is None or mode is Mode.DISABLED else container_resources.find_violations(
        pod, ranged, old
    )


def _build_findings(lacks: Iterable[Violation], service: Service, concern: str, mode: Mode) -> Iterator[Finding]:
    for lack in lacks:
        yield Finding(lack.code, concern, mode, shorten_text(f"service {service.name}: {lack.text}"), lack.field)


def check_size(service: Service, excess: OversizedPod, *, differs: bool = False) -> tuple[Finding, ...]:
    """Return the finding about an oversized Pod; an UPDATE of a Pod that was oversized before is only warned about.

    `differs`: the UPDATE changes what cannot be judged of an oversized Pod.
    """
    if service.modes.is_all_disabled():
        return ()
    mode, remedy = find_own_mode(service), ""
    if excess.was_before and differs:
        remedy = ", in an UPDATE that changes nothing else"
    elif excess.was_before and mode is Mode.ENFORCE:
        mode = Mode.WARN
    message = f"service {service.name}: {excess.text}{remedy}"
    return (Finding(Code.POD_TOO_LARGE, "placement", mode, message, "spec"),)


def check_foreign_label(named: Service) -> tuple[Finding, ...]:
    """Return the finding about a new Pod of no service that carries the label of the service `named`."""
    message = (
        f"{_LABEL} is {named.name!r}, and service {named.name} does not match this Pod:"
        " leave the label out, Podgate writes it"
    )
    return (_build_immutable_finding(named, _LABEL, message),)


def build_change_finding(service: Service, field: str, before: str | None, after: str | None) -> Finding:
    """Return the finding about an UPDATE of a label or annotation of Podgate's; None for one that is absent."""
    message = (
        f"service {service.name}: {field} is Podgate's and cannot be changed"
        f" (was {_quote(before)}, asked {_quote(after)}); leave it as it is"
    )
    return _build_immutable_finding(service, field, message)


def _build_immutable_finding(service: Service, field: str, message: str) -> Finding:
    """Return the finding about a changed field of Podgate's."""
    return Finding(Code.IMMUTABLE, "placement", find_own_mode(service), message, field)


def _build_missing_mutation_finding(pod: Pod, service: Service) -> Finding:
    missing = [f"label {SERVICE_LABEL}"] * (SERVICE_LABEL not in pod.labels)
    missing += [f"annotation {HASH_ANNOTATION}"] * (HASH_ANNOTATION not in pod.annotations)
    mode, admits = find_own_mode(service), service.failure_mode is FailureMode.OPEN
    return Finding(
        Code.MUTATION_MISSING,
        "placement",
        Mode.WARN if mode is Mode.ENFORCE and admits else mode,
        f"service {service.name}: the Pod was not rewritten ({' and '.join(missing)} missing): the mutating call was"
        " skipped or undone; try again, and check that the webhook podgate is reachable and rendered from this policy",
        "metadata",
        is_advice=admits,
    )


def _build_label_finding(carried: str, service: Service, *, was_rewritten: bool) -> Finding:
    remedy = "something changed the Pod after Podgate; leave the label alone"
    if not was_rewritten:
        remedy = "leave the label out, Podgate writes it"
    message = f"service {service.name}: {_LABEL} is {shorten_value(carried)!r}, expected {service.name!r}: {remedy}"
    return _build_immutable_finding(service, _LABEL, message)


def check_update(old: Pod, new: Pod, service: Service, *, resized: bool = False) -> tuple[Finding, ...]:
    """Return the violations by an UPDATE: a changed field of Podgate's, a loosened placement, a resize out of range.

    A Pod may be older than the policy: violations that it already had are not reported.
    """
    if service.modes.is_all_disabled():
        return ()
    findings = [
        build_change_finding(service, field, before, after)
        for field, before, after in (
            (_LABEL, old.labels.get(SERVICE_LABEL), new.labels.get(SERVICE_LABEL)),
            (_ANNOTATION, old.annotations.get(HASH_ANNOTATION), new.annotations.get(HASH_ANNOTATION)),
            (_GROUP, old.annotations.get(GROUP_ANNOTATION), new.annotations.get(GROUP_ANNOTATION)),
        )
        if before != after and (field is not _GROUP or has_queue_gate(old))
    ]
    findings += _check_gate_removal(old, new, service)
    concern = "resources" if resized else "placement"
    mode, newly = _find_violations(new, service, concern, old)
    findings += _build_findings(newly, service, concern, mode)
    return tuple(findings)


def _check_gate_removal(old: Pod, new: Pod, service: Service) -> Iterator[Finding]:
    """Yield the violation by the removal of Podgate's gate: its controller's own removals are not checked."""
    mode = find_gate_mode(service)
    if mode is None or not has_queue_gate(old) or has_queue_gate(new):
        return
    message = (
        f"service {service.name}: {GATE} had {QUEUE_GATE}, which only Podgate removes, once the Pod is charged:"
        f" wait, delete the Pod, or have an admin run podgate quota grant {service.name}"
    )
    yield Finding(Code.IMMUTABLE, "placement", mode, message, GATE)


def _quote(value: str | None) -> str:
    return "absent" if value is None else repr(shorten_value(value))
