"""Loading of a policy test document: bytes to a PolicyTest, or all problems with line, column and remedy."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from webhook.core.document.schema_problems import find_schema_problems
from webhook.core.document.yaml.document_kind import DocumentKind, build_mark, redact_unless
from webhook.core.document.yaml.nodes import ExactNumber
from webhook.core.document.yaml.parts import DocumentPart, InvalidPaths, stop_at_invalid
from webhook.core.document.yaml.problems import DOCUMENT, DocumentError, Problem, join_words
from webhook.core.document.yaml.reader import read_yaml
from webhook.core.kubernetes.quantity import Duration, convert_amount
from webhook.errors import UserError
from webhook.policy_tests.comparison import parse_steps
from webhook.policy_tests.document import PolicyTest

EVENTS = (
    *("object", "outcome", "outcomes", "deleted", "refused", "unschedulable", "bound"),
    *("status", "namespaceLabels", "policy", "store"),
)
_OF_REVIEWS = frozenset({"decision", "service", "codes", "message", "warnings", "patched", "absent"})
_OF_QUEUES = frozenset({"waiting", "released", "expired"})
_EXPECTED_OF = {
    "object": _OF_REVIEWS | {"breaker", "used"},
    "status": _OF_QUEUES | {"breaker", "used"},
    "outcome": frozenset({"breaker"}),
    "outcomes": frozenset({"breaker"}),
}
_OF_OBJECTS = ("count", "uid", "user")
_REMEDY = "give a test, which begins with apiVersion: podgate.io/v1alpha1, kind: PolicyTest, policy: and cases:"
_KIND = DocumentKind.from_keys("a policy test", "cases", remedy=_REMEDY)
_MARKS = (build_mark("kind", r"\s*[\"']?PolicyTest"), re.compile(r"^[\"']?cases[\"']?\s*:", re.MULTILINE))


def is_policy_test(raw: bytes) -> bool:
    """Return whether a file among others looks like a policy test, valid or not."""
    text = raw.decode("utf-8", "replace")
    return any(mark.search(text) for mark in _MARKS)


def load_policy_test(raw: bytes, name: str) -> PolicyTest:
    """Return the test in `raw`, read from the file `name`; UserError lists all problems."""
    try:
        with redact_unless(_KIND, raw):
            return _check(raw)
    except DocumentError as error:
        problems = "\n".join(f"  {name}:{problem}" for problem in error.problems)
        count = f"{len(error.problems)} mistake{'s' if len(error.problems) > 1 else ''}"
        raise UserError(f"{count} in the test\n{problems}", "") from None


def _check(raw: bytes) -> PolicyTest:
    reading = read_yaml(raw)
    if reading.is_empty:
        raise DocumentError([Problem(1, 1, DOCUMENT, "(empty)", "there is no document", _REMEDY)])
    if not isinstance(reading.root.value, dict):
        raise DocumentError([reading.root.build_problem("a test must be a mapping of fields", _REMEDY)])
    found = list(find_schema_problems(reading.root, PolicyTest))
    root = DocumentPart(reading.root, (), InvalidPaths(path for mistake in found for path in mistake.wrong))
    problems = [*reading.problems, *(mistake.problem for mistake in found), *_apply_rules(root)]
    if problems:
        raise DocumentError(problems)
    return msgspec.convert(_strip_exact_numbers(reading.root.strip_positions()), PolicyTest, dec_hook=convert_amount)


def _apply_rules(root: DocumentPart) -> Iterator[Problem]:
    yield from stop_at_invalid(_names_differ(root))
    for case in root.select("cases", "*"):
        for rule in (_objects_or_sequence, _expects_something, _time_does_not_go_back):
            yield from stop_at_invalid(rule(case))
        for expect in case.select("expect"):
            yield from stop_at_invalid(_check_fits(expect, "objects", _OF_REVIEWS))
        for step in case.select("sequence", "*"):
            yield from stop_at_invalid(_check_one_event(step))
        for expect in (*case.select("expect"), *case.select("sequence", "*", "expect")):
            yield from _check_paths(expect)


def _names_differ(root: DocumentPart) -> Iterator[Problem]:
    first: dict[str, DocumentPart] = {}
    for name in root.select("cases", "*", "name"):
        there = first.setdefault(name.node.text, name)
        if there is not name:
            yield name.report(f"the name of the case in line {there.node.line}", "give each case its own name")


def _objects_or_sequence(case: DocumentPart) -> Iterator[Problem]:
    objects, sequence = case.get("objects"), case.get("sequence")
    if objects is not None and sequence is not None:
        yield sequence.report_field("a case has objects or a sequence, and this one has both", "make it two cases")
    if (objects is None or objects.is_empty) and (sequence is None or sequence.is_empty):
        yield case.report_missing("objects", "neither objects nor a sequence", "add objects: [FILE.yaml]")


def _expects_something(case: DocumentPart) -> Iterator[Problem]:
    expect, sequence = case.get("expect"), case.get("sequence")
    if sequence is not None:
        if expect is not None:
            yield expect.report_field("a sequence has none of its own", "write expect in its steps")
        if not sequence.is_empty and not case.select("sequence", "*", "expect"):
            yield sequence.report_field("no step expects anything", "add expect: {decision: Admit} to a step")
    elif expect is None:
        yield case.report_missing("expect", "required", "add expect: {decision: Admit}")
    for each_expect in (*case.select("expect"), *case.select("sequence", "*", "expect")):
        if each_expect.is_empty:
            yield each_expect.report("expects nothing", "add decision: Admit")


def _time_does_not_go_back(case: DocumentPart) -> Iterator[Problem]:
    before, text = 0, "0s"
    for at in case.select("sequence", "*", "at"):
        now = 0 if at.node.text in {"0", "0s"} else Duration.parse(at.read(str)).us
        if now < before:
            yield at.report(f"time does not go back, and the step before is at {text}", f"write at least {text}")
        before, text = max(before, now), at.node.text if now >= before else text


def _check_one_event(step: DocumentPart) -> Iterator[Problem]:
    events = [name for name in EVENTS if step.get(name) is not None]
    if len(events) != 1:
        what = f"{join_words(events).replace(' or ', ' and ')} in one step" if events else "no event in the step"
        yield step.report_field(what, f"write exactly one of {join_words(EVENTS)}")
        return
    for field in _OF_OBJECTS:
        if (part := step.get(field)) is not None and events[0] != "object":
            yield part.report_field(f"means nothing for {events[0]}", "remove it")
    if (expect := step.get("expect")) is not None:
        yield from _check_fits(expect, events[0], _EXPECTED_OF.get(events[0], frozenset()))


def _check_fits(expect: DocumentPart, event: str, known: frozenset[str]) -> Iterator[Problem]:
    for name, part in expect.fields().items():
        if name not in known:
            remedy = f"write {join_words(sorted(known))}" if known else "remove it"
            yield part.report_field(f"there is no such answer for {event}", remedy)


def _check_paths(expect: DocumentPart) -> Iterator[Problem]:
    patched = expect.select("patched")
    paths = [(name, part) for fields in patched for name, part in fields.fields().items()]
    paths += [(part.node.text, part) for part in expect.select("absent", "*")]
    for path, part in paths:
        try:
            steps = parse_steps(path)
        except ValueError:
            steps = ()
        if not steps or steps[0] not in {"metadata", "spec"}:
            remedy = "write one such as spec.nodeSelector[disk-type] or spec.containers[api].resources"
            yield part.report_field("not the path of a Pod's field", remedy)


def _strip_exact_numbers(value: Any) -> Any:
    """Return a value with plain numbers, as in JSON."""
    if isinstance(value, dict):
        return {key: _strip_exact_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_strip_exact_numbers(inner) for inner in value]
    return float(value) if isinstance(value, ExactNumber) else value
