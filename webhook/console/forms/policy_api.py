"""Policy forms for programs: lint, impact and rollout of a document that is sent, as JSON."""

from collections.abc import Mapping
from dataclasses import asdict

import msgspec

from webhook.console.interface.console_form import ConsoleForm, JsonAnswer
from webhook.console.interface.drafts import Draft, check_draft, format_error, load_aside
from webhook.console.interface.page import PageRequest
from webhook.console.interface.policy_in_force import read_in_force
from webhook.core.document import DocumentError, Problem
from webhook.errors import UserError

_NONE = "this console judges no policy"


async def lint(_: PageRequest, form: Mapping[str, str]) -> JsonAnswer:
    """Answer the mistakes and warnings of a document, in the form of `podgate policy lint -o json`."""
    try:
        warnings = (await load_aside(_read_document(form))).warnings
    except DocumentError as error:
        return JsonAnswer(_list_problems(error.problems, ()))
    return JsonAnswer(_list_problems((), warnings))


async def judge(request: PageRequest, form: Mapping[str, str]) -> JsonAnswer:
    """Answer what a document changes for the last recorded requests, beside its mistakes."""
    policies = request.reader.ports.policies
    if policies is None:
        raise UserError(_NONE, "run podgate console")
    base = await request.reader.share(read_in_force)
    draft = await check_draft(policies, Draft(_read_document(form), base))
    report = None if draft.impact is None else msgspec.to_builtins(draft.impact.report)
    notes = list(draft.impact.warnings) if draft.impact is not None else [draft.obstacle] if draft.obstacle else []
    return JsonAnswer({**_list_problems(draft.problems, draft.warnings), "impact": report, "notes": notes})


async def plan(request: PageRequest, form: Mapping[str, str]) -> JsonAnswer:
    """Answer the steps that a rollout of a document would take."""
    policies, document = request.reader.ports.policies, _read_document(form)
    if policies is None:
        raise UserError(_NONE, "run podgate console")
    try:
        await load_aside(document)
        planned = await policies.plan(document)
    except DocumentError as error:
        return JsonAnswer({**_list_problems(error.problems, ()), "steps": [], "notes": []})
    except UserError as error:
        return JsonAnswer({**_list_problems((), ()), "steps": [], "notes": [format_error(error)]})
    return JsonAnswer({**_list_problems((), ()), **msgspec.to_builtins(planned)})


def _read_document(form: Mapping[str, str]) -> bytes:
    document = form.get("document", "")
    if not document:
        raise UserError("document: missing", "send the text of a policy in this field of the form")
    return document.encode()


def _list_problems(errors: tuple[Problem, ...], warnings: tuple[Problem, ...]) -> dict[str, object]:
    return {"errors": [asdict(found) for found in errors], "warnings": [asdict(found) for found in warnings]}


FORMS = (
    ConsoleForm("/api/v1/policy/lint", lint),
    ConsoleForm("/api/v1/policy/impact", judge),
    ConsoleForm("/api/v1/policy/candidate", plan),
)
