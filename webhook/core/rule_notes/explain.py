"""Notes for the entries of a policy: what each did to a Pod, why it did nothing, and in which stage of a review."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from webhook.core import container_resources, placement
from webhook.core.admission import mutation, rewrite_warnings
from webhook.core.admission.decision import Decision, Half
from webhook.core.findings import Violation
from webhook.core.kubernetes.name_patterns import matches_any
from webhook.core.kubernetes.pod import Pod
from webhook.core.placement import allowed, scalar_fields
from webhook.core.policy.model import Service
from webhook.core.policy_fields import LabelSource, Mode
from webhook.core.rule_notes import words
from webhook.core.rule_notes.attribution import Case, credit_entries
from webhook.core.rule_notes.changes import Piece
from webhook.core.rule_notes.entries import PolicyEntry, list_entries, locate_variant_entries


class Act(StrEnum):
    """Effect of an entry, shown as the sign before its line."""

    WROTE = "+"
    NOTHING = "="
    LEFT = "!"
    IDLE = "-"


class ChangedField(NamedTuple):
    """One change, by JSON Pointer into the rewritten Pod, or for a removal into the original Pod."""

    pointer: str
    place: str
    """The place as text for readers."""
    words: str
    is_removal: bool


class Note(NamedTuple):
    """The effect of one entry on a Pod. `owed`: violations that the validating half reports."""

    rule: str
    act: Act
    words: str
    marks: tuple[ChangedField, ...] = ()
    owed: tuple[Violation, ...] = ()
    is_wish: bool = False
    is_checked: bool = False


def explain(
    document: Any,
    service: Service,
    policy_hash: str,
    namespace_labels: Mapping[str, str] | None = None,
    variant: str = "",
) -> tuple[Note, ...]:
    """Return a note for every entry of a service's placement and resources, and for Podgate's own label and annotation.

    `document` is the new Pod as submitted, `service` as in the policy. `variant`: the one that the Pod gets, "" for a
    Pod without a slot. ValueError: an unreadable quantity.
    """
    if variant in service.variants:
        found = explain(document, service.variants[variant], policy_hash, namespace_labels)
        places = locate_variant_entries(service, variant)
        return tuple(note._replace(rule=places.get(note.rule, note.rule)) for note in found)
    sources = _find_sources(service)
    service = service.resolve_namespace(namespace_labels or {})
    case = Case.from_document(document, service, policy_hash)
    notes = {
        entry.rule: _build_note(entry._replace(source=sources.get(entry.rule)), case, service, mine)
        for entry, mine in credit_entries(case)
    }
    ordered = [notes.get(entry.rule) or _build_idle_note(entry) for entry in list_entries(service)]
    return (_build_identity_note(case, service), *ordered, *_note_combined(case, service))


def _find_sources(service: Service) -> dict[str, LabelSource]:
    """Return the label that each label or annotation is copied from, by rule."""
    placement = service.placement
    kinds = {} if placement is None else {"labels": placement.labels, "annotations": placement.annotations}
    return {
        f"placement.{kind}[{key}]": value
        for kind, values in kinds.items()
        for key, value in values.items()
        if isinstance(value, LabelSource)
    }


def _build_idle_note(entry: PolicyEntry) -> Note:
    return Note(entry.rule, Act.IDLE, "mode Disabled: not evaluated", is_wish=entry.is_wish)


def _build_note(entry: PolicyEntry, case: Case, service: Service, mine: frozenset[Piece]) -> Note:
    mode: Mode = getattr(service.modes, entry.concern)
    marks, lacking = _list_marks(entry, case, mine), _find_violations(entry, case.after)
    if marks and mode is not Mode.ENFORCE:
        would_write = ", ".join(mark.place for mark in marks)
        act, text, marks = Act.IDLE, [f"mode {mode}: not acted on, would write {would_write}"], ()
    elif marks and not lacking:
        act, text = Act.WROTE, _list_descriptions(marks)
    else:
        act = Act.LEFT if lacking else Act.NOTHING
        text = [*_list_descriptions(marks), words.describe_nothing(entry, case.after, lacking, mode)]
    judged = case.stored if mode is Mode.ENFORCE else case.after  # as in the validating half
    owed = tuple(_find_violations(entry, judged))
    return Note(entry.rule, act, "; ".join(text), marks, owed, entry.is_wish, is_checked=not entry.is_wish)


def _list_descriptions(marks: tuple[ChangedField, ...]) -> list[str]:
    """Return the distinct descriptions of what was written; "set" where some have none."""
    different = list(dict.fromkeys(mark.words for mark in marks if not mark.is_removal))
    return [words or "set" for words in different] if any(different) else []


def _list_marks(entry: PolicyEntry, case: Case, mine: frozenset[Piece]) -> tuple[ChangedField, ...]:
    credited = [(change, at, piece.value) for change in case.found for at, piece in change.pieces if piece in mine]
    shared = words.describe_all(entry, case.pod, case.after, [(change, at) for change, at, _ in credited])
    return tuple(
        ChangedField(
            at,
            rewrite_warnings.format_path(case.pod if change.after is None else case.after, at),
            (shared if change.after is not None else "")
            or words.describe_change(
                entry,
                case.pod,
                change,
                at,
                msgspec.json.decode(value) if value else None,
            ),
            change.after is None,
        )
        for change, at, value in credited
    )


def _find_violations(entry: PolicyEntry, pod: Pod) -> list[Violation]:
    plan, ranged = entry.alone.placement_plan, entry.alone.range_plan
    found = [] if plan is None else list(placement.find_violations(pod, plan))
    return found if ranged is None else found + container_resources.find_violations(pod, ranged)


def _build_identity_note(case: Case, service: Service) -> Note:
    """Return the note for Podgate's label and annotation."""
    rule = "service"
    if service.modes.is_all_disabled():
        return Note(rule, Act.IDLE, "all modes are Disabled: neither label nor annotation is written")
    marks = tuple(
        ChangedField(
            at,
            rewrite_warnings.format_path(case.after, at),
            _OURS[part] + ("" if change.former is None else ", overrides what the Pod had"),
            is_removal=False,
        )
        for change in case.found
        for at, piece in change.pieces
        if piece in case.ours
        for part in _OURS
        if part in piece.place
    )
    return Note(rule, Act.WROTE if marks else Act.NOTHING, "" if marks else "already so", marks)


