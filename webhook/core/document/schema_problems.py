"""Schema problems: each violation of the JSON Schema as a message for the user, with the invalid fields."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from webhook.core.document.defaults import NO_DEFAULT
from webhook.core.document.schema import build_merged_schema, build_type_schema
from webhook.core.document.schema_types import describe_type_fault
from webhook.core.document.schema_validation import Check, SchemaViolation, build_validator, is_of_type
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.problems import Path, Problem, find_close, join_words, suggest


class SchemaProblem:
    """A problem, and the paths of the fields that it makes invalid in the merged document."""

    __slots__ = ("problem", "wrong")

    def __init__(self, problem: Problem, *wrong: Path) -> None:
        self.problem = problem
        self.wrong = wrong


@cache
def _build_validator(kind: Any = None) -> Check:
    """Return the validator of a policy, or of `kind`, made once."""
    return build_validator(build_merged_schema() if kind is None else build_type_schema(kind))


def find_schema_problems(document: Node, kind: Any = None) -> Iterator[SchemaProblem]:
    """Yield the violations of the policy's schema, or of the schema of `kind`."""
    found: list[SchemaViolation] = []
    _build_validator(kind)(document, (), found)
    for violation in found:
        yield from _REPORTS[violation.keyword](violation)


def _report_wrong_type(found: SchemaViolation) -> Iterator[SchemaProblem]:
    yield SchemaProblem(found.node.build_problem(*describe_type_fault(found)), found.path)


def _report_wrong_word(found: SchemaViolation) -> Iterator[SchemaProblem]:
    node, path, type_name = found.node, found.path, found.schema.get("type")
    if type_name is not None and not is_of_type(node.value, type_name):
        return  # the keyword `type` reports it
    words = [str(word) or '""' for word in found.wanted]
    choice = join_words(words)
    if isinstance(node.value, bool):
        reason = f"{node.text} without quotes is a YAML boolean, where a word belongs"
        yield SchemaProblem(node.build_problem(reason, f"use {choice}"), path)
    elif isinstance(node.value, dict | list) or node.value is None:
        kind = "no value" if node.value is None else "not a single word"
        yield SchemaProblem(node.build_problem(f"{kind}, where {choice} belongs", f"use {choice}"), path)
    elif len(words) == 1:
        yield SchemaProblem(node.build_problem("not a value that this version supports", f"write {words[0]}"), path)
    else:
        yield SchemaProblem(node.build_problem("not one of its values", suggest(node.text, words, "use")), path)


def _report_missing(found: SchemaViolation) -> Iterator[SchemaProblem]:
    for name in found.wanted:
        if name not in _read_fields(found.node):
            words = found.schema["properties"][name].get("enum", ())
            remedy = f"add {name}: {words[0]}" if len(words) == 1 else f"add {name}"
            yield SchemaProblem(found.node.build_missing_problem(name, "required", remedy), (*found.path, name))


def _report_unknown(found: SchemaViolation) -> Iterator[SchemaProblem]:
    path, known, fields = found.path, found.schema["properties"], _read_fields(found.node)
    absent = [name for name in known if name not in fields]
    for name, inner in fields.items():
        if name in known:
            continue
        if path == ("defaults",) and name in NO_DEFAULT:
            reason, remedy = "services cannot share it", f"write {name} in each service"
            wrong: list[Path] = [(*path, name)]
        else:
            reason, remedy = "unknown field", _suggest_field(name, absent)
            meant = find_close(name, absent)
            # Probably the field is present under a misspelled name: no rule may report it as absent.
            wrong = [(*path, name), (*path, meant)] if meant else [(*path, name)]
        yield SchemaProblem(inner.build_key_problem(reason, remedy), *wrong)


def _suggest_field(name: str, absent: list[str]) -> str:
    meant = find_close(name, absent)
    if meant is not None:
        return f"did you mean {meant}?"
    return f"other fields here: {', '.join(absent)}" if absent else "remove it"


def _report_bad_format(found: SchemaViolation) -> Iterator[SchemaProblem]:
    node, path, cause = found.node, found.path, found.cause
    if cause is None:
        raise LookupError("a violated format has a cause")
    if found.key is not None:
        inner = node.child(found.key)
        yield SchemaProblem(inner.build_key_problem(cause.reason, cause.remedy), (*path, found.key))
    else:
        yield SchemaProblem(node.build_problem(cause.reason, cause.remedy), path)


def _report_out_of_range(found: SchemaViolation) -> Iterator[SchemaProblem]:
    type_name = found.schema.get("type")
    if isinstance(type_name, str) and not is_of_type(found.node.value, type_name):
        return  # the keyword `type` reports it
    below, bound = found.keyword == "minimum", found.wanted
    reason, remedy = (f"below {bound}", "least") if below else (f"above {bound}", "most")
    yield SchemaProblem(found.node.build_problem(reason, f"write at {remedy} {bound}"), found.path)


def _report_empty(found: SchemaViolation) -> Iterator[SchemaProblem]:
    least, present = found.wanted, len(found.node.value) if isinstance(found.node.value, list | dict) else 0
    reason = f"only {present} of at least {least} entries" if present else "empty"
    yield SchemaProblem(
        found.node.build_problem(reason, f"write at least {'one entry' if least == 1 else f'{least} entries'}"),
        found.path,
    )


def _report_empty_text(found: SchemaViolation) -> Iterator[SchemaProblem]:
    yield SchemaProblem(found.node.build_problem("empty", "write at least one character"), found.path)


def _report_too_long(found: SchemaViolation) -> Iterator[SchemaProblem]:
    yield SchemaProblem(found.node.build_problem(f"longer than {found.wanted}", "shorten it"), found.path)


def _read_fields(node: Node) -> dict[str, Node]:
    return node.value if isinstance(node.value, dict) else {}


_REPORTS: dict[str, Callable[[SchemaViolation], Iterator[SchemaProblem]]] = {
    "type": _report_wrong_type,
    "enum": _report_wrong_word,
    "required": _report_missing,
    "additionalProperties": _report_unknown,
    "format": _report_bad_format,
    "minimum": _report_out_of_range,
    "maximum": _report_out_of_range,
    "minItems": _report_empty,
    "minProperties": _report_empty,
    "minLength": _report_empty_text,
    "maxLength": _report_too_long,
    "maxItems": _report_too_long,
    "maxProperties": _report_too_long,
}
