"""Validation of nodes, compared with jsonschema on the same schema."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some
from jsonschema import Draft202012Validator, FormatChecker, ValidationError, validators

from webhook.core.document.formats import find_fault
from webhook.core.document.schema import Schema, build_merged_schema
from webhook.core.document.schema_validation import SchemaViolation, build_validator
from webhook.core.document.yaml.nodes import Node
from webhook.core.document.yaml.problems import DocumentError
from webhook.core.document.yaml.reader import read_yaml

HERE = Path(__file__).parent
EXAMPLE = yaml.safe_load((HERE / "complete_example.yaml").read_text())
Found = set[tuple[str, tuple[Any, ...], object]]


def list_formats(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        if isinstance(schema.get("format"), str):
            yield schema["format"]
        schema = list(schema.values())
    for inner in schema if isinstance(schema, list) else ():
        yield from list_formats(inner)


def build_reference_validator(schema: Schema) -> Any:
    types = Draft202012Validator.TYPE_CHECKER.redefine(
        "integer", lambda _, value: isinstance(value, int) and not isinstance(value, bool)
    )
    formats = FormatChecker(formats=())
    for name in list_formats(schema):
        formats.checks(name)(lambda value, name=name: find_fault(value, name) is None)
    return validators.extend(Draft202012Validator, type_checker=types)(schema, format_checker=formats)


THEIRS, OURS = build_reference_validator(build_merged_schema()), build_validator(build_merged_schema())


def find_expected(document: object) -> Found:
    def describe_error(error: ValidationError) -> tuple[str, tuple[Any, ...], object]:
        of_key = "propertyNames" in error.schema_path
        return str(error.validator), tuple(error.absolute_path), error.instance if of_key else None

    return set(map(describe_error, THEIRS.iter_errors(document)))


def find_actual(document: Node) -> Found:
    found: list[SchemaViolation] = []
    OURS(document, (), found)
    for violation in found:
        node = document
        for step in violation.path:
            node = node.child(step)
        assert node is violation.node
    return {(violation.keyword, violation.path, violation.key) for violation in found}


@pytest.mark.parametrize("document", sorted(HERE.glob("*/*.yaml")), ids=lambda path: path.stem)
def test_it_finds_in_each_document_what_jsonschema_finds(document: Path) -> None:
    try:
        root = read_yaml(document.read_bytes()).root
    except DocumentError:
        return  # it is not YAML
    assert find_actual(root) == find_expected(root.strip_positions())


def list_places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    steps = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for step in steps:
        yield (*path, step)
        yield from list_places(value[step], (*path, step))


PLACES = sorted(list_places(EXAMPLE), key=str)
VALUES = some.one_of(
    some.sampled_from([None, True, False, 0, 1, -1, 403, 10**12, 0.5, 5.0, "", "a", "x" * 300, "1m", "25%", "Enforce"]),
    some.sampled_from([[], {}, ["a"], [1], [{}], {"a": 1}, {"cpu": "1"}, {"": ""}, [0] * 1001]),
)


@given(some.lists(some.tuples(some.sampled_from(PLACES), VALUES, some.booleans()), min_size=1, max_size=3))
def test_it_finds_in_changed_documents_what_jsonschema_finds(changes: list[tuple[tuple[Any, ...], Any, bool]]) -> None:
    document = copy.deepcopy(EXAMPLE)
    for (*above, step), value, is_removed in changes:
        parent = document
        try:
            for key in above:
                parent = parent[key]
            parent[step] = copy.deepcopy(value)
            if is_removed:
                del parent[step]
        except (KeyError, IndexError, TypeError):
            continue  # another change has replaced its parent
    root = read_yaml(json.dumps(document, default=str).encode()).root
    assert find_actual(root) == find_expected(root.strip_positions())


def test_an_unsupported_keyword_is_an_error() -> None:
    with pytest.raises(LookupError):
        build_validator({"type": "string", "pattern": "a"})
    with pytest.raises(LookupError):
        build_validator({"type": "object", "propertyNames": {"minLength": 1}})
