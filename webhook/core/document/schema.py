"""JSON Schema of the policy, generated from the types: as users write it, and after the merge of defaults."""

from functools import cache
from typing import Any

import msgspec

from webhook.core.document.defaults import ATOMIC, NO_DEFAULT
from webhook.core.kubernetes.quantity import Duration, Number, Quantity
from webhook.core.policy.model import Policy

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
LIST_ITEMS_MAX = 1000
"""Limit of lists whose type sets none: rules compare each entry with the others."""

_REF = "#/$defs/"

_DURATION_PATTERN = r"^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"
_DOMAIN_PATTERN = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_NAME_PATTERN = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_HUGE_PAGES_PATTERN = r"hugepages-[-A-Za-z0-9_.]*[A-Za-z0-9]"  # as a whole it is such a name
_COMPUTE_PATTERN = r"(cpu|memory|ephemeral-storage)"
EDITOR_PATTERNS = {
    **dict.fromkeys(("duration", "interval", "window"), _DURATION_PATTERN),
    "quota-per": r"^(Service|Namespace)$",
    "time-of-day": r"^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$",
    "quantity": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(n|u|m|k|[MGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$",
    "quota-resource": rf"^(pods|((requests|limits)\.)?{_COMPUTE_PATTERN}|(requests\.)?{_HUGE_PAGES_PATTERN}"
    rf"|requests\.{_DOMAIN_PATTERN}/{_NAME_PATTERN})$",
    "removable-limit": r"^limits\.cpu$",
    "container-resource": rf"^({_COMPUTE_PATTERN}|{_HUGE_PAGES_PATTERN}|{_DOMAIN_PATTERN}/{_NAME_PATTERN})$",
}
"""Patterns by format for editors, which do not know the formats. Each value of a format matches its pattern."""


def _describe_type(kind: type) -> Schema:
    if kind is Duration:
        return {"type": "string", "format": "duration"}
    if kind is Number:
        return {"type": "number"}
    if kind is Quantity:
        return {"type": ["string", "number"], "format": "quantity"}
    raise NotImplementedError(kind)


def _make_strict(schema: Any) -> Any:
    """Forbid unknown fields, remove null from optional fields, and drop null defaults."""
    if isinstance(schema, list | tuple):
        return [_make_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _make_strict(value) for key, value in schema.items() if value is not None}
    options = [option for option in made.pop("anyOf", []) if option != {"type": "null"}]
    if len(options) == 1:
        made |= options[0]
    elif any("$ref" in option for option in options):  # text or a mapping
        made["anyOf"] = options
    elif options:  # a union of scalars, such as IntOrString
        made["type"] = [option["type"] for option in options]
    if "properties" in made:
        made["additionalProperties"] = False
    if made.get("type") == "array":
        made.setdefault("maxItems", LIST_ITEMS_MAX)
    if made.get("required") == []:
        del made["required"]
    return made


def _define_partial(definitions: Schema, name: str, suffix: str, *, nullable: bool) -> Schema:
    """Define `name` and its objects again with nothing required, for one side of a merge. Return a reference."""
    key = name + suffix
    if key not in definitions:
        whole = definitions[name]
        made = definitions[key] = {**whole, "title": key, "properties": {}}
        made.pop("required", None)
        for field, schema in whole["properties"].items():
            inner = schema.get("$ref", "").removeprefix(_REF)
            part = schema
            if "properties" in definitions.get(inner, {}) and field not in ATOMIC:
                description = {key: value for key, value in schema.items() if key == "description"}
                part = description | _define_partial(definitions, inner, suffix, nullable=nullable)
            if nullable and isinstance(schema.get("additionalProperties"), dict):
                entries = _make_entries_partial(definitions, schema["additionalProperties"], suffix)
                part = {**schema, "additionalProperties": _allow_null(entries)}
            made["properties"][field] = _allow_null(part) if nullable else part
    return {"$ref": _REF + key}


def _make_entries_partial(definitions: Schema, schema: Schema, suffix: str) -> Schema:
    """Return the schema of a map's entries, its objects with nothing required, for one side of a merge."""
    if "anyOf" in schema:
        options = [_make_entries_partial(definitions, option, suffix) for option in schema["anyOf"]]
        return {**schema, "anyOf": options}
    inner = schema.get("$ref", "").removeprefix(_REF)
    if "properties" not in definitions.get(inner, {}):
        return schema
    return _define_partial(definitions, inner, suffix, nullable=True)


def _allow_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


@cache
def _build_definitions() -> Schema:
    """Return all definitions; `Policy` is the merged document, `Document` the written one."""
    made: Schema = _make_strict(msgspec.json.schema(Policy, schema_hook=_describe_type))["$defs"]
    # A default of null means that the field is absent, also in nested types.
    _define_partial(made, "Service", "Defaults", nullable=False)
    for field in NO_DEFAULT:
        del made["ServiceDefaults"]["properties"][field]
    _define_partial(made, "Service", "Entry", nullable=True)
    for field in ("name", "match"):
        made["ServiceEntry"]["properties"][field] = made["Service"]["properties"][field]
    made["ServiceEntry"]["required"] = ["name", "match"]
    properties = made["Policy"]["properties"]
    properties["defaults"] = {
        "$ref": _REF + "ServiceDefaults",
        "description": "RFC 7386 merge patch under every service: the service's own keys win, null removes.",
    }
    entries = {**properties["services"], "items": {"$ref": _REF + "ServiceEntry"}}
    made["Document"] = {**made["Policy"], "title": "Podgate policy", "properties": {**properties, "services": entries}}
    return made


def build_written_schema() -> Schema:
    """Return the schema of the written document, for editors."""
    definitions = _build_definitions()
    wanted: dict[str, Schema] = {}
    pending = ["Document"]
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted[name] = definitions[name]
            pending += _list_references(definitions[name])
    document = wanted.pop("Document")
    made: Schema = _add_patterns({"$schema": DIALECT, **document, "$defs": dict(sorted(wanted.items()))})
    return made


def _add_patterns(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_add_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _add_patterns(value) for key, value in schema.items()}
    pattern = EDITOR_PATTERNS.get(schema["format"]) if isinstance(schema.get("format"), str) else None
    return made if pattern is None else {**made, "pattern": pattern}


def _list_references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for item in schema for name in _list_references(item)]
    if not isinstance(schema, dict):
        return []
    found = [schema["$ref"].removeprefix(_REF)] if "$ref" in schema else []
    return found + [name for value in schema.values() for name in _list_references(value)]


@cache
def build_merged_schema() -> Schema:
    """Return the schema of the merged document."""
    definitions = _build_definitions()
    return _resolve(definitions["Policy"], definitions)


@cache
def build_type_schema(kind: Any) -> Schema:
    """Return the schema of another document by its type."""
    made = _make_strict(msgspec.json.schema(kind, schema_hook=_describe_type))
    return _resolve(made, made.pop("$defs"))


def _resolve(whole: Schema, definitions: Schema) -> Schema:
    """Inline all references, which makes validation faster."""

    def resolve(schema: Any) -> Any:
        if isinstance(schema, list):
            return [resolve(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        inner = resolve(definitions[schema["$ref"].removeprefix(_REF)]) if "$ref" in schema else {}
        if "anyOf" in schema:  # every keyword but `type` is about one type only
            options = [resolve(option) for option in schema["anyOf"]]
            inner = {key: value for option in options for key, value in option.items()}
            inner["type"] = [option["type"] for option in options]
        drop = {"$ref", "anyOf", "title", "description", "default"}
        return {
            **inner,
            **{
                key: {name: resolve(part) for name, part in value.items()} if key == "properties" else resolve(value)
                for key, value in schema.items()
                if key not in drop
            },
        }

    made: Schema = resolve(whole)
    return made
