"""Results of cases as text, JSON or a JUnit file."""

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import click

from webhook.core.plain_text import escape_line
from webhook.policy_tests.runner import CaseResult

FAILED = 1
BAD_INPUT = 2
_COLOURS = {"ok": "green", "failed": "red", "error": "red"}
_LABELS = {"ok": "ok    ", "failed": "FAIL  ", "error": "ERROR "}


def format_result(result: CaseResult) -> Iterator[str]:
    """Yield a line for the result, and below it each field that differs: `-` the expected value, `+` the actual one."""
    label = click.style(_LABELS[result.word], fg=_COLOURS[result.word])
    yield f"{label}{escape_line(result.file)}" + (f": {escape_line(result.name)}" if result.name else "")
    for line in format_details(result):
        colour = {"-": "red", "+": "green"}.get(line.strip()[:1])
        yield click.style(f"      {line}", fg=colour)


def format_details(result: CaseResult) -> Iterator[str]:
    """Yield why a case has failed or could not be run."""
    if result.error is not None:
        text = str(result.error) + (f": {result.error.remedy}" if result.error.remedy else "")
        yield from map(escape_line, text.splitlines())
    for failure in result.failures:
        yield f"{escape_line(failure.where)}: (- expected, + actual)"
        for field, expected, actual in failure.differences:
            yield escape_line(f"- {field}: {expected}")
            yield escape_line(f"+ {field}: {actual}")
        if failure.message and not any(difference.field == "message" for difference in failure.differences):
            yield escape_line(f"  message: {failure.message}")


def build_result_document(result: CaseResult) -> dict[str, Any]:
    """Return the fields of a result's line of JSON."""
    failures = [
        {"where": failure.where, "differences": [difference._asdict() for difference in failure.differences]}
        for failure in result.failures
    ]
    error = None if result.error is None else {"message": str(result.error), "remedy": result.error.remedy}
    return {
        "file": result.file,
        "name": result.name,
        "result": result.word,
        "seconds": round(result.seconds, 6),
        "failures": failures,
        "error": error,
    }


def format_summary(results: Sequence[CaseResult]) -> str:
    """Return a line with the numbers of cases and files."""
    words = Counter(result.word for result in results)
    files = len({result.file for result in results})
    counts = ", ".join(f"{words[word]} {word}" for word in _LABELS if words[word])
    cases = len([result for result in results if result.name])
    return f"{cases} case{'s' * (cases != 1)} in {files} file{'s' * (files != 1)}: {counts or 'none'}"


def compute_exit_code(results: Sequence[CaseResult]) -> int:
    """Return 2 if a case could not be run, 1 if a case has failed, otherwise 0."""
    words = {result.word for result in results}
    return BAD_INPUT if "error" in words else FAILED if "failed" in words else 0


def format_junit(results: Sequence[CaseResult]) -> bytes:
    """Return the results as JUnit XML: a suite for each file."""
    root = ET.Element("testsuites", _count_results(results))
    for file in dict.fromkeys(result.file for result in results):
        own = [result for result in results if result.file == file]
        suite = ET.SubElement(root, "testsuite", {"name": _escape_xml(file), **_count_results(own)})
        for result in own:
            seconds = f"{result.seconds:.6f}"
            case = ET.SubElement(
                suite,
                "testcase",
                {"classname": _escape_xml(file), "name": _escape_xml(result.name or file), "time": seconds},
            )
            lines = [_escape_xml(line) for line in format_details(result)]
            if lines:
                kind = "error" if result.error is not None else "failure"
                ET.SubElement(case, kind, {"message": lines[0]}).text = "\n".join(lines)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True))


def _count_results(results: Sequence[CaseResult]) -> dict[str, str]:
    words = Counter(result.word for result in results)
    return {
        "tests": str(len(results)),
        "failures": str(words["failed"]),
        "errors": str(words["error"]),
        "time": f"{sum(result.seconds for result in results):.6f}",
    }


def _escape_xml(text: str) -> str:
    """Return a text without the characters that XML cannot contain."""
    return "\n".join(escape_line(line) for line in text.split("\n"))
