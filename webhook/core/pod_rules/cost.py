"""Bound on the cost of an expression for any Pod, counted in its checked form before it is ever evaluated.

The library ends loops after 10,000 iterations, but not growing texts, comparisons of nested lists, or regular
expressions, which it compiles for each evaluation. What could grow without a bound is refused; all else has a cost.
Why a count: docs/design/rule-cost.md.
"""

from collections.abc import Iterable
from functools import cache
from typing import Any

from webhook.core.pod_rules import view
from webhook.core.pod_rules.environment import ExpressionError, build_messages, message_class

COST_MAX = 50_000
"""Limit of the cost of a service's rules together: below 5 ms."""

_AST: dict[str, view.Fields] = {
    "Any": {"value": (2, "bytes")},
    "CheckedExpr": {"types": (3, "[TypeEntry]"), "source": (5, "Source"), "expr": (4, "Expr")},
    "TypeEntry": {"key": "int", "value": "Type"},
    "Type": {"dyn": (1, "Nothing"), "primitive": (3, "int"), "list": (6, "ListType"), "map": (7, "MapType")}
    | {"message": (9, "string")},
    "ListType": {"element": "Type"},
    "MapType": {"key": "Type", "value": "Type"},
    "Nothing": {},
    "Source": {"line_offsets": (3, "[int]"), "positions": (4, "[Position]")},
    "Position": {"key": "int", "value": "int"},
    "Expr": {"id": (2, "int"), "constant": (3, "Constant"), "ident": (4, "Ident"), "select": (5, "Select")}
    | {"call": (6, "Call"), "list": (7, "List"), "struct": (8, "Struct"), "loop": (9, "Loop")},
    "Constant": {"string": (6, "string?")},
    "Ident": {"name": "string"},
    "Select": {"operand": "Expr"},
    "Call": {"target": "Expr", "function": "string", "args": "[Expr]"},
    "List": {"elements": "[Expr]"},
    "Struct": {"message": "string", "entries": "[Entry]"},
    "Entry": {"key": (3, "Expr"), "value": (4, "Expr")},
    "Loop": {"range": (2, "Expr"), "accumulator": (3, "string"), "start": (4, "Expr"), "condition": (5, "Expr")}
    | {"step": (6, "Expr"), "result": (7, "Expr")},
}
_STRING, _BYTES = 5, 6
_COSTS = {"matches": 150, "quantity": 80, "timestamp": 50, "duration": 50}
_COST_OF_TEXT = 10
_COST_OF_ATOM = 100
_COST_OF_ENTRY = 2
_COST_OF_RESULT = 8
_PLAIN = frozenset({"_&&_", "_||_", "!_", "_?_:_", "_<_", "_<=_", "_>_", "_>=_", "_-_", "-_", "@not_strictly_false"})
_ACCESSORS = "get"
"""Prefix of the functions of timestamps: with a time zone they read a file."""


def estimate_cost(checked: bytes) -> int:
    """Return the bound on an expression's cost. ExpressionError: it has none."""
    return _Estimate(checked).count()


