"""JSON Schema of the policy, generated from the types: as users write it, and after the merge of defaults."""

from functools import cache
from typing import Any

import msgspec

from webhook.core.document.defaults import ATOMIC, NO_DEFAULT
from webhook.core.kubernetes.quantity import Duration, Number, Quantity
from webhook.core.policy.model import Policy

Schema = dict[str, Any]

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MOST_ITEMS = 1000
"""Limit of lists whose type sets none: rules compare each entry with the others."""

_REF = "#/$defs/"

_DURATION_PATTERN = r"^\+?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+)$"
_DOMAIN_PATTERN = r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
_NAME_PATTERN = r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
_COMPUTE_PATTERN = r"(cpu|memory|ephemeral-storage)"
EDITOR_PATTERNS = {
    **dict.fromkeys(("duration", "interval", "window"), _DURATION_PATTERN),
    "quantity": r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(n|u|m|k|[MGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?$",
    "quota-resource": rf"^(pods|((requests|limits)\.)?{_COMPUTE_PATTERN}|(requests\.)?hugepages-{_NAME_PATTERN}"
    rf"|requests\.{_DOMAIN_PATTERN}/{_NAME_PATTERN})$",
    "container-resource": rf"^({_COMPUTE_PATTERN}|hugepages-{_NAME_PATTERN}|{_DOMAIN_PATTERN}/{_NAME_PATTERN})$",
}
"""Patterns by format for editors, which do not know the formats. Each value of a format matches its pattern."""


def _of_our_types(kind: type) -> Schema:
    if kind is Duration:
        return {"type": "string", "format": "duration"}
    if kind is Number:
        return {"type": "number"}
    if kind is Quantity:
        return {"type": ["string", "number"], "format": "quantity"}
    raise NotImplementedError(kind)


def _strict(schema: Any) -> Any:
    """Forbid unknown fields, remove null from optional fields, and drop null defaults."""
    if isinstance(schema, list | tuple):
        return [_strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _strict(value) for key, value in schema.items() if value is not None}
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
        made.setdefault("maxItems", MOST_ITEMS)
    if made.get("required") == []:
        del made["required"]
    return made


def _partial(definitions: Schema, name: str, suffix: str, *, nullable: bool) -> Schema:
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
                part = description | _partial(definitions, inner, suffix, nullable=nullable)
            if nullable and isinstance(schema.get("additionalProperties"), dict):
                entries = _partial_entries(definitions, schema["additionalProperties"], suffix)
                part = {**schema, "additionalProperties": _or_null(entries)}
            made["properties"][field] = _or_null(part) if nullable else part
    return {"$ref": _REF + key}


def _partial_entries(definitions: Schema, schema: Schema, suffix: str) -> Schema:
    """Return the schema of a map's entries, its objects with nothing required, for one side of a merge."""
    if "anyOf" in schema:
        options = [_partial_entries(definitions, option, suffix) for option in schema["anyOf"]]
        return {**schema, "anyOf": options}
    inner = schema.get("$ref", "").removeprefix(_REF)
    if "properties" not in definitions.get(inner, {}):
        return schema
    return _partial(definitions, inner, suffix, nullable=True)


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


@cache
def _definitions() -> Schema:
    """Return all definitions; `Policy` is the merged document, `Document` the written one."""
    made: Schema = _strict(msgspec.json.schema(Policy, schema_hook=_of_our_types))["$defs"]
    # A default of null means that the field is absent, also in nested types.
    _partial(made, "Service", "Defaults", nullable=False)
    for field in NO_DEFAULT:
        del made["ServiceDefaults"]["properties"][field]
    _partial(made, "Service", "Entry", nullable=True)
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


def written() -> Schema:
    """Return the schema of the written document, for editors."""
    definitions = _definitions()
    wanted: dict[str, Schema] = {}
    pending = ["Document"]
    while pending:
        name = pending.pop()
        if name not in wanted:
            wanted[name] = definitions[name]
            pending += _references(definitions[name])
    document = wanted.pop("Document")
    made: Schema = _with_patterns({"$schema": DIALECT, **document, "$defs": dict(sorted(wanted.items()))})
    return made


def _with_patterns(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_patterns(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: _with_patterns(value) for key, value in schema.items()}
    pattern = EDITOR_PATTERNS.get(schema["format"]) if isinstance(schema.get("format"), str) else None
    return made if pattern is None else {**made, "pattern": pattern}


def _references(schema: Any) -> list[str]:
    if isinstance(schema, list):
        return [name for item in schema for name in _references(item)]
    if not isinstance(schema, dict):
        return []
    found = [schema["$ref"].removeprefix(_REF)] if "$ref" in schema else []
    return found + [name for value in schema.values() for name in _references(value)]


@cache
def in_force() -> Schema:
    """Return the schema of the merged document."""
    definitions = _definitions()
    return _resolved(definitions["Policy"], definitions)


@cache
def closed(kind: Any) -> Schema:
    """Return the schema of another document by its type."""
    made = _strict(msgspec.json.schema(kind, schema_hook=_of_our_types))
    return _resolved(made, made.pop("$defs"))


def _resolved(whole: Schema, definitions: Schema) -> Schema:
    """Inline all references, which makes validation faster."""

    def resolved(schema: Any) -> Any:
        if isinstance(schema, list):
            return [resolved(item) for item in schema]
        if not isinstance(schema, dict):
            return schema
        inner = resolved(definitions[schema["$ref"].removeprefix(_REF)]) if "$ref" in schema else {}
        if "anyOf" in schema:  # every keyword but `type` is about one type only
            options = [resolved(option) for option in schema["anyOf"]]
            inner = {key: value for option in options for key, value in option.items()}
            inner["type"] = [option["type"] for option in options]
        drop = {"$ref", "anyOf", "title", "description", "default"}
        return {
            **inner,
            **{
                key: {name: resolved(part) for name, part in value.items()} if key == "properties" else resolved(value)
                for key, value in schema.items()
                if key not in drop
            },
        }

    made: Schema = resolved(whole)
    return made
