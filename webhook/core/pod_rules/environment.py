"""Environment of expressions: the one module that knows the library of CEL, which is optional and large.

It is imported when the first policy with rules is loaded. The library is a pure function of expression and values.
"""

import re
from collections.abc import Mapping
from functools import cache, cached_property, lru_cache
from typing import Any, NamedTuple

from webhook.core.plain_text import escape_line
from webhook.core.pod_rules.conversion import compute_quantity
from webhook.core.pod_rules.fields import MESSAGES, PACKAGE
from webhook.core.pod_rules.messages import build_messages, find_message_class
from webhook.core.pod_rules.view import RuleSubject

_ERROR = re.compile(r"ERROR: <input>:(-?\d+):(-?\d+): (.*)")
_DOUBLING = re.compile(r"\bopt(?:Flat)?Map\b")
"""Macros that write their operand twice: thirty of them exhaust the memory of the parser."""
_ERROR_TEXT_CHARACTERS_MAX = 200
_QUANTITIES_MAX = 1024


class LibraryMissingError(Exception):
    """The extra with the CEL library is not installed."""


class ExpressionError(Exception):
    """An expression is not accepted. `line` and `column` are within the expression, from 1; 0 if it is all of it."""

    def __init__(self, reason: str, remedy: str, line: int = 0, column: int = 0) -> None:
        super().__init__(reason)
        self.reason, self.remedy, self.line, self.column = reason, remedy, line, column


class EvaluationError(Exception):
    """An expression has no value for this Pod."""


class Expression(NamedTuple):
    """A compiled expression; `checked`: its checked form, encoded as `cel.expr.CheckedExpr` in an `Any`."""

    compiled: Any
    result_type: Any
    checked: bytes

    def evaluate(self, activation: Any) -> Any:
        """Return the expression's value. EvaluationError: it has none."""
        try:
            found = self.compiled.eval(activation)
        except RuntimeError as error:  # such as too many iterations
            raise EvaluationError(_shorten(str(error))) from None
        if found.type() != self.result_type:  # an error is a value, of a type of its own
            raise EvaluationError(_shorten(str(found.value())))
        return found.value()


class Environment:
    """The variables and functions of expressions: `pod`, `service`, `user`, `quantity()`.

    CEL reserves the word `namespace`: it is a field of `pod`.
    """

    def __init__(self) -> None:
        try:
            from cel_expr_python import cel  # noqa: PLC0415  optional, and large: only for policies with rules
            from cel_expr_python.ext import ext_optional  # noqa: PLC0415  as above

            pool = build_messages(PACKAGE, MESSAGES)
        except ImportError as error:
            raise LibraryMissingError(str(error)) from None
        kind = cel.Type(f"{PACKAGE}.Quantity")
        self._pod_class = find_message_class(pool, f"{PACKAGE}.Pod")
        self._quantity_class = find_message_class(pool, f"{PACKAGE}.Quantity")
        self._result_types = {"bool": cel.Type.BOOL, "string": cel.Type.STRING}
        overload = cel.Overload(
            "quantity(string)",
            return_type=kind,
            parameters=[cel.Type.STRING],
            impl=lru_cache(_QUANTITIES_MAX)(self._make_quantity),
        )
        texts = dict.fromkeys(("service", "user"), cel.Type.STRING)
        self._env = cel.NewEnv(
            pool,
            variables={"pod": cel.Type(f"{PACKAGE}.Pod"), **texts},
            # No extension with string functions: their results grow without a bound.
            extensions=[ext_optional.ExtOptional()],
            functions=[cel.FunctionDecl("quantity", [overload])],
        )

    def compile(self, text: str, result: str) -> Expression:
        """Compile an expression with a result of type `bool` or `string`. ExpressionError: the first mistake."""
        doubling = _DOUBLING.search(text)
        if doubling is not None:
            raise ExpressionError(f"{doubling[0]} is not available", "use orValue() or hasValue()")
        try:
            expression = self._env.compile(text)
        except RuntimeError as error:
            raise _read_error(str(error)) from None
        if expression.return_type() != self._result_types[result]:
            given = expression.return_type().name().lower()
            raise ExpressionError(f"its type is {given}, not {result}", f"write an expression of type {result}")
        return Expression(expression, self._result_types[result], expression.serialize())

    def find_pattern_error(self, pattern: str) -> str:
        """Return why a text is no regular expression, "" if it is one."""
        activation = self.activate({}, RuleSubject("", pattern, ""))
        try:
            self._matching.evaluate(activation)
        except EvaluationError as error:
            return str(error)
        return ""

    @cached_property
    def _matching(self) -> Expression:
        return self.compile("user.matches(service)", "bool")

    def activate(self, values: Mapping[str, Any], subject: RuleSubject) -> Any:
        """Return the values that expressions are evaluated with."""
        variables = {"pod": self._pod_class(**values), "service": subject.service, "user": subject.user}
        return self._env.Activation(variables)

    def _make_quantity(self, text: str) -> Any:
        value, milli_value = compute_quantity(text)
        return self._quantity_class(value=value, milliValue=milli_value)


@cache
def load_environment() -> Environment:
    """Return the environment, the same for all policies. LibraryMissingError: the extra is not installed."""
    return Environment()


def _read_error(text: str) -> ExpressionError:
    found = _ERROR.search(text)
    if found is None:
        return ExpressionError(_shorten(text), "write a shorter or flatter expression")
    line, column, reason = max(0, int(found[1])), max(0, int(found[2])), _shorten(found[3])
    if "undefined field" in reason:
        return ExpressionError(reason, "docs/rules.md lists the fields of a Pod", line, column)
    if reason == "reserved identifier: namespace":
        return ExpressionError(reason, "write pod.namespace", line, column)
    if "undeclared reference" in reason:
        return ExpressionError(reason, "write pod, service, user or quantity()", line, column)
    return ExpressionError(reason, "correct the expression", line, column)


def _shorten(text: str) -> str:
    """Return the first sentence of the library's text, on one line; it quotes the expression, whatever is in it."""
    line = text.partition("\n")[0].partition(" ERROR: <input>")[0].strip()
    line = re.sub(r"^[A-Z_]+: |\s*\[[A-Z_]+\]$", "", line)
    line = escape_line(line)
    return line if len(line) <= _ERROR_TEXT_CHARACTERS_MAX else f"{line[: _ERROR_TEXT_CHARACTERS_MAX - 1]}…"
