"""Outcome of `podgate check` as text, with marks as of `linkerd check`, and as JSON."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from shlex import quote
from typing import Any

import click

from webhook.core.checks import CheckOutcome, Section, Severity
from webhook.core.plain_text import printable, printable_document

Outcome = Sequence[tuple[Section, tuple[CheckOutcome, ...]]]
RUNBOOK = "docs/runbook.md"
_ABSENT = "notApplicable"
_UNICODE = {"ok": "√", Severity.WARNING: "‼", Severity.ERROR: "×", "notChecked": "?", _ABSENT: "-"}  # noqa: RUF001  as linkerd
_ASCII = {"ok": "ok", Severity.WARNING: "!!", Severity.ERROR: "xx", "notChecked": "??", _ABSENT: "--"}
_COLOURS = {"ok": "green", Severity.WARNING: "yellow", Severity.ERROR: "red", "notChecked": "blue", _ABSENT: "blue"}
_OF_THE_CLOCK = frozenset({"kubernetes", "api_clock_us"})
"""Facts that need no right."""


def check_page(outcome: Outcome, environment: Mapping[str, str], *, is_unicode: bool) -> Iterator[str]:
    """Yield the lines of the page; `environment` has what the commands of the remedies need in a shell."""
    if environment and any(seen.command for one in _results(outcome) for seen in one.findings):
        settings = " ".join(f"{name}={quote(value)}" for name, value in environment.items())
        yield f"before you run a command of a remedy: export {printable(settings)}"
        yield ""
    outcome = printable_document(outcome)
    marks = _UNICODE if is_unicode else _ASCII
    for section, results in outcome:
        yield section.title
        yield "-" * len(section.title)
        coloured = {name: click.style(mark, fg=_COLOURS[name]) for name, mark in marks.items()}
        for one in results:
            yield from _lines(one, coloured)
        for reason, titles in _absent(results).items():
            yield f"{coloured[_ABSENT]} not applicable, {reason}: {'; '.join(titles)}"
        yield ""
    yield from _not_checked(outcome, click.style(marks["notChecked"], fg=_COLOURS["notChecked"]))
    yield summary(outcome)


def _absent(results: Iterable[CheckOutcome]) -> dict[str, list[str]]:
    """Return the titles of the checks that do not apply, by reason."""
    titles: dict[str, list[str]] = {}
    for one in results:
        if one.not_applicable:
            titles.setdefault(one.not_applicable, []).append(one.check.title)
    return titles


def _not_checked(outcome: Outcome, mark: str) -> Iterator[str]:
    """Yield the checks that were not possible, by reason: without a server, a third of them has the same one."""
    codes: dict[str, list[str]] = {}
    for one in _results(outcome):
        if one.not_checked:
            codes.setdefault(one.not_checked, []).append(one.check.code)
    for reason, its in codes.items():
        yield f"{mark} not checked: {', '.join(its)}"
        yield f"    {reason}"
    if codes:
        yield ""


def check_document(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome, ready for JSON."""
    counts = severities(outcome)
    sections = [{"title": section.title, "checks": [_document(one) for one in results]} for section, results in outcome]
    return {"errors": counts[Severity.ERROR], "warnings": counts[Severity.WARNING], "sections": sections}


def severities(outcome: Outcome) -> Counter[Severity]:
    """Return the number of findings by severity."""
    return Counter(one.check.severity for one in _results(outcome) for _ in one.findings)


def is_blind(outcome: Outcome) -> bool:
    """Return whether no check was possible that reads an object or a server: then no finding means nothing."""
    return all(one.not_checked for one in _results(outcome) if not {*one.check.needs} <= _OF_THE_CLOCK)


def summary(outcome: Outcome) -> str:
    counts = severities(outcome)
    skipped = sum(bool(one.not_checked) for one in _results(outcome))
    parts = [
        _counted(counts[Severity.ERROR], "error"),
        _counted(counts[Severity.WARNING], "warning"),
        f"{_counted(skipped, 'check')} not possible" if skipped else "",
    ]
    text = ", ".join(filter(None, parts)) or "no findings"
    return f"{text}: nothing could be judged" if is_blind(outcome) else text


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}" if number else ""


def _results(outcome: Outcome) -> Iterable[CheckOutcome]:
    return (one for _, results in outcome for one in results)


def _lines(one: CheckOutcome, marks: dict[str, str]) -> Iterator[str]:
    if not (one.findings or one.not_checked or one.not_applicable):
        yield f"{marks['ok']} {one.check.title}"
    for seen in one.findings:
        yield f"{marks[one.check.severity]} {one.check.code}: {seen.object}: {seen.field}: {seen.value}"
        yield f"    remedy: {seen.remedy}"
        if seen.command:
            yield f"    run: {seen.command}"
        yield f"    see {_link(one)}"


def _document(one: CheckOutcome) -> dict[str, Any]:
    status = "notChecked" if one.not_checked else _ABSENT if one.not_applicable else "ok"
    status = one.check.severity if one.findings else status
    return {
        "code": one.check.code,
        "title": one.check.title,
        "status": status,
        "findings": [{**seen._asdict(), "link": _link(one)} for seen in one.findings],
        "notChecked": one.not_checked or None,
        "notApplicable": one.not_applicable or None,
    }


def _link(one: CheckOutcome) -> str:
    return f"{RUNBOOK}#{one.check.code}"
