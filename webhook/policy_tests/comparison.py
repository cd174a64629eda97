"""Comparison of a case's expectation with the answer: the fields that differ, by their Kubernetes paths."""

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import msgspec

from webhook.commands.simulator import Admission
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.policy_tests.document import Expectation, ExpectedUse

_STEP = re.compile(r"""(?:^|\.)([^.\[\]"]+)|\[(?:"([^"\]]+)"|([^\]"]+))\]""")
_LISTS = frozenset({"containers", "initContainers"})
"""Lists whose items are found by name."""
ABSENT = object()
"""The value at a path that leads nowhere."""


def parse_steps(path: str) -> tuple[str, ...]:
    """Return the steps of a path. ValueError: it is not a path."""
    steps, at = [], 0
    while at < len(path):
        found = _STEP.match(path, at)
        if found is None:
            raise ValueError(path[at:])
        steps.append(next(step for step in found.groups() if step is not None))
        at = found.end()
    return tuple(steps)


def find_value(document: Any, path: str) -> Any:
    """Return the value at a path, ABSENT without one. A step in a list is an index, or the `name` of an item."""
    for step in parse_steps(path):
        if isinstance(document, Mapping):
            document = document.get(step, ABSENT)
        elif isinstance(document, list):
            document = _find_item(document, step)
        else:
            return ABSENT
    return document


def format_field(steps: tuple[str | int, ...]) -> str:
    """Return a path for `find_value`, with list items, and keys that are no names of fields, in brackets."""
    text = ""
    for before, step in zip(("", *steps), steps, strict=False):
        is_field = isinstance(step, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", step) and before not in _LISTS
        text += (f".{step}" if text else str(step)) if is_field else f"[{step}]"
    return text


def _find_item(items: list[Any], step: str) -> Any:
    if step.isdecimal():
        return items[int(step)] if int(step) < len(items) else ABSENT
    return next((item for item in items if isinstance(item, Mapping) and item.get("name") == step), ABSENT)


_AMOUNTS = frozenset({"requests", "limits", "overhead", "sizeLimit", "used", "hard"})
"""Fields that are quantities or contain quantities."""


class FieldDifference(NamedTuple):
    """A field whose value is not the expected one; both as text."""

    field: str
    expected: str
    actual: str


class CaseAnswer(NamedTuple):
    """Answer to a review or an event: the decisions about a Pod, or the fields of a replay's line."""

    admission: Admission | None = None
    line: Mapping[str, Any] = {}

    @property
    def message(self) -> str:
        """The message of a denial, "" without one."""
        decision = self.admission.validated if self.admission is not None else None
        return "" if decision is None or decision.allowed else decision.status.message

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of all findings of both halves, in order."""
        if self.admission is None:
            return ()
        halves = self.admission.mutated, self.admission.validated
        return tuple(dict.fromkeys(str(finding.code) for half in halves for finding in half.findings))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of both halves, in order."""
        if self.admission is None:
            return ()
        return tuple(dict.fromkeys((*self.admission.mutated.warnings, *self.admission.validated.warnings)))


def find_differences(expect: Expectation, answer: CaseAnswer) -> list[FieldDifference]:
    """Return the fields that differ, none if all is as expected."""
    found = (*_compare_admission(expect, answer), *_compare_line(expect, answer.line))
    return [difference for difference in found if difference is not None]


def _compare_admission(expect: Expectation, answer: CaseAnswer) -> Iterator[FieldDifference | None]:
    if answer.admission is None:
        return
    decision = answer.admission.validated
    yield _compare_field("decision", expect.decision, decision.verdict)
    yield _compare_field("service", expect.service, decision.service or "")
    if expect.codes is not None and sorted(expect.codes) != sorted(answer.codes):
        yield FieldDifference("codes", _format_value(expect.codes), _format_value(answer.codes))
    if expect.message is not None and expect.message not in answer.message:
        yield FieldDifference("message", _format_value(expect.message), _format_value(answer.message))
    if expect.warnings is not None and not _are_parts(expect.warnings, answer.warnings):
        yield FieldDifference("warnings", _format_value(expect.warnings), _format_value(answer.warnings))
    for path, value in expect.patched.items():
        actual = find_value(answer.admission.pod, path)
        if actual is ABSENT or not is_same_value(value, actual, parse_steps(path)):
            yield FieldDifference(path, _format_value(value), "(absent)" if actual is ABSENT else _format_value(actual))
    for path in expect.absent:
        actual = find_value(answer.admission.pod, path)
        if actual is not ABSENT:
            yield FieldDifference(path, "(absent)", _format_value(actual))


def _compare_line(expect: Expectation, line: Mapping[str, Any]) -> Iterator[FieldDifference | None]:
    yield _compare_field("breaker", expect.breaker, line.get("breaker"))
    yield _compare_field("waiting", expect.waiting, line.get("waiting"))
    yield _compare_field("released", expect.released, tuple(line.get("released", ())))
    yield _compare_field("expired", expect.expired, tuple(line.get("expired", ())))
    for use in expect.used:
        wanted = _encode_use(use)
        uses = [{key: str(entry[key]) for key in wanted} for entry in line.get("used", ())]
        if not any(is_same_value(wanted, actual, ()) for actual in uses):
            yield FieldDifference("used", _format_value(wanted), ", ".join(map(_format_value, uses)) or "(nothing)")


def is_same_value(expected: Any, actual: Any, steps: Sequence[str | int]) -> bool:
    """Return whether two values at a path are the same: amounts and durations in any form, others as written."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        return expected.keys() == actual.keys() and all(
            is_same_value(value, actual[key], (*steps, key)) for key, value in expected.items()
        )
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(
            is_same_value(*pair, (*steps, index)) for index, pair in enumerate(zip(expected, actual, strict=True))
        )
    if expected == actual:
        return True
    kind = Duration if steps[-1:] == ("window",) else Quantity if not _AMOUNTS.isdisjoint(steps) else None
    return kind is not None and _parse_value(kind, expected) == _parse_value(kind, actual) is not None


def _parse_value(kind: type[Duration] | type[Quantity], written: Any) -> Fraction | None:
    try:
        return kind.parse(str(written)).value
    except ValueError:
        return None


def _encode_use(use: ExpectedUse) -> dict[str, str]:
    fields: dict[str, Any] = msgspec.structs.asdict(use)
    return {key: str(value) for key, value in fields.items() if value is not None}


def _compare_field(field: str, expected: Any, actual: Any) -> FieldDifference | None:
    is_same = expected is None or expected == actual
    return None if is_same else FieldDifference(field, _format_value(expected), _format_value(actual))


def _are_parts(parts: Sequence[str], warnings: Sequence[str]) -> bool:
    """Return whether each part is in a warning of its own, and no warning is left."""
    left = list(warnings)
    for part in sorted(parts, key=len, reverse=True):
        found = next((warning for warning in left if part in warning), None)
        if found is None:
            return False
        left.remove(found)
    return not left


def _format_value(value: Any) -> str:
    """Return a value in one line: text as it is, anything else as JSON."""
    return str(value) if isinstance(value, str) else msgspec.json.encode(value).decode()
