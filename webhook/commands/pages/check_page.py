"""Outcome of `podgate check` as text, with marks as of `linkerd check`, and as JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

import click

from webhook.core.checks import CheckOutcome, Section, Severity
from webhook.core.checks.check import Observation
from webhook.core.plain_text import escape_document, escape_line

Outcome = Sequence[tuple[Section, tuple[CheckOutcome, ...]]]
RUNBOOK = "docs/runbook.md"
_ABSENT = "notApplicable"
_UNICODE = {"ok": "√", Severity.WARNING: "‼", Severity.ERROR: "×", "notChecked": "?", _ABSENT: "-"}  # noqa: RUF001  as linkerd
_ASCII = {"ok": "ok", Severity.WARNING: "!!", Severity.ERROR: "xx", "notChecked": "??", _ABSENT: "--"}
_COLOURS = {"ok": "green", Severity.WARNING: "yellow", Severity.ERROR: "red", "notChecked": "blue", _ABSENT: "blue"}
_OF_THE_CLOCK = frozenset({"kubernetes", "api_clock_us"})
"""Facts that need no right."""


def format_check(outcome: Outcome, environment: Mapping[str, str], *, is_unicode: bool) -> Iterator[str]:
    """Yield the lines of the page; `environment` has the variables that the commands of remedies need in a shell."""
    if environment and any(seen.command for result in _list_results(outcome) for seen in result.findings):
        settings = " ".join(f"{name}={quote(value)}" for name, value in environment.items())
        yield f"before you run a remedy's command: export {escape_line(settings)}"
        yield ""
    outcome = escape_document(outcome)
    marks = _UNICODE if is_unicode else _ASCII
    for section, results in outcome:
        yield section.title
        yield "-" * len(section.title)
        coloured = {name: click.style(mark, fg=_COLOURS[name]) for name, mark in marks.items()}
        for result in results:
            yield from _format_lines(result, coloured)
        for reason, titles in _group_not_applicable(results).items():
            yield f"{coloured[_ABSENT]} not applicable, {reason}: {'; '.join(titles)}"
        yield ""
    yield from _format_not_checked(outcome, click.style(marks["notChecked"], fg=_COLOURS["notChecked"]))
    yield format_summary(outcome)


def _group_not_applicable(results: Iterable[CheckOutcome]) -> dict[str, list[str]]:
    """Return the titles of the checks that do not apply, by reason."""
    titles: dict[str, list[str]] = {}
    for result in results:
        if result.not_applicable:
            titles.setdefault(result.not_applicable, []).append(result.check.title)
    return titles


def _format_not_checked(outcome: Outcome, mark: str) -> Iterator[str]:
    """Yield the checks that were not possible, by reason: many share a reason, such as an unreachable server."""
    codes: dict[str, list[str]] = {}
    for result in _list_results(outcome):
        if result.not_checked:
            codes.setdefault(result.not_checked, []).append(result.check.code)
    for reason, its in codes.items():
        yield f"{mark} not checked: {', '.join(its)}"
        yield f"    {reason}"
    if codes:
        yield ""


def build_check_document(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome, ready for JSON."""
    counts = count_severities(outcome)
    sections = [
        {"title": section.title, "checks": [_build_document(result) for result in results]}
        for section, results in outcome
    ]
    return {"errors": counts[Severity.ERROR], "warnings": counts[Severity.WARNING], "sections": sections}


def count_severities(outcome: Outcome) -> Counter[Severity]:
    """Return the number of findings by severity."""
    return Counter(result.rate(seen) for result in _list_results(outcome) for seen in result.findings)


def is_blind(outcome: Outcome) -> bool:
    """Return whether no check could read an object or a server: then the absence of findings means nothing."""
    return all(result.not_checked for result in _list_results(outcome) if not {*result.check.needs} <= _OF_THE_CLOCK)


def format_summary(outcome: Outcome) -> str:
    counts = count_severities(outcome)
    skipped = sum(bool(result.not_checked) for result in _list_results(outcome))
    parts = [
        _format_count(counts[Severity.ERROR], "error"),
        _format_count(counts[Severity.WARNING], "warning"),
        f"{_format_count(skipped, 'check')} not possible" if skipped else "",
    ]
    text = ", ".join(filter(None, parts)) or "no findings"
    return f"{text}: nothing could be checked" if is_blind(outcome) else text


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}" if number else ""


def _list_results(outcome: Outcome) -> Iterable[CheckOutcome]:
    return (result for _, results in outcome for result in results)


def _format_lines(result: CheckOutcome, marks: dict[str, str]) -> Iterator[str]:
    if not (result.findings or result.not_checked or result.not_applicable):
        yield f"{marks['ok']} {result.check.title}"
    for seen in result.findings:
        yield f"{marks[result.rate(seen)]} {result.check.code}: {seen.object}: {seen.field}: {seen.value}"
        yield f"    remedy: {seen.remedy}"
        if seen.command:
            yield f"    run: {seen.command}"
        yield f"    see {_build_link(result)}"


def _build_document(result: CheckOutcome) -> dict[str, Any]:
    status = "notChecked" if result.not_checked else _ABSENT if result.not_applicable else "ok"
    status = result.severity if result.findings else status
    return {
        "code": result.check.code,
        "title": result.check.title,
        "status": status,
        "findings": [_build_finding(seen, _build_link(result)) for seen in result.findings],
        "notChecked": result.not_checked or None,
        "notApplicable": result.not_applicable or None,
    }


def _build_finding(seen: Observation, link: str) -> dict[str, str]:
    object_, field, value, remedy, command, _ = seen
    return {"object": object_, "field": field, "value": value, "remedy": remedy, "command": command, "link": link}


def _build_link(result: CheckOutcome) -> str:
    return f"{RUNBOOK}#{result.check.code}"
