"""The validating half's checks: the final Pod keeps its service's placement, and our own fields are untouched."""

from collections.abc import Iterable
from typing import NamedTuple

from webhook.core.decision import Code, Finding
from webhook.core.kubernetes import Toleration
from webhook.core.mutation import (
    DEFAULT_SCHEDULER,
    HASH_ANNOTATION,
    SERVICE_LABEL,
    implied,
    missing_tolerations,
    required_expressions,
    rule_for,
    scheduler_conflicts,
)
from webhook.core.pod import Pod
from webhook.core.policy import FailureMode, Service
from webhook.core.stanzas import Mode, OnConflict, Placement

_LABEL = f"metadata.labels[{SERVICE_LABEL}]"
_ANNOTATION = f"metadata.annotations[{HASH_ANNOTATION}]"
_TERMS = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"


def own_mode(service: Service) -> Mode:
    """Return how strictly our own label and annotation are guarded: as strictly as the strictest stanza in force.

    A stanza that is absent is not in force, whatever its mode: who only tries things out must see nothing denied.
    """
    modes = service.modes
    stanzas = (service.placement, service.resources, service.quota, service.breaker)
    of_each = (modes.placement, modes.resources, modes.quota, modes.breaker)
    in_force = {mode for stanza, mode in zip(stanzas, of_each, strict=True) if stanza is not None} or set(of_each)
    return next((mode for mode in (Mode.ENFORCE, Mode.WARN) if mode in in_force), Mode.AUDIT)


def check(pod: Pod, service: Service, *, hash_known: bool) -> tuple[Finding, ...]:
    """Return everything that keeps a new Pod from its service's policy.

    `hash_known`: the policy that we judge by is the one that the Pod was rewritten by. Where it is not, a missing
    rewrite cannot be told from another policy's, and is not called MutationMissing.
    """
    if service.modes.all_disabled():
        return ()
    labels = pod.labels
    skipped = SERVICE_LABEL not in labels or HASH_ANNOTATION not in pod.annotations
    placement, mode = service.placement, service.modes.placement
    unfulfilled: tuple[Finding, ...] = ()
    if placement is not None and mode is not Mode.DISABLED:
        unfulfilled = placement_findings(pod, service.name, placement, mode)
    if skipped and hash_known:
        # What is merely missing was never written; what the user asked for himself can be judged all the same.
        conflicts = tuple(found for found in unfulfilled if found.code is Code.PLACEMENT_CONFLICT)
        return (_mutation_missing(pod, service), *conflicts)
    if skipped or labels[SERVICE_LABEL] == service.name:
        return unfulfilled
    return (_label(labels[SERVICE_LABEL], service), *unfulfilled)


def check_unowned(named: Service) -> tuple[Finding, ...]:
    """Return what is wrong with a new Pod of no service that carries the label of the service `named`."""
    message = (
        f"{_LABEL} is {named.name!r}, and service {named.name} does not match this Pod:"
        " leave the label out, Podgate writes it"
    )
    return (_immutable(named, _LABEL, message),)


def _immutable(service: Service, field: str, message: str) -> Finding:
    """Say that a field of ours was touched."""
    return Finding(Code.IMMUTABLE, "placement", own_mode(service), message, field)


def _mutation_missing(pod: Pod, service: Service) -> Finding:
    missing = [f"label {SERVICE_LABEL}"] * (SERVICE_LABEL not in pod.labels)
    missing += [f"annotation {HASH_ANNOTATION}"] * (HASH_ANNOTATION not in pod.annotations)
    mode = own_mode(service)
    if mode is Mode.ENFORCE and service.failure_mode is FailureMode.OPEN:
        mode = Mode.WARN
    return Finding(
        Code.MUTATION_MISSING,
        "placement",
        mode,
        f"service {service.name}: the Pod was not rewritten ({' and '.join(missing)} missing): the mutating call was"
        " skipped or undone; try again, and see whether the webhook podgate is reachable",
        "metadata",
    )


def _label(carried: str, service: Service) -> Finding:
    message = (
        f"service {service.name}: {_LABEL} is {carried!r}, expected {service.name!r}:"
        " something changed the Pod after Podgate; leave the label alone"
    )
    return _immutable(service, _LABEL, message)


def placement_findings(pod: Pod, service: str, placement: Placement, mode: Mode) -> tuple[Finding, ...]:
    """Return what the Pod's fields leave unfulfilled of a placement, field by field."""
    lacks = _lacks(pod, placement)
    return _findings(lacks, service, mode) if lacks else ()


class _Lack(NamedTuple):
    """One thing that a placement owes; `owed` names it whatever the Pod has in its stead."""

    code: Code
    field: str
    owed: str
    text: str


def _lacks(pod: Pod, placement: Placement) -> list[_Lack]:
    return [
        *_scheduler_name(pod, placement),
        *_node_selector(pod, placement),
        *_topology(pod, placement),
        *_tolerations(pod, placement),
    ]


