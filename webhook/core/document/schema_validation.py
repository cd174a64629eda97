"""Validation of a document's nodes by a JSON Schema: all violations, of the keywords that Podgate's schemas use.

Tests compare it with `jsonschema`. Why that is not used: docs/design/schema-validation.md.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from webhook.core.document.formats import FormatError, find_fault
from webhook.core.document.schema import Schema
from webhook.core.document.yaml.nodes import ExactNumber, Node
from webhook.core.document.yaml.problems import Path

_JSON_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),  # not 5.0: msgspec would reject it
    "number": (int, ExactNumber),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}


class SchemaViolation(NamedTuple):
    """A keyword of `schema` that a value violates; `path` leads to the value."""

    keyword: str
    schema: Schema
    node: Node
    path: Path
    cause: FormatError | None = None
    key: str | None = None
    """The key of the value, a mapping, that violates the keyword; None if the value itself does."""

    @property
    def wanted(self) -> Any:
        """The value of the keyword in the schema."""
        return self.schema[self.keyword]


Check = Callable[[Node, Path, list[SchemaViolation]], None]
"""Function that appends the violations of a value at a path."""


def is_of_type(value: object, name: str) -> bool:
    """Return whether a node's value has a JSON type."""
    return type(value) in _JSON_TYPES[name]


def build_validator(schema: Schema) -> Check:
    """Return the check of a schema. LookupError: a keyword that is not supported."""
    checks = [_KEYWORDS[keyword](schema) for keyword in schema]

    def check(node: Node, path: Path, found: list[SchemaViolation]) -> None:
        for check_keyword in checks:
            check_keyword(node, path, found)

    return check


def _build_type_check(schema: Schema) -> Check:
    names = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    accepted = frozenset(kind for name in names for kind in _JSON_TYPES[name])

    def check(node: Node, path: Path, found: list[SchemaViolation]) -> None:
        if type(node.value) not in accepted:
            found.append(SchemaViolation("type", schema, node, path))

    return check


def _build_enum_check(schema: Schema) -> Check:
    words = schema["enum"]
    kinds = {type(word) for word in words}

    def check(node: Node, path: Path, found: list[SchemaViolation]) -> None:
        if type(node.value) not in kinds or node.value not in words:
            found.append(SchemaViolation("enum", schema, node, path))

    return check


def _build_format_check(schema: Schema) -> Check:
    name = schema["format"]

    def check(node: Node, path: Path, found: list[SchemaViolation]) -> None:
        cause = find_fault(node.value, name)
        if cause is not None:
            found.append(SchemaViolation("format", schema, node, path, cause))

    return check


def _build_properties_check(schema: Schema) -> Check:
    checks = {name: build_validator(inner) for name, inner in schema["properties"].items()}

    def check(node: Node, path: Path, found: list[SchemaViolation]) -> None:
        if isinstance(node.value, dict):
            for name, inner in node.value.items():
                check_property = checks.get(name)
                if check_property is not None:
                    check_property(inner, (*path, name), found)

    return check


def _build_additional_properties_check(schema: Schema) -> Check:
    known, allowed = frozenset(schema.get("properties", ())), schema["additionalProperties"]
    check_other = build_validator(allowed) if allowed else None

    def check(node: Node, path: Path, found: list[SchemaViolation]) -> None:
        if not isinstance(node.value, dict) or node.value.keys() <= known:
            return
        if check_other is None:
            found.append(SchemaViolation("additionalProperties", schema, node, path))
            return
        for name, inner in node.value.items():
            if name not in known:
                check_other(inner, (*path, name), found)

    return check


def _build_property_names_check(schema: Schema) -> Check:
    of_names = schema["propertyNames"]
    if list(of_names) != ["format"]:
        raise LookupError(f"propertyNames: {of_names}")

    def check(node: Node, path: Path, found: list[SchemaViolation]) -> None:
        for key in node.value if isinstance(node.value, dict) else ():
            cause = find_fault(key, of_names["format"])
            if cause is not None:
                found.append(SchemaViolation("format", of_names, node, path, cause, key))

    return check


def _build_items_check(schema: Schema) -> Check:
    check_item = build_validator(schema["items"])

    def check(node: Node, path: Path, found: list[SchemaViolation]) -> None:
        for index, item in enumerate(node.value if isinstance(node.value, list) else ()):
            check_item(item, (*path, index), found)

    return check


def _build_required_check(schema: Schema) -> Check:
    names = frozenset(schema["required"])

    def check(node: Node, path: Path, found: list[SchemaViolation]) -> None:
        if isinstance(node.value, dict) and not names <= node.value.keys():
            found.append(SchemaViolation("required", schema, node, path))

    return check


def _build_bound_check(
    keyword: str, kinds: tuple[type, ...], holds: Callable[[Any, Any], bool]
) -> Callable[[Schema], Check]:
    """Return the check of a bound on values of these types."""

    def build(schema: Schema) -> Check:
        bound = schema[keyword]

        def check(node: Node, path: Path, found: list[SchemaViolation]) -> None:
            if type(node.value) in kinds and not holds(node.value, bound):
                found.append(SchemaViolation(keyword, schema, node, path))

        return check

    return build


_NUMBERS = _JSON_TYPES["number"]
_KEYWORDS: dict[str, Callable[[Schema], Check]] = {
    "type": _build_type_check,
    "enum": _build_enum_check,
    "format": _build_format_check,
    "properties": _build_properties_check,
    "additionalProperties": _build_additional_properties_check,
    "propertyNames": _build_property_names_check,
    "items": _build_items_check,
    "required": _build_required_check,
    "minimum": _build_bound_check("minimum", _NUMBERS, lambda value, bound: value >= bound),
    "maximum": _build_bound_check("maximum", _NUMBERS, lambda value, bound: value <= bound),
    "minItems": _build_bound_check("minItems", (list,), lambda value, bound: len(value) >= bound),
    "maxItems": _build_bound_check("maxItems", (list,), lambda value, bound: len(value) <= bound),
    "minProperties": _build_bound_check("minProperties", (dict,), lambda value, bound: len(value) >= bound),
    "maxProperties": _build_bound_check("maxProperties", (dict,), lambda value, bound: len(value) <= bound),
    "minLength": _build_bound_check("minLength", (str,), lambda value, bound: len(value) >= bound),
    "maxLength": _build_bound_check("maxLength", (str,), lambda value, bound: len(value) <= bound),
}
