"""CEL expressions: escaped string literals, and lists split to stay below the language's limits."""

from collections.abc import Iterable, Iterator

from webhook.core.kubernetes.label_constraints import Constraint, Constraints
from webhook.core.webhook_configurations.name_sets import Patterns

# An expression may have 100,000 characters, including the text around the list and its line ends.
_LIST_CHARACTERS_MAX = 80_000
_LINE_CHARACTERS_MAX = 100
_NAMESPACE = "request.namespace"


def quote(text: str) -> str:
    """Return a CEL string literal; quotes, backslashes and unprintable characters are escaped by code point."""
    plain = (c if c.isprintable() and c not in "'\\" else f"\\U{ord(c):08x}" for c in text)
    return f"'{''.join(plain)}'"


def format_membership(operand: str, texts: Iterable[str]) -> str:
    texts = sorted(texts)
    return f"{operand} == {quote(texts[0])}" if len(texts) == 1 else f"{operand} in {format_list(texts)}"


def format_namespace_match(patterns: Patterns) -> str:
    """Return the expression that holds if the namespace matches one of `patterns`."""
    exact = sorted(pattern for pattern in patterns if "*" not in pattern)
    wild = [pattern.partition("*") for pattern in sorted(patterns - {*exact})]
    found = [format_membership(_NAMESPACE, exact)] if exact else []
    found += _format_affix_match("startsWith", "prefix", [start for start, _, end in wild if start and not end])
    found += _format_affix_match("endsWith", "suffix", [end for start, _, end in wild if end and not start])
    both = ((quote(start), quote(end)) for start, _, end in wild if start and end)
    found += [f"({_NAMESPACE}.startsWith({start}) && {_NAMESPACE}.endsWith({end}))" for start, end in both]
    return " || ".join(found)


def _format_affix_match(function: str, name: str, affixes: list[str]) -> Iterator[str]:
    """Yield the expression that holds if the namespace starts or ends with one of `affixes`; none without any."""
    if len(affixes) == 1:
        yield f"{_NAMESPACE}.{function}({quote(affixes[0])})"
    elif affixes:
        yield f"{format_list(affixes)}.exists({name}, {_NAMESPACE}.{function}({name}))"


def format_label(key: str) -> str:
    """Return a label of the Pod, as an optional value."""
    return f"object.metadata.?labels[?{quote(key)}]"


def format_labels_match(labels: Constraints) -> str:
    """Return the expression that holds if the Pod's labels match; "" if any labels do."""
    return " && ".join(
        part for key, constraint in sorted(labels.items()) for part in _format_label_match(key, constraint)
    )


def _format_label_match(key: str, constraint: Constraint) -> Iterator[str]:
    value, exists = f"{format_label(key)}.orValue('')", f"{format_label(key)}.hasValue()"
    if constraint.absent:
        yield f"!{exists}"
    elif constraint.allowed is not None:
        # An absent label has no value, and an empty value is a value.
        if "" in constraint.allowed:
            yield exists
        yield format_membership(value, constraint.allowed)
    else:
        if constraint.present:
            yield exists
        if constraint.denied:
            denied = f"!({format_membership(value, constraint.denied)})"
            yield f"(!{exists} || {denied})" if "" in constraint.denied else denied


def split_texts(texts: Iterable[str]) -> Iterator[list[str]]:
    """Split a set of texts into lists that fit into one expression each."""
    piece: list[str] = []
    length = 0
    for text in sorted(texts):
        longer = len(quote(text)) + len(", ")
        if length + longer > _LIST_CHARACTERS_MAX:
            yield piece
            piece, length = [], 0
        piece.append(text)
        length += longer
    if piece:
        yield piece


def format_list(texts: Iterable[str]) -> str:
    """Return a list of texts in order, wrapped into readable lines."""
    lines = [""]
    for literal in map(quote, sorted(texts)):
        if len(lines[-1]) + len(literal) > _LINE_CHARACTERS_MAX:
            lines.append("")
        lines[-1] += f"{literal}, "
    inner = "\n  ".join(line.rstrip() for line in lines).rstrip(",")
    return f"[{inner}]" if len(lines) == 1 else f"[\n  {inner}\n]"
