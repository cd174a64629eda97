"""Pipeline page: stages with the Pods stopped at each, services and entries to arrange, and what a draft changes."""

from typing import Any

import msgspec

from webhook.console.interface.document_reader import DocumentReader
from webhook.console.interface.drafts import Draft, format_error
from webhook.console.interface.page import Page, PageRequest
from webhook.console.interface.policy_in_force import read_in_force
from webhook.core.console_views.pipeline import (
    MINUTES,
    ROWS,
    DenialPage,
    DraftImpact,
    DraftReview,
    PipelinePage,
    PipelineStage,
    diff_documents,
    list_cards,
    list_plain_lines,
    sort_into_stages,
)
from webhook.core.document import DocumentError
from webhook.core.document.yaml.reader import read_yaml
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.errors import UserError

_RECORDS = 1_000
_TEXT_MAX = 63


async def build(request: PageRequest) -> PipelinePage:
    reader, name = request.reader, request.query.get("draft", "")
    server = await reader.read_server()
    problems: list[str] = []
    draft = reader.drafts.find(name) if name else None
    document = b""
    if draft is not None:
        document = draft.document
    else:
        try:
            document = await reader.share(read_in_force)
        except UserError as error:
            problems.append(f"the policy in force cannot be read here: {format_error(error)}")
    stopped, obstacle = await reader.share(_read_stopped)
    problems += [obstacle] if obstacle else []
    cards = list(list_cards(_parse(document)))
    text = request.query.get("text", "")[:_TEXT_MAX]
    shown = [card for card in cards if text.lower() in card.name.lower()]
    pages = max(1, -(-len(shown) // ROWS))
    page = min(max(1, request.parse_number("page")), pages)
    return PipelinePage(
        time=server.time,
        stages=await _hide_pods(request, sort_into_stages(stopped.decisions)),
        cards=tuple(shown[(page - 1) * ROWS : page * ROWS]),
        services=len(cards),
        text=text,
        page=page,
        pages=pages,
        can_edit=reader.ports.policies is not None and bool(request.viewer.form_token),
        lines=list_plain_lines(document),
        draft=None if draft is None else _review(name, draft),
        changes=() if draft is None else diff_documents(draft.base, draft.document),
        problems=tuple(problems),
    )


async def _read_stopped(reader: DocumentReader) -> tuple[DenialPage, str]:
    """Return the newest denials, and why they are missing."""
    port = reader.ports.decisions
    if port is None:
        return DenialPage(()), f"which Pods were stopped is not known: {reader.ports.missing.get('decisions', '')}"
    try:
        raw = await port.get(f"/api/v1/decisions?denied=true&since={MINUTES}m&limit={_RECORDS}")
        found = msgspec.json.decode(raw, type=DenialPage)
    except (UserError, *UNREADABLE_JSON) as error:
        return DenialPage(()), f"which Pods were stopped is not known: {' '.join(str(error).split())}"
    return found, found.error or ""


async def _hide_pods(request: PageRequest, stages: tuple[PipelineStage, ...]) -> tuple[PipelineStage, ...]:
    """Return the stages without Pods of namespaces that the viewer may not see."""
    names = {pod.namespace for stage in stages for pod in stage.pods}
    seen = {name for name in names if await request.viewer.sees(name)}
    return tuple(
        msgspec.structs.replace(stage, pods=tuple(pod for pod in stage.pods if pod.namespace in seen))
        for stage in stages
    )


def _parse(document: bytes) -> Any:
    try:
        return read_yaml(document).root.strip_positions()
    except DocumentError:
        return None


def _review(name: str, draft: Draft) -> DraftReview:
    impact, notes = None, [draft.obstacle] if draft.obstacle else []
    if draft.impact is not None:
        impact = msgspec.convert(msgspec.to_builtins(draft.impact.report), DraftImpact)
        notes += draft.impact.warnings
    planned = draft.planned
    return DraftReview(
        name=name,
        former=draft.former,
        errors=tuple(map(str, draft.problems)),
        warnings=tuple(map(str, draft.warnings)),
        impact=impact,
        notes=tuple(notes),
        steps=() if planned is None else planned.steps,
        plan_notes=tuple(filter(None, (draft.plan_obstacle, *(planned.notes if planned is not None else ())))),
        is_planned=planned is not None or bool(draft.plan_obstacle),
    )


PAGE = Page("pipeline", "/policy/edit", "Pipeline", build, menu_place=50, menu_text="Pipeline")
