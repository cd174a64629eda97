"""Schema problems: all violations of the JSON Schema as messages for the user, with the invalid fields."""

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator, validators

from webhook.core.document.defaults import NO_DEFAULT
from webhook.core.document.formats import FormatError, checker
from webhook.core.document.schema import closed, in_force
from webhook.core.document.schema_types import type_fault
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.problems import Path, Problem, close_to, listed, suggestion


class SchemaProblem:
    """A problem, and the paths of the fields that it makes invalid in the merged document."""

    __slots__ = ("problem", "wrong")

    def __init__(self, problem: Problem, *wrong: Path) -> None:
        self.problem = problem
        self.wrong = wrong


@cache
def _validator(kind: Any = None) -> Any:
    """Return the validator of a policy, or of `kind`, made once. 5.0 is not an integer: msgspec would reject it."""
    types = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    made: Any = validators.extend(Draft202012Validator, type_checker=types)  # type: ignore[no-untyped-call]  # its stubs
    return made(in_force() if kind is None else closed(kind), format_checker=checker())


def schema_problems(document: Node, kind: Any = None) -> Iterator[SchemaProblem]:
    """Yield the violations of the policy's schema, or of the schema of `kind`."""
    for error in _validator(kind).iter_errors(document.plain()):
        path: Path = tuple(error.absolute_path)
        node = document
        for step in path:
            node = node.child(step)
        yield from _EXPLAINED[str(error.validator)](error, node, path)


def _wrong_type(error: Any, node: Node, path: Path) -> Iterator[SchemaProblem]:
    yield SchemaProblem(node.problem(*type_fault(error, node, path)), path)


def _wrong_word(error: Any, node: Node, path: Path) -> Iterator[SchemaProblem]:
    wanted = error.schema.get("type")
    if wanted is not None and not _validator().is_type(error.instance, wanted):
        return  # reported by _wrong_type
    words = [str(word) or '""' for word in error.validator_value]
    choice = listed(words)
    if isinstance(node.value, bool):
        reason = f"{node.text} without quotes is a YAML boolean, where a word belongs"
        yield SchemaProblem(node.problem(reason, f"use {choice}"), path)
    elif isinstance(node.value, dict | list) or node.value is None:
        kind = "no value" if node.value is None else "not a single word"
        yield SchemaProblem(node.problem(f"{kind}, where {choice} belongs", f"use {choice}"), path)
    elif len(words) == 1:
        yield SchemaProblem(node.problem("not a value that this version supports", f"write {words[0]}"), path)
    else:
        yield SchemaProblem(node.problem("not one of its values", suggestion(node.text, words, "use")), path)


def _missing(error: Any, node: Node, path: Path) -> Iterator[SchemaProblem]:
    for name in error.validator_value:
        if name not in error.instance:
            words = error.schema["properties"][name].get("enum", ())
            remedy = f"add {name}: {words[0]}" if len(words) == 1 else f"add {name}"
            yield SchemaProblem(node.problem_inside(name, "required", remedy), (*path, name))


def _unknown(error: Any, node: Node, path: Path) -> Iterator[SchemaProblem]:
    known = list(error.schema["properties"])
    absent = [name for name in known if name not in error.instance]
    for name in error.instance:
        if name in error.schema["properties"]:
            continue
        inner = node.child(name)
        if path == ("defaults",) and name in NO_DEFAULT:
            reason, remedy = "services cannot share it", f"write {name} in each service"
            wrong: list[Path] = [(*path, name)]
        else:
            reason, remedy = "unknown field", _remedy_for_unknown(name, absent)
            meant = close_to(name, absent)
            # Probably the field is present under a misspelled name: no rule may report it as absent.
            wrong = [(*path, name), (*path, meant)] if meant else [(*path, name)]
        yield SchemaProblem(inner.problem_at_key(reason, remedy), *wrong)


def _remedy_for_unknown(name: str, absent: list[str]) -> str:
    meant = close_to(name, absent)
    if meant is not None:
        return f"did you mean {meant}?"
    return f"other fields here: {', '.join(absent)}" if absent else "remove it"


def _bad_format(error: Any, node: Node, path: Path) -> Iterator[SchemaProblem]:
    cause: FormatError = error.cause
    if "propertyNames" in error.schema_path:
        inner = node.child(error.instance)
        yield SchemaProblem(inner.problem_at_key(cause.reason, cause.remedy), (*path, error.instance))
    else:
        yield SchemaProblem(node.problem(cause.reason, cause.remedy), path)


def _out_of_range(error: Any, node: Node, path: Path) -> Iterator[SchemaProblem]:
    bound = error.validator_value
    if error.validator == "minimum":
        yield SchemaProblem(node.problem(f"below {bound}", f"write at least {bound}"), path)
    else:
        yield SchemaProblem(node.problem(f"above {bound}", f"write at most {bound}"), path)


def _empty(_: Any, node: Node, path: Path) -> Iterator[SchemaProblem]:
    yield SchemaProblem(node.problem("empty", "write at least one entry"), path)


def _empty_text(_: Any, node: Node, path: Path) -> Iterator[SchemaProblem]:
    yield SchemaProblem(node.problem("empty", "write at least one character"), path)


def _too_long(error: Any, node: Node, path: Path) -> Iterator[SchemaProblem]:
    yield SchemaProblem(node.problem(f"longer than {error.validator_value}", "shorten it"), path)


_EXPLAINED: dict[str, Callable[[Any, Node, Path], Iterator[SchemaProblem]]] = {
    "type": _wrong_type,
    "enum": _wrong_word,
    "required": _missing,
    "additionalProperties": _unknown,
    "format": _bad_format,
    "minimum": _out_of_range,
    "maximum": _out_of_range,
    "minItems": _empty,
    "minProperties": _empty,
    "minLength": _empty_text,
    "maxLength": _too_long,
    "maxItems": _too_long,
}
