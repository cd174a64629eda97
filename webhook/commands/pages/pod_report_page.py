"""Page of a report on a Pod or workload: the cause first, then each part of the Pod's path."""

from collections.abc import Iterator
from textwrap import wrap

import click

from webhook.core.diagnosis import Fate, Report
from webhook.core.diagnosis.extender_words import (
    describe_attempt,
    describe_refusals,
    describe_refused_zones,
    describe_scores,
    describe_weights,
)
from webhook.core.diagnosis.report import (
    AdmissionReport,
    NodeFilter,
    NodesReport,
    RewrittenField,
    SchedulingReport,
    StartReport,
    TemplateReport,
    VariantReport,
)
from webhook.core.plain_text import escape_document, escape_line
from webhook.core.quota import STANDING, Holder
from webhook.core.reporting.limit_record import RecordedLimit
from webhook.core.reporting.queue_document import QueueRow
from webhook.core.scheduling.scheduling_record import SchedulingRecord

_COLUMN = 12
_FIELDS_MAX = 6
_BAD = frozenset(
    {Fate.DENIED, Fate.RELEASE_FAILS, Fate.BREAKER_OPEN, Fate.EXPIRED, Fate.DROPPED, Fate.FAILED, Fate.UNSCHEDULABLE}
)
_FINE = frozenset({Fate.RUNNING, Fate.SUCCEEDED, Fate.EXEMPT, Fate.UNMATCHED, Fate.ADMITTED})
_COLOURS = {"bad": "red", "fine": "green", "waits": "yellow"}
_TELLS = {
    "pod": "whether it exists, and its state",
    "pods": "which Pods exist, and their state",
    "events": "refusals and failures that only Events report",
    "nodes": "whose terms leave no node",
    "node": "whether the node is ready",
    "namespace": "its labels, and whether it is being deleted",
    "configmap": "the policy that it holds",
    "replicasets": "the controllers of the Deployment, and so its Pods",
    "jobs": "the Jobs of the CronJob, and so its Pods",
    "variants": "the present breakers of the service's variants",
}
"""The facts that an unread object would have shown, by the first word of its name."""
_SOURCES = {
    "pod": "by its label and annotation; no record of the review was found",
    "event": "by the controller's Event; no record of the review was found",
    "policy": "by the policy in force; no record of a review was found",
}


def format_report(report: Report, width: int | None = None, *, with_rules: bool = False) -> str:
    """Return the page; lines are broken at `width`."""
    report = escape_document(report)
    lines = [click.style(f"{report.token}:", fg=_COLOURS[judge_fate(report.token)]) + f" {report.summary}"]
    for label, text in list_parts(report, with_rules=with_rules):
        lines += _format_row(label, text, width)
    return "\n".join(lines)


def _format_row(label: str, text: str, width: int | None) -> list[str]:
    head = f"{label:{_COLUMN}}"
    room = None if width is None else max(width - _COLUMN, 40)
    broken = [text] if room is None else wrap(text, room, break_long_words=False, break_on_hyphens=False) or [""]
    return [(head if index == 0 else " " * _COLUMN) + line for index, line in enumerate(broken)]


def judge_fate(token: Fate) -> str:
    """Return `bad`, `fine`, or `waits` for what may end by itself."""
    return "bad" if token in _BAD else "fine" if token in _FINE else "waits"


def list_parts(report: Report, *, with_rules: bool) -> Iterator[tuple[str, str]]:
    """Yield each part of the path as a label and a text; the label of a detail begins with spaces."""
    yield from _format_subject(report)
    if report.admission is not None or not report.templates:
        yield from _format_admission(report)
    yield from _format_slot(report)
    if with_rules:
        for finding in report.rules:
            yield "  rule", f"{finding['half']:8} {finding['stage']:8} {finding['found']}"
    if report.queue is not None:
        yield "queue", _format_queue(report.queue)
    if report.gates:
        yield "gates", ", ".join(report.gates)
    yield from _format_scheduling(report)
    if report.nodes is not None:
        yield "  nodes", _format_nodes(report.nodes)
    if report.start is not None:
        yield from _format_start(report.start)
    for what, reason in report.unread.items():
        yield "not read", describe_unread(what, reason)


