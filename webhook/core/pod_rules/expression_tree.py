"""Tree of a compiled expression: its parts with their types, and the fields of a Pod that it reads.

The messages are those of `cel.expr.CheckedExpr`, with the fields that are looked at.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

from webhook.core.pod_rules.fields import MESSAGES, PACKAGE, Field, Fields
from webhook.core.pod_rules.messages import build_messages, find_message_class

_AST: dict[str, Fields] = {
    "Any": {"value": (2, "bytes")},
    "CheckedExpr": {"types": (3, "[TypeEntry]"), "source": (5, "Source"), "expr": (4, "Expr")},
    "TypeEntry": {"key": "int", "value": "Type"},
    "Type": {"dyn": (1, "Nothing"), "primitive": (3, "int?"), "list": (6, "ListType"), "map": (7, "MapType")}
    | {"message": (9, "string"), "optional": (14, "Nothing")},
    "ListType": {"element": "Type"},
    "MapType": {"key": "Type", "value": "Type"},
    "Nothing": {},
    "Source": {"line_offsets": (3, "[int]"), "positions": (4, "[Position]")},
    "Position": {"key": "int", "value": "int"},
    "Expr": {"id": (2, "int"), "constant": (3, "Constant"), "ident": (4, "Ident"), "select": (5, "Select")}
    | {"call": (6, "Call"), "list": (7, "List"), "struct": (8, "Struct"), "loop": (9, "Loop")},
    "Constant": {"string": (6, "string?")},
    "Ident": {"name": "string"},
    "Select": {"operand": "Expr", "field": "string"},
    "Call": {"target": "Expr", "function": "string", "args": "[Expr]"},
    "List": {"elements": "[Expr]"},
    "Struct": {"message": "string", "entries": "[Entry]"},
    "Entry": {"key": (3, "Expr"), "value": (4, "Expr")},
    "Loop": {
        "variable": (1, "string"),
        "range": (2, "Expr"),
        "accumulator": (3, "string"),
        "start": (4, "Expr"),
        "condition": (5, "Expr"),
        "step": (6, "Expr"),
        "result": (7, "Expr"),
    },
}
_OPTIONAL_SELECT = "_?._"
_PLAIN_KINDS = ("primitive", "list", "map")


class ExpressionTree:
    """One expression; `encoded` is a `CheckedExpr` in an `Any`."""

    def __init__(self, encoded: bytes) -> None:
        outer, form = _load_classes()
        self._form = form.FromString(outer.FromString(encoded).value)
        self.expr = self._form.expr
        self.types = {entry.key: entry.value for entry in self._form.types}

    def find_place(self, expr: Any) -> tuple[int, int]:
        """Return line and column of a part, from 1."""
        offset = {position.key: position.value for position in self._form.source.positions}.get(expr.id, 0)
        starts = [0, *(end for end in self._form.source.line_offsets if end <= offset)]
        return len(starts), offset - starts[-1] + 1

    def list_reads(self) -> frozenset[Field]:
        """Return the fields of messages that the expression reads, perhaps more where a type is not known."""
        return frozenset(field for part in walk(self.expr) for field in self._find_reads(part))

    def _find_reads(self, expr: Any) -> Iterator[Field]:
        if expr.HasField("select"):
            operand, name = expr.select.operand, expr.select.field
        elif expr.HasField("call") and expr.call.function == _OPTIONAL_SELECT:
            operand, name = expr.call.args[0], expr.call.args[1].constant.string
        else:
            return
        kind = self.types.get(operand.id)
        if kind is not None and kind.message:
            yield kind.message.removeprefix(f"{PACKAGE}."), name
        elif kind is None or not any(kind.HasField(plain) for plain in _PLAIN_KINDS):
            yield from ((message, name) for message, fields in MESSAGES.items() if name in fields)


@cache
def _load_classes() -> tuple[Any, Any]:
    pool = build_messages("ast", _AST)
    return find_message_class(pool, "ast.Any"), find_message_class(pool, "ast.CheckedExpr")


def list_operands(expr: Any) -> list[Any]:
    """Return the target and the arguments of a call."""
    return [*([expr.call.target] if expr.call.HasField("target") else []), *expr.call.args]


def walk(expr: Any) -> Iterator[Any]:
    """Yield an expression and all its parts."""
    yield expr
    parts = [*list_operands(expr), *expr.list.elements]
    parts += [part for entry in expr.struct.entries for part in (entry.key, entry.value)]
    if expr.HasField("select"):
        parts.append(expr.select.operand)
    if expr.HasField("loop"):
        loop = expr.loop
        parts += [loop.range, loop.start, loop.condition, loop.step, loop.result]
    for part in parts:
        yield from walk(part)