class _Estimate:
    def __init__(self, checked: bytes) -> None:
        outer, form = _ast_classes()
        self._form = form.FromString(outer.FromString(checked).value)
        self._types = {entry.key: entry.value for entry in self._form.types}
        self._accumulators: list[str] = []
        self._list_entries_max = view.ENTRIES_MAX

    def count(self) -> int:
        return self._cost(self._form.expr)

    def _cost(self, expr: Any) -> int:
        if expr.HasField("call"):
            return self._cost_of_call(expr)
        if expr.HasField("loop"):
            return self._cost_of_loop(expr)
        if expr.HasField("select"):
            return 1 + self._cost(expr.select.operand)
        if expr.HasField("list") or expr.HasField("struct"):
            return self._cost_of_literal(expr)
        return 1

    def _cost_of_literal(self, expr: Any) -> int:
        if expr.struct.message:
            raise self._refuse(expr, "makes a message", "compare fields instead")
        parts = list(expr.list.elements) or [part for one in expr.struct.entries for part in (one.key, one.value)]
        if self._accumulators and not all(map(_is_constant, parts)):
            raise self._refuse(expr, "makes a list or map in a loop", "write constants, or move it out of the loop")
        self._list_entries_max = max(self._list_entries_max, len(parts))
        return 1 + self._sum(parts)

    def _cost_of_loop(self, expr: Any) -> int:
        loop = expr.loop
        cost = self._cost(loop.range)
        entries = self._entries(loop.range)
        self._accumulators.append(loop.accumulator)
        turn = 2 + self._cost(loop.condition) + self._cost(loop.step)
        self._accumulators.pop()
        return cost + 1 + entries * turn + self._cost(loop.result)

    def _cost_of_call(self, expr: Any) -> int:
        name, operands = expr.call.function, _operands(expr)
        if name == "_+_" and self._accumulators and _is_ident(operands[0], self._accumulators[-1]):
            return _COST_OF_RESULT + self._sum(operands[1].list.elements)  # what `map` and `filter` make
        cost = 1 + self._sum(operands)
        if name in _PLAIN:
            return cost
        if name == "dyn":
            raise self._refuse(expr, "hides a type", "leave dyn() out")
        if name == "_+_" and self._grows(expr):
            if self._accumulators:
                raise self._refuse(expr, "joins texts or lists in a loop", "compare the parts instead")
            return cost + self._entries(expr)
        if name in {"_==_", "_!=_", "@in"}:
            return cost + self._cost_of_comparison(expr, operands)
        if name == "matches":
            return cost + self._cost_of_pattern(operands[1])
        if name.startswith(_ACCESSORS) and len(operands) > 1:
            raise self._refuse(expr, "reads a time zone", "leave it out: times are in UTC")
        return cost + _COSTS.get(name, _COST_OF_TEXT)

    def _cost_of_comparison(self, expr: Any, operands: list[Any]) -> int:
        kinds = [self._types.get(operand.id) for operand in operands]
        if any(kind is not None and not _is_comparable(kind) for kind in kinds):
            raise self._refuse(expr, "compares whole objects or nested lists", "compare their fields")
        if expr.call.function == "@in" and kinds[1] is not None and kinds[1].HasField("map"):
            return 1
        compound = [operand for operand, kind in zip(operands, kinds, strict=True) if _is_compound(kind)]
        return _COST_OF_ENTRY * sum(map(self._entries, compound))

    def _cost_of_pattern(self, pattern: Any) -> int:
        if not pattern.constant.HasField("string"):
            raise self._refuse(pattern, "the pattern is not a constant", "write the regular expression as a text")
        text = pattern.constant.string
        if "(?" in text or "\\p" in text or "\\P" in text or not text.isascii():
            raise self._refuse(pattern, "the pattern has flags or classes of Unicode", "write classes such as [a-z]")
        return _COSTS["matches"] + _COST_OF_ATOM * count_atoms(text)

    def _entries(self, expr: Any) -> int:
        """Return how many entries a list or map has at most."""
        if expr.HasField("list") or expr.HasField("struct"):
            return len(expr.list.elements) or len(expr.struct.entries)
        if expr.HasField("loop"):
            return self._entries(expr.loop.range)
        if expr.HasField("call") and expr.call.function == "_+_":
            return sum(map(self._entries, expr.call.args))
        if expr.HasField("call") and expr.call.function == "_?_:_":
            return max(map(self._entries, list(expr.call.args)[1:]))
        return self._list_entries_max

    def _grows(self, expr: Any) -> bool:
        kind = self._types.get(expr.id)
        return kind is None or kind.primitive in {_STRING, _BYTES} or kind.HasField("list") or kind.HasField("dyn")

    def _sum(self, exprs: Iterable[Any]) -> int:
        return sum(map(self._cost, exprs))

    def _refuse(self, expr: Any, reason: str, remedy: str) -> ExpressionError:
        offset = {position.key: position.value for position in self._form.source.positions}.get(expr.id, 0)
        starts = [0, *(end for end in self._form.source.line_offsets if end <= offset)]
        return ExpressionError(reason, remedy, len(starts), offset - starts[-1] + 1)


@cache
def _ast_classes() -> tuple[Any, Any]:
    pool = build_messages("ast", _AST)
    return message_class(pool, "ast.Any"), message_class(pool, "ast.CheckedExpr")


def _operands(expr: Any) -> list[Any]:
    return [*([expr.call.target] if expr.call.HasField("target") else []), *expr.call.args]


def _is_ident(expr: Any, name: str) -> bool:
    return bool(expr.HasField("ident")) and expr.ident.name == name


def _is_constant(expr: Any) -> bool:
    return bool(expr.HasField("constant"))


def _is_compound(kind: Any) -> bool:
    return kind is not None and any(kind.HasField(name) for name in ("list", "map", "dyn"))


def _is_comparable(kind: Any) -> bool:
    """Whether a type is plain, or a list or map of a plain type."""
    entry = kind.list.element if kind.HasField("list") else kind.map.value
    return not kind.message and not entry.message and not entry.HasField("list") and not entry.HasField("map")


def count_atoms(pattern: str) -> int:
    """Return how many characters and classes a regular expression has once its counted repetitions are written out."""
    totals, last, place = [0], 0, 0
    while place < len(pattern):
        mark = pattern[place]
        if mark == "(":
            totals.append(0)
        elif mark == ")" and len(totals) > 1:
            last = totals.pop()
            totals[-1] += last
        elif mark == "{":
            end = pattern.find("}", place)
            counts = [int(part) for part in pattern[place + 1 : max(end, place)].split(",") if part.isdigit()]
            totals[-1] += last * (max(counts, default=1) - 1)
            last *= max(counts, default=1)
            place = max(end, place)
        else:
            last = 1
            totals[-1] += 1
            place = _end_of_atom(pattern, place)
        place += 1
    return sum(totals)


def _end_of_atom(pattern: str, place: int) -> int:
    """Return the place of the last character of an atom: an escape, a class, or the character itself."""
    if pattern[place] == "\\":
        return place + 1
    end = pattern.find("]", place + 2)
    return end if pattern[place] == "[" and end > 0 else place
