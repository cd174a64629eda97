"""Values of a wrong type: the reason, and what to write instead."""

from webhook.core.document.formats import FormatError, check, fits
from webhook.core.document.schema_validation import SchemaViolation
from webhook.core.document.yaml.nodes import ExactNumber, Node
from webhook.core.document.yaml.problems import Path, format_value, join_words, quote

_DURATIONS = frozenset({"duration", "window", "interval"})
_EXPECTED_BY_FORMAT = {
    **dict.fromkeys(_DURATIONS, ("a duration", "a number with a unit, such as 1m")),
    "quantity": ("an amount", "one, such as 500m, 4 or 16Gi"),
    "percent-or-count": ("a count or a percentage", "one, such as 10 or 25%"),
    "factor": ("a number", "one such as 0.5, 1.5 or 3"),
    "date-time": ("a time", "one, such as 2026-12-01T04:00:00Z"),
}
"""The expected value of a format, and the object of the remedy "write ..."."""
_INDISPENSABLE = frozenset({"apiVersion", "kind", "services", "name", "match", "window", "hard"})
_NAMES = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping of fields",
}


def describe_type_fault(found: SchemaViolation) -> tuple[str, str]:
    """Return reason and remedy of a value of another type than the schema's."""
    node, path = found.node, found.path
    expected = found.wanted if isinstance(found.wanted, list) else [found.wanted]
    name = found.schema.get("format", "")
    wanted, written = _EXPECTED_BY_FORMAT.get(name, (None, None))
    wanted = wanted or join_words([_NAMES[name] for name in expected])
    reason, remedy = _describe_reason(node, expected, wanted, f"write {written or wanted}")
    percent = _find_percent(node, path, expected)
    if percent is not None:
        return "a share, where a whole number of percent belongs", f"write {percent}"
    if name in _DURATIONS and _is_number(node.value):
        reason = "a number without a unit, where a duration belongs"
        if fits(f"{node.text}s", name):
            remedy = f"write a unit, such as {node.text}s"
    elif node.value is None and path[-1] not in _INDISPENSABLE:
        remedy += ", or remove the line"
    elif remedy.startswith("quote it") and name:
        remedy = _find_remedy(node.text, name) or remedy
    return reason, remedy


def _find_percent(node: Node, path: Path, expected: list[str]) -> int | None:
    """Return the percentage that a share between 0 and 1 stands for, None for any other value."""
    is_percentage = str(path[-1]).lower().endswith("percent") and expected == ["integer"]
    if not is_percentage or not isinstance(node.value, ExactNumber) or not 0 < node.value < 1:
        return None
    return max(1, round(node.value * 100))


def _describe_reason(node: Node, expected: list[str], wanted: str, remedy: str) -> tuple[str, str]:
    value, text = node.value, node.text
    is_text = "string" in expected and remedy == f"write {wanted}"  # any text, without a format that has an example
    if value is None:
        return f"no value, where {wanted} belongs", remedy
    if isinstance(value, bool):
        return (
            f"{text} without quotes is a YAML boolean, where {wanted} belongs",
            f'quote it: "{text}"' if is_text else remedy,
        )
    if _is_number(value) and is_text:
        return f"{format_value(text)} without quotes is a number, where {wanted} belongs", f"quote it: {quote(text)}"
    if isinstance(value, str) and expected == ["integer"] and node.quoted and value.isdecimal():
        return f"quotes make it text, where {wanted} belongs", f"remove the quotes: {format_value(text)}"
    kind = "a mapping" if isinstance(value, dict) else "a list" if isinstance(value, list) else "a single value"
    if expected == ["array"] and not isinstance(value, dict):
        remedy = f"write [{format_value(text)}]"
    return f"{kind}, where {wanted} belongs", remedy


def _find_remedy(text: str, name: str) -> str:
    """Return the remedy if a text violates its format even in quotes, else ""."""
    try:
        check(text, name)
    except FormatError as error:
        return error.remedy
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | ExactNumber) and not isinstance(value, bool)
