"""Bound on the cost of an expression for any Pod, counted in its checked form before it is ever evaluated.

The library ends loops after 10,000 iterations, but not growing texts, comparisons of nested lists, or regular
expressions, which it compiles for each evaluation. What could grow without a bound is refused; all else has a cost.
Why a count: docs/design/rule-cost.md.
"""

from collections.abc import Iterable
from typing import Any

from webhook.core.pod_rules.environment import ExpressionError, load_environment
from webhook.core.pod_rules.expression_tree import ExpressionTree, list_operands, walk
from webhook.core.pod_rules.fields import CONTAINERS, ENTRIES_MAX, NESTED_MAX, PACKAGE
from webhook.core.pod_rules.patterns import count_atoms

COST_MAX = 50_000
"""Limit of the cost of a service's rules together: below 5 ms."""

_STRING, _BYTES = 5, 6
_COSTS = {"matches": 150, "quantity": 80, "timestamp": 50, "duration": 50}
_COST_OF_TEXT = 10
_COST_OF_ATOM = 100
_COST_OF_ENTRY = 2
_COST_OF_RESULT = 15
_PLAIN = frozenset({"_&&_", "_||_", "!_", "_?_:_", "_<_", "_<=_", "_>_", "_>=_", "_-_", "-_", "@not_strictly_false"})
_ACCESSORS = "get"
"""Prefix of the functions of timestamps: with a time zone they read a file."""


def estimate_cost(form: ExpressionTree) -> int:
    """Return the bound on an expression's cost. ExpressionError: it has none."""
    return _Estimate(form).count()


class _Estimate:
    def __init__(self, form: ExpressionTree) -> None:
        self._form = form
        self._types = form.types
        self._accumulators: list[str] = []
        self._ranges: list[tuple[str, Any]] = []
        """The variables of the loops around a part, and what each runs over."""
        joined = [self._types.get(part.id) for part in walk(form.expr) if _is_join(part)]
        texts = sum(kind is not None and kind.primitive in {_STRING, _BYTES} for kind in joined)
        self._text_parts_max = 1 + texts
        """How many texts of a Pod or of the expression any text is joined of: no loop joins any."""
        self._entries_max = ENTRIES_MAX * (1 + len(joined) - texts)

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
        self._entries_max = max(self._entries_max, len(parts))
        return 1 + self._sum(parts)

    def _cost_of_loop(self, expr: Any) -> int:
        loop = expr.loop
        cost = self._cost(loop.range)
        entries = self._entries(loop.range)
        self._accumulators.append(loop.accumulator)
        self._ranges.append((loop.variable, loop.range))
        turn = 2 + self._cost(loop.condition) + self._cost(loop.step)
        self._ranges.pop()
        self._accumulators.pop()
        return cost + 1 + entries * turn + self._cost(loop.result)

    def _cost_of_call(self, expr: Any) -> int:
        name, operands = expr.call.function, list_operands(expr)
        if name == "_+_" and self._accumulators and _is_ident(operands[0], self._accumulators[-1]):
            made = operands[1].list.elements  # by `map` and `filter`
            return _COST_OF_RESULT * self._text_parts_max + self._sum(made)
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
            return cost + self._text_parts_max * self._cost_of_pattern(operands[1])
        if name.startswith(_ACCESSORS) and len(operands) > 1:
            raise self._refuse(expr, "reads a time zone", "leave it out: times are in UTC")
        return cost + _COSTS.get(name, _COST_OF_TEXT * self._text_parts_max)

    def _cost_of_comparison(self, expr: Any, operands: list[Any]) -> int:
        kinds = [self._types.get(operand.id) for operand in operands]
        given = [kind for operand, kind in zip(operands, kinds, strict=True) if not _is_empty_literal(operand)]
        if any(kind is None or not _is_comparable(kind) for kind in given):
            raise self._refuse(expr, "compares whole objects, nested lists or optionals", "compare their fields")
        if expr.call.function == "@in" and kinds[1] is not None and kinds[1].HasField("map"):
            return 1
        compound = [operand for operand, kind in zip(operands, kinds, strict=True) if _is_compound(kind)]
        return _COST_OF_ENTRY * self._text_parts_max * (1 + sum(map(self._entries, compound)))

    def _cost_of_pattern(self, pattern: Any) -> int:
        if not pattern.constant.HasField("string"):
            raise self._refuse(pattern, "the pattern is not a constant", "write the regular expression as a text")
        text = pattern.constant.string
        if "(?" in text or "\\p" in text or "\\P" in text or not text.isascii():
            raise self._refuse(pattern, "the pattern has flags or classes of Unicode", "write classes such as [a-z]")
        cost = _COSTS["matches"] + _COST_OF_ATOM * count_atoms(text)
        error = load_environment().find_pattern_error(text) if cost <= COST_MAX else ""
        if error:
            raise self._refuse(pattern, error, "correct the regular expression, in the syntax of RE2")
        return cost

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
        return NESTED_MAX // ENTRIES_MAX if self._is_of_each_container(expr) else self._entries_max

    def _is_of_each_container(self, expr: Any) -> bool:
        """Whether a list belongs to the container of a loop over all of them, whose lists have a limit together."""
        if not expr.HasField("select"):
            return False
        while expr.HasField("select"):
            expr = expr.select.operand
        range_ = next((range_ for name, range_ in reversed(self._ranges) if _is_ident(expr, name)), None)
        return range_ is not None and self._lists_containers(range_)

    def _lists_containers(self, expr: Any) -> bool:
        if expr.HasField("call") and expr.call.function == "_+_":
            return all(map(self._lists_containers, expr.call.args))
        kind = self._types.get(expr.select.operand.id)
        is_of_pod = kind is not None and kind.message == f"{PACKAGE}.Pod"
        return is_of_pod and expr.HasField("select") and expr.select.field in CONTAINERS

    def _grows(self, expr: Any) -> bool:
        kind = self._types.get(expr.id)
        return kind is None or kind.primitive in {_STRING, _BYTES} or kind.HasField("list") or kind.HasField("dyn")

    def _sum(self, exprs: Iterable[Any]) -> int:
        return sum(map(self._cost, exprs))

    def _refuse(self, expr: Any, reason: str, remedy: str) -> ExpressionError:
        return ExpressionError(reason, remedy, *self._form.find_place(expr))


def _is_ident(expr: Any, name: str) -> bool:
    return bool(expr.HasField("ident")) and expr.ident.name == name


def _is_join(expr: Any) -> bool:
    """Whether a part joins texts or lists, or adds numbers; what `map` and `filter` make is no join."""
    if not expr.HasField("call") or expr.call.function != "_+_":
        return False
    return not expr.call.args[0].ident.name.startswith("@")


def _is_constant(expr: Any) -> bool:
    return bool(expr.HasField("constant"))


def _is_empty_literal(expr: Any) -> bool:
    is_literal = expr.HasField("list") or expr.HasField("struct")
    return is_literal and not expr.list.elements and not expr.struct.entries


def _is_compound(kind: Any) -> bool:
    return any(kind.HasField(name) for name in ("list", "map"))


def _is_comparable(kind: Any) -> bool:
    """Whether a type is known, and is plain, or a list or map of a plain type."""
    entry = kind.list.element if kind.HasField("list") else kind.map.value
    if any(one.message or one.HasField("dyn") or one.HasField("optional") for one in (kind, entry)):
        return False
    return not entry.HasField("list") and not entry.HasField("map")
