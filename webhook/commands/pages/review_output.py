"""Output forms of a review: diff, YAML, JSON, or the patch alone."""

from collections.abc import Callable, Iterator
from typing import Any

import click
import msgspec

from webhook.commands.pages import explain_view
from webhook.commands.pages.yaml_page import format_diff
from webhook.commands.pages.yaml_text import format_yaml
from webhook.commands.review_object import UID, ReviewedObject, WorkloadSplit
from webhook.commands.simulator import GENERATED_SUFFIX
from webhook.core.admission.decision import Decision, DecisionInputs, Verdict
from webhook.core.plain_text import escape_json
from webhook.core.rule_notes.explain import trace
from webhook.core.shares import CLAIM_ANNOTATION


def _format_json(found: ReviewedObject, _width: int | None) -> str:
    admission = found.admission
    decision = admission.validated
    line = {
        **_build_heading(found),
        "decision": decision.verdict,
        "allowed": decision.pods_allowed,
        "status": _build_status(decision),
        "warnings": _list_warnings(found),
        "patch": admission.mutated.patch,
        "pod": _remove_uid(admission.pod),
        "service": decision.service,
        "trace": trace((admission.mutated, admission.validated), found.notes),
        "dependsOn": decision.depends_on,
        "hints": [found.subject.hint] if found.subject.hint else [],
        "slot": _build_slot(admission.mutated.inputs),
        "split": None if found.split is None else _build_split(found.split),
    }
    return escape_json(msgspec.json.encode(line).decode()) + "\n"


def _build_heading(found: ReviewedObject) -> dict[str, str]:
    """Return the fields that identify the object."""
    subject = found.subject
    return {
        "file": subject.file,
        "place": subject.at,
        "kind": subject.kind,
        "namespace": subject.namespace,
        "name": subject.own_name,
    }


def _list_warnings(found: ReviewedObject) -> list[str]:
    """Return the warnings of both halves."""
    return list(dict.fromkeys((*found.admission.mutated.warnings, *found.admission.validated.warnings)))


def _build_slot(inputs: DecisionInputs) -> dict[str, Any] | None:
    slot = inputs.slot
    if slot is None:
        return None
    return {"number": slot.slot, "variant": slot.variant, "intended": slot.intended, "reason": inputs.slot_reason}


def _build_split(split: WorkloadSplit) -> dict[str, Any]:
    return {"pods": split.pods, "text": split.text, "byVariant": split.by_variant}


def _list_slot_lines(found: ReviewedObject) -> Iterator[str]:
    """Yield how the workload's Pods are divided, or for a single Pod its slot."""
    inputs = found.admission.mutated.inputs
    if found.split is not None:
        yield found.split.text
    elif inputs.slot is not None:
        instead = f" instead of {inputs.slot.intended}" if inputs.slot.fell_back else ""
        yield inputs.slot_reason or f"slot {inputs.slot.slot} is {inputs.slot.variant}{instead}"


def _build_status(decision: Decision) -> dict[str, Any] | None:
    status = decision.status
    if decision.verdict is Verdict.DEPENDS:
        return None
    if decision.allowed:
        return {"code": status.code}
    return {"code": status.code, "reason": status.reason, "message": status.message}


def _format_patch(found: ReviewedObject, _width: int | None) -> str:
    decision = found.admission.validated
    line = {
        **_build_heading(found),
        "decision": decision.verdict,
        "allowed": decision.pods_allowed,
        "status": _build_status(decision),
        "patch": found.admission.mutated.patch,
    }
    return escape_json(msgspec.json.encode(line).decode()) + "\n"


def _format_yaml(found: ReviewedObject, width: int | None) -> str:
    if found.subject.is_continued:  # the object follows once, with all of its templates
        return _format_comments(found, width)
    shown = _remove_uid(found.committed) if found.subject.review is not None else found.committed
    return "---\n" + format_yaml(shown) + _format_comments(found, width)


def _format_diff(found: ReviewedObject, width: int | None) -> str:
    name = f"Pod of {found.subject.name}" if found.subject.template_at else found.subject.name
    after = _remove_uid(found.admission.pod)
    remarks = explain_view.build_remarks(found.admission, found.notes)
    shown = format_diff(_remove_uid(found.before), after, name, remarks, width) if after else ""
    return shown + _format_comments(found, width)


def _format_comments(found: ReviewedObject, width: int | None) -> str:
    """Return the verdict and its reasons as comments, so that the output stays valid YAML or diff."""
    decision = found.admission.validated
    whose = f" (service {decision.service})" if decision.service else ""
    why = f" (by {decision.deviation.exemption})" if decision.deviation.exemption else ""
    if decision.verdict is Verdict.DEPENDS and decision.pods_allowed is False:
        why = ", denied in any case"
    colour = {None: "yellow", True: "green", False: "red"}[decision.pods_allowed]
    place = "" if found.subject.file == "-" else f"{found.subject.where}: "
    lines = [(colour, "# ", f"{place}{found.subject.name}: {decision.verdict}{whose}{why}")]
    if not decision.allowed:
        status = decision.status
        lines.append((colour, "# ", f"{status.code} {status.reason}: {status.message}"))
    lines += [("yellow", "# depends: ", text) for text in explain_view.describe_dependences(decision)]
    lines += [("cyan", "# shares: ", text) for text in _list_slot_lines(found)]
    lines += [("yellow", "# warning: ", warning) for warning in _list_warnings(found)]
    if found.subject.hint:
        lines.append(("cyan", "# hint: ", found.subject.hint))
    return "".join(
        click.style(line, fg=colour) + "\n"
        for colour, head, text in lines
        for line in explain_view.wrap_lines(head, text, width)
    )


def _remove_uid(pod: dict[str, Any]) -> dict[str, Any]:
    """Remove the uid and generated name, which are placeholders for those of the API server, and the claim's name."""
    given = pod.get("metadata")
    if not isinstance(given, dict):
        return pod
    if isinstance(annotations := given.get("annotations"), dict) and CLAIM_ANNOTATION in annotations:
        given = {**given, "annotations": {**annotations, CLAIM_ANNOTATION: "<claim>"}}
    metadata = {key: value for key, value in given.items() if (key, value) != ("uid", UID)}
    if metadata.get("name") == f"{metadata.get('generateName')}{GENERATED_SUFFIX}":
        metadata.pop("name")
    return {**pod, "metadata": metadata}


Form = Callable[[ReviewedObject, int | None], str]
"""Formats one object; the integer is the width of the terminal, None without a terminal."""
FORMS: dict[str, Form] = {"diff": _format_diff, "yaml": _format_yaml, "json": _format_json, "patch": _format_patch}