_OURS = {"labels": "the service of the Pod", "annotations": "the policy that rewrote it"}


def _note_node_name(pod: Pod, service: Service) -> Iterator[Note]:
    """Yield a note for a Pod with a nodeName."""
    plan, own = service.placement_plan, pod.spec.node_name
    if plan is None or not own or service.modes.placement is Mode.DISABLED:
        return
    rule, owed = "placement.allowNodeName", tuple(scalar_fields.find_node_name_violations(pod, plan))
    if owed:
        yield Note(rule, Act.LEFT, f"false: spec.nodeName {own} is not allowed", owed=owed, is_checked=True)
    else:
        yield Note(rule, Act.NOTHING, f"true: spec.nodeName {own} stays, and no scheduler places the Pod")


def _note_allow(case: Case, service: Service) -> Iterator[Note]:
    """Yield a note for `allow`."""
    plan = service.placement_plan
    if plan is None or not allowed.has_requirements(plan) or service.modes.placement is Mode.DISABLED:
        return
    pod = case.stored if service.modes.placement is Mode.ENFORCE else case.after
    owed = tuple(allowed.find_violations(pod, plan.adapt_to_pod(pod, case.qos)))
    if owed:
        yield Note(
            "placement.allow", Act.LEFT, "; ".join(violation.text for violation in owed), owed=owed, is_checked=True
        )
    else:
        yield Note("placement.allow", Act.NOTHING, "all that the Pod sets is allowed", is_checked=True)


def _note_combined(case: Case, service: Service) -> Iterator[Note]:
    """Yield notes for effects of several entries."""
    yield from _note_node_name(case.pod, service)
    yield from _note_allow(case, service)
    rules = service.resources
    if rules is None or service.modes.resources is Mode.DISABLED:
        return
    containers = (*(case.pod.spec.containers or ()), *(case.pod.spec.init_containers or ()))
    ignored = [container.name for container in containers if matches_any(rules.container.ignore, container.name)]
    if ignored:
        yield Note("resources.container.ignore", Act.NOTHING, f"leaves {', '.join(ignored)} alone")
    moved = mutation.find_qos_change(case.pod, service)
    if moved is not None:
        yield Note("resources", Act.WROTE, f"the Pod's QoS class becomes {moved[1]}, it was {moved[0]}")


def trace(decisions: Sequence[Decision], notes: Sequence[Note]) -> list[dict[str, str]]:
    """Return the findings in order, the notes after those of the rewriting and checking stages."""
    found = []
    for decision in decisions:
        for index, step in enumerate(decision.steps):
            found.append({"half": decision.half, "stage": step.stage, "found": step.found})
            if is_last_step(decision, index):
                text = _format_rewrite_notes(notes) if decision.half is Half.MUTATE else _format_check_notes(notes)
                found += [{"half": decision.half, "stage": step.stage, "found": line} for line in text]
    return [{key: str(value) for key, value in entry.items()} for entry in found]


def is_last_step(decision: Decision, index: int) -> bool:
    """Return whether a step is the last of the stage that notes belong to."""
    stage = "rewrite" if decision.half is Half.MUTATE else "check"
    steps = decision.steps
    return steps[index].stage == stage and (index + 1 == len(steps) or steps[index + 1].stage != stage)


def format_owed(note: Note) -> str:
    return ", ".join(f"{lack.code} at {lack.field}" for lack in note.owed)


def _format_rewrite_notes(notes: Sequence[Note]) -> Iterator[str]:
    for note in notes:
        places = ", ".join(mark.place for mark in note.marks)
        yield ": ".join(part for part in (note.rule, note.words, places) if part)


def _format_check_notes(notes: Sequence[Note]) -> Iterator[str]:
    for note in notes:
        if note.is_checked:
            yield f"{note.rule}: {format_owed(note) or 'holds'}"
