"""CEL expressions: escaped string literals, and lists split to stay below the language's limits."""

from collections.abc import Iterable, Iterator

from webhook.core.kubernetes.label_constraints import Constraint, Constraints
from webhook.core.webhook_configurations.name_sets import Patterns

# An expression may have 100,000 characters, including the text around the list and its line ends.
_LONGEST_LIST_CHARACTERS = 80_000
_LINE_CHARACTERS = 100
_NAMESPACE = "request.namespace"


def quoted(text: str) -> str:
    """Return a CEL string literal; quotes, backslashes and unprintable characters are escaped by code point."""
    plain = (c if c.isprintable() and c not in "'\\" else f"\\U{ord(c):08x}" for c in text)
    return f"'{''.join(plain)}'"


def is_one_of(operand: str, texts: Iterable[str]) -> str:
    texts = sorted(texts)
    return f"{operand} == {quoted(texts[0])}" if len(texts) == 1 else f"{operand} in {listed(texts)}"


def namespace_fits(patterns: Patterns) -> str:
    """Return the expression that holds if the namespace matches one of `patterns`."""
    exact = sorted(pattern for pattern in patterns if "*" not in pattern)
    wild = [pattern.partition("*") for pattern in sorted(patterns - {*exact})]
    found = [is_one_of(_NAMESPACE, exact)] if exact else []
    found += _one_affix("startsWith", "prefix", [start for start, _, end in wild if start and not end])
    found += _one_affix("endsWith", "suffix", [end for start, _, end in wild if end and not start])
    both = ((quoted(start), quoted(end)) for start, _, end in wild if start and end)
    found += [f"({_NAMESPACE}.startsWith({start}) && {_NAMESPACE}.endsWith({end}))" for start, end in both]
    return " || ".join(found)


def _one_affix(function: str, name: str, affixes: list[str]) -> Iterator[str]:
    """Yield the expression that holds if the namespace starts or ends with one of `affixes`; none without any."""
    if len(affixes) == 1:
        yield f"{_NAMESPACE}.{function}({quoted(affixes[0])})"
    elif affixes:
        yield f"{listed(affixes)}.exists({name}, {_NAMESPACE}.{function}({name}))"


def label(key: str) -> str:
    """Return a label of the Pod, as an optional value."""
    return f"object.metadata.?labels[?{quoted(key)}]"


def labels_fit(labels: Constraints) -> str:
    """Return the expression that holds if the Pod's labels match; "" if any labels do."""
    return " && ".join(part for key, constraint in sorted(labels.items()) for part in _label_fits(key, constraint))


def _label_fits(key: str, constraint: Constraint) -> Iterator[str]:
    value, exists = f"{label(key)}.orValue('')", f"{label(key)}.hasValue()"
    if constraint.absent:
        yield f"!{exists}"
    elif constraint.allowed is not None:
        # An absent label has no value, and an empty value is a value.
        if "" in constraint.allowed:
            yield exists
        yield is_one_of(value, constraint.allowed)
    else:
        if constraint.present:
            yield exists
        if constraint.denied:
            denied = f"!({is_one_of(value, constraint.denied)})"
            yield f"(!{exists} || {denied})" if "" in constraint.denied else denied


def pieces(texts: Iterable[str]) -> Iterator[list[str]]:
    """Split a set of texts into lists that fit into one expression each."""
    piece: list[str] = []
    length = 0
    for text in sorted(texts):
        longer = len(quoted(text)) + len(", ")
        if length + longer > _LONGEST_LIST_CHARACTERS:
            yield piece
            piece, length = [], 0
        piece.append(text)
        length += longer
    if piece:
        yield piece


def listed(texts: Iterable[str]) -> str:
    """Return a list of texts in order, wrapped into readable lines."""
    lines = [""]
    for literal in map(quoted, sorted(texts)):
        if len(lines[-1]) + len(literal) > _LINE_CHARACTERS:
            lines.append("")
        lines[-1] += f"{literal}, "
    inner = "\n  ".join(line.rstrip() for line in lines).rstrip(",")
    return f"[{inner}]" if len(lines) == 1 else f"[\n  {inner}\n]"