def _format_subject(report: Report) -> Iterator[tuple[str, str]]:
    subject = report.subject
    whose = f", of {' of '.join((subject.owner, *subject.owners))}" if subject.owner else ""
    name = f"{subject.kind} {subject.namespace}/{subject.name}"
    if report.remedy:
        yield "remedy", report.remedy
    yield subject.kind.lower() if len(subject.kind) < _COLUMN else "object", f"{name}{whose}"
    if report.pods:
        yield "pods", ", ".join(f"{count} {token}" for token, count in report.pods.items())
    for template in report.templates:
        yield "template", _format_template(template, report.summary)


def _format_template(template: TemplateReport, summary: str) -> str:
    service = f", service {template.service}" if template.service else ""
    message = f": {template.message}" if template.message and template.message not in summary else ""
    return f"{template.place}: {template.decision}{service} by the policy in force{message}"


def describe_unread(what: str, reason: str) -> str:
    """Return why something could not be read, and which facts are therefore unknown."""
    unknown = _TELLS.get(what.partition(" ")[0])
    return escape_line(f"{what}: {reason}; unknown: {unknown}" if unknown else f"{what}: {reason}")


def _format_queue(row: QueueRow) -> str:
    lifted = ", lifted by ageing" if row.lifted else ""
    ends = f", expires {row.expires_at}" if row.expires_at else ""
    return f"place {row.place} in {row.queue}{lifted}, since {row.since}, {row.why}{ends}"


def _format_admission(report: Report) -> Iterator[tuple[str, str]]:
    admission = report.admission
    if admission is None:
        yield "admission", "no record of a review, and no other trace of one"
        return
    yield "admission", _format_decision(admission)
    if admission.message and admission.message not in report.summary:
        yield "  message", admission.message
    for text in admission.findings:
        yield "  finding", text
    for text in admission.overrides:
        yield "  override", text
    for limit in report.quota:
        yield "  quota", format_limit(limit)
    breaker = report.breaker
    if breaker is not None:
        until = f" until {breaker.open_until}" if breaker.open_until else ""
        yield "  breaker", f"{breaker.state}{until}{f': {breaker.reason}' if breaker.reason else ''}"
    if admission.degraded:
        yield "  degraded", f"{admission.degraded}: preferred terms are left out"
    for field in report.rewritten[:_FIELDS_MAX]:
        yield "  rewritten", _format_field(field)
    if len(report.rewritten) > _FIELDS_MAX:
        yield "  rewritten", f"{len(report.rewritten) - _FIELDS_MAX} more: see --rules or -o json"


def _format_slot(report: Report) -> Iterator[tuple[str, str]]:
    slot = report.slot
    if slot is None:
        return
    instead = f" instead of {slot.intended}; no record says why" if slot.intended else ""
    yield "  slot", slot.reason or f"slot {slot.number} is {slot.variant}{instead}"
    if report.shares:
        yield "  shares", "; ".join(filter(None, map(_format_variant, report.shares)))


def _format_variant(variant: VariantReport) -> str:
    """Return the breaker of a variant with an absolute time, so that a page that is watched changes only with it."""
    if not variant.has_breaker:
        return ""
    text = f"{variant.name} {variant.state or 'unknown'}{f' ({variant.reason})' if variant.reason else ''}"
    if variant.until:
        word = "probes from" if variant.state == "OPEN" else "until"
        text += f", {word} {variant.until[11:19]}Z"
    if variant.of_candidate:
        return f"{text}, of the candidate"
    if variant.taken_by and variant.state == "HALF_OPEN":
        return f"{text}: some Pods probe it, {variant.taken_by} takes the others"
    return f"{text}: {variant.taken_by} takes its Pods" if variant.taken_by else text