def _findings(lacks: Iterable[_Lack], service: str, mode: Mode) -> tuple[Finding, ...]:
    return tuple(Finding(lack.code, "placement", mode, f"service {service}: {lack.text}", lack.field) for lack in lacks)


def _scheduler_name(pod: Pod, placement: Placement) -> list[_Lack]:
    wanted, own = placement.scheduler_name, pod.spec.scheduler_name or DEFAULT_SCHEDULER
    if wanted is None or own == wanted:
        return []
    conflict = scheduler_conflicts(pod, wanted)
    rule = rule_for(placement.on_conflict, "scheduler_name")
    if conflict and rule is OnConflict.KEEP:
        return []
    return [_differs("spec.schedulerName", own, wanted, conflict=conflict and rule is OnConflict.DENY)]


def _node_selector(pod: Pod, placement: Placement) -> list[_Lack]:
    if not placement.node_selector:
        return []
    own, rule = pod.spec.node_selector or {}, rule_for(placement.on_conflict, "node_selector")
    found: list[_Lack] = []
    for key, wanted in placement.node_selector.items():
        value = own.get(key)
        conflict = value is not None and value != wanted
        if value != wanted and not (conflict and rule is OnConflict.KEEP):
            is_users = conflict and rule is OnConflict.DENY
            found.append(_differs(f"spec.nodeSelector[{key}]", value, wanted, conflict=is_users))
    return found


def _differs(field: str, own: str | None, wanted: str, *, conflict: bool) -> _Lack:
    """Tell the user's own contradiction from a rewrite that got lost: the remedies differ."""
    is_text = "is missing" if own is None else f"is {own!r}"
    if conflict:
        remedy = f"the policy sets {wanted!r}; remove the field from the Pod or set it to {wanted!r}"
        return _Lack(Code.PLACEMENT_CONFLICT, field, field, f"{field} {is_text}, {remedy}")
    return _Lack(Code.PLACEMENT_UNFULFILLED, field, field, f"{field} {is_text}, expected {wanted!r}")


def _topology(pod: Pod, placement: Placement) -> list[_Lack]:
    """Return one lack for each requirement, however many terms miss it: a tenant chooses how many there are."""
    affinity = pod.spec.affinity
    required = None
    if affinity is not None and affinity.node_affinity is not None:
        required = affinity.node_affinity.requiredDuringSchedulingIgnoredDuringExecution
    terms = (required.node_selector_terms or ()) if required is not None else ()
    found: list[_Lack] = []
    for wanted in required_expressions(placement):
        open_terms = [index for index, term in enumerate(terms) if not implied(term, wanted)]
        if required is not None and not open_terms:
            continue
        expected = f"{wanted.key} In [{', '.join(wanted.values or ())}]"
        if required is None:
            text = f"required node affinity is missing, expected {expected}"
            found.append(_Lack(Code.PLACEMENT_UNFULFILLED, _TERMS, expected, text))
        else:
            first, others = open_terms[0], len(open_terms) - 1
            which = f"nodeSelectorTerms[{first}]" + (f" and {others} more allow" if others else " allows")
            text = f"required node affinity: {which} other nodes, expected {expected} in every term"
            found.append(_Lack(Code.PLACEMENT_UNFULFILLED, f"{_TERMS}[{first}]", expected, text))
    return found


def _tolerations(pod: Pod, placement: Placement) -> list[_Lack]:
    return [
        _Lack(Code.PLACEMENT_UNFULFILLED, "spec.tolerations", words, f"spec.tolerations lacks {words}")
        for words in map(_words, missing_tolerations(pod, placement))
    ]


def _words(toleration: Toleration) -> str:
    value = f"={toleration.value}" if toleration.operator == "Equal" else f" {toleration.operator} {toleration.value}"
    return f"{toleration.key or '*'}{value.rstrip()}:{toleration.effect or '*'}"


def guard(old: Pod, new: Pod, service: Service) -> tuple[Finding, ...]:
    """Return what an UPDATE may not do: touch our label or annotation, or loosen the placement of a gated Pod.

    A gated Pod may outlive the policy that it was made under: what it lacked before is not held against it.
    """
    if service.modes.all_disabled():
        return ()
    findings = [
        _immutable(
            service,
            field,
            f"service {service.name}: {field} is Podgate's and cannot be changed"
            f" (was {_quoted(before)}, asked {_quoted(after)}); leave it as it is",
        )
        for field, before, after in (
            (_LABEL, old.labels.get(SERVICE_LABEL), new.labels.get(SERVICE_LABEL)),
            (_ANNOTATION, old.annotations.get(HASH_ANNOTATION), new.annotations.get(HASH_ANNOTATION)),
        )
        if before != after
    ]
    placement, mode = service.placement, service.modes.placement
    if old.spec.scheduling_gates and placement is not None and mode is not Mode.DISABLED:
        lacked = {lack.owed for lack in _lacks(old, placement)}
        loosened = (lack for lack in _lacks(new, placement) if lack.owed not in lacked)
        findings += _findings(loosened, service.name, mode)
    return tuple(findings)


def _quoted(value: str | None) -> str:
    return "absent" if value is None else repr(value)