def _format_decision(admission: AdmissionReport) -> str:
    parts = [f"{admission.decision}{f' ({admission.status_code})' if admission.status_code else ''}"]
    if admission.dry_run:
        parts.append("dry run")
    if admission.exemption:
        parts[0] += f" by {admission.exemption}"
    if admission.overload:
        parts[0] += f": {admission.overload}"
    if admission.uncounted:
        parts.append("not counted: the counters were unavailable")
    if admission.service:
        parts.append(f"service {admission.service}{f' ({admission.why_service})' if admission.why_service else ''}")
    if admission.policy:
        parts.append(f"policy {admission.policy[:8]}")
    if admission.user:
        parts.append(f"asked by {admission.user}")
    if admission.source in _SOURCES:
        parts.append(_SOURCES[admission.source])
    return " ".join(filter(None, (admission.at, ", ".join(parts))))


def format_limit(limit: RecordedLimit) -> str:
    """Return a limit as the text of a denial has it."""
    of_pool = f"pool {limit.name}: " if limit.of is Holder.POOL else ""
    where = "live at one time" if limit.window == STANDING else f"in {limit.window}"
    surge = f"surge {limit.surge}, " if limit.surge else ""
    text = f"{of_pool}{limit.resource} {where}: hard {limit.hard}, {surge}used {limit.used}, asked {limit.asked}"
    if limit.guaranteed:
        text += f", guaranteed {limit.guaranteed} of which {limit.guaranteed_used} used"
    text += f", kept for others {limit.kept}" if limit.kept else ""
    if not limit.over:
        return text
    if limit.never:
        return f"{text}; can never pass"
    return f"{text}; could pass from {limit.free_at}" if limit.free_at else f"{text}; could pass when live Pods end"


def _format_field(field: RewrittenField) -> str:
    place = field.field.replace("DuringSchedulingIgnoredDuringExecution", "...")
    is_short = field.value and not field.value.startswith(("{", "["))
    value = " removed" if field.removed else f"={field.value}" if is_short else ""
    return f"{place}{value} ({field.rule}{f': {field.why}' if field.why else ''})"


def _format_scheduling(report: Report) -> Iterator[tuple[str, str]]:
    if report.scheduling is not None:
        yield "scheduling", _format_node(report.scheduling)
    if report.extender is not None:
        yield from _format_extender(report.extender)


def _format_node(found: SchedulingReport) -> str:
    if found.node:
        return f"on node {found.node}"
    scheduler = f"by {found.scheduler}" if found.scheduler else ""
    return ": ".join(filter(None, (found.reason or "not scheduled", found.message or scheduler)))


def _format_extender(record: SchedulingRecord) -> Iterator[tuple[str, str]]:
    yield "extender", describe_attempt(record)
    for text in describe_refusals(record):
        yield "  refused", text
    for text in describe_refused_zones(record):
        yield "  zones", text
    for text in describe_scores(record):
        yield "  score", text
    if weights := describe_weights(record):
        yield "  weights", weights


def _format_nodes(nodes: NodesReport) -> str:
    parts = [f"{nodes.total}"]
    parts += [_format_filter(node_filter) for node_filter in nodes.policy]
    if nodes.policy:
        parts.append(f"the policy leaves {nodes.policy_leaves}")
    parts += [f"{node_filter.by} ({node_filter.requirement}) fits {node_filter.fit}" for node_filter in nodes.own]
    if nodes.own:
        whose = "its terms" if nodes.unknown_policy else "its own terms"
        parts.append(f"{whose} leave {nodes.own_leave}, both {nodes.both_leave}")
    parts += [f"taint {node_filter.by} on {node_filter.fit}" for node_filter in nodes.taints]
    names = f" ({', '.join(nodes.names)})" if nodes.names else ""
    return "; ".join([*parts, f"left {nodes.left}{names}"])


def _format_filter(node_filter: NodeFilter) -> str:
    return f"{node_filter.by} ({node_filter.requirement}) fits {node_filter.fit}"


def _format_start(start: StartReport) -> Iterator[tuple[str, str]]:
    containers = "; ".join(
        f"{container.name} {container.state}"
        + (f", exit code {container.exit_code}" if container.exit_code is not None else "")
        + (f", {container.restarts} restarts" if container.restarts else "")
        for container in start.containers
    )
    yield "start", ": ".join(filter(None, (start.phase, containers))) or "not yet"
    for text in start.events:
        yield "  event", text
