"""An interpreter of the part of CEL that match conditions use; the API server's own is compared in tests/cluster."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

Environment = Mapping[str, Any]
Node = Callable[[Environment], Any]
_TOKEN = re.compile(
    r"\s*(?:(?P<text>'(?:[^'\\]|\\.)*')|(?P<int>\d+)|(?P<word>[A-Za-z_]\w*)|(?P<sign>\|\||&&|==|!=|\.\?|\[\?|[][(){}.,!>]))"
)
_ESCAPE = re.compile(r"\\U([0-9a-f]{8})")


@dataclass(frozen=True)
class Optional:
    """A CEL optional; `found` is empty or has one value."""

    found: tuple[Any, ...] = ()


def is_true(expression: str, **variables: Any) -> bool:
    """Evaluate a condition. An error, such as a missing field, is raised."""
    result = _compile(expression)(variables)
    assert isinstance(result, bool), (expression, result)
    return result


@lru_cache(maxsize=256)
def _compile(expression: str) -> Node:
    parser = _Parser(expression)
    node = parser.parse_any_of()
    assert parser.next == "", f"{parser.next!r} is left of {expression!r}"
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            assert found is not None, text[at : at + 40]
            assert found.lastgroup is not None
            self._tokens.append((found.lastgroup, found[found.lastgroup]))
            at = found.end()
        self._tokens.append(("end", ""))

    @property
    def next(self) -> str:
        return self._tokens[0][1]

    def _take_if(self, *wanted: str) -> bool:
        if self._tokens[0][0] in {"sign", "word"} and self.next in wanted:
            del self._tokens[0]
            return True
        return False

    def _expect(self, wanted: str) -> None:
        assert self._take_if(wanted), f"{self.next!r} in place of {wanted!r}"

    def parse_any_of(self) -> Node:
        parts = [self._parse_all_of()]
        while self._take_if("||"):
            parts.append(self._parse_all_of())
        return parts[0] if len(parts) == 1 else lambda env: any(part(env) for part in parts)

    def _parse_all_of(self) -> Node:
        parts = [self._parse_relation()]
        while self._take_if("&&"):
            parts.append(self._parse_relation())
        return parts[0] if len(parts) == 1 else lambda env: all(part(env) for part in parts)

    def _parse_relation(self) -> Node:
        left = self._parse_unary()
        for sign, compare in _RELATIONS.items():
            if self._take_if(sign):
                right = self._parse_unary()
                return lambda env: compare(left(env), right(env))
        return left

    def _parse_unary(self) -> Node:
        if self._take_if("!"):
            inner = self._parse_unary()
            return lambda env: not inner(env)
        return self._parse_member(self._parse_primary())

    def _parse_member(self, node: Node) -> Node:
        while True:
            if self._take_if(".?"):
                node = _build_optional(node, _build_constant(self._parse_word()))
            elif self._take_if("[?"):
                node = _build_optional(node, self.parse_any_of())
                self._expect("]")
            elif self._take_if("."):
                word = self._parse_word()
                node = self._parse_call(node, word) if self._take_if("(") else _build_required(node, word)
            else:
                return node

    def _parse_call(self, node: Node, method: str) -> Node:
        if method == "exists":
            variable = self._parse_word()
            self._expect(",")
            inner = self.parse_any_of()
            self._expect(")")
            return lambda env: any(inner({**env, variable: element}) for element in node(env))
        argument = None if self.next == ")" else self.parse_any_of()
        self._expect(")")
        apply = _METHODS[method]
        return lambda env: apply(node(env), None if argument is None else argument(env))

    def _parse_primary(self) -> Node:
        kind, text = self._tokens.pop(0)
        if kind == "text":
            return _build_constant(_ESCAPE.sub(lambda found: chr(int(found[1], 16)), text[1:-1]))
        if kind == "int":
            return _build_constant(int(text))
        if kind == "sign":
            return self._parse_group(text)
        return self._parse_has() if text == "has" else _CONSTANTS.get(text, lambda env: env[text])

    def _parse_group(self, sign: str) -> Node:
        if sign == "[":
            return self._parse_list()
        assert sign in "({", sign
        node = self.parse_any_of() if sign == "(" else _build_constant({})
        self._expect(")" if sign == "(" else "}")
        return node

    def _parse_list(self) -> Node:
        items = []
        while not self._take_if("]"):
            items.append(self.parse_any_of())
            self._take_if(",")
        return lambda env: [item(env) for item in items]

    def _parse_has(self) -> Node:
        self._expect("(")
        node: Node = self._parse_primary()
        path = []
        while self._take_if("."):
            path.append(self._parse_word())
        self._expect(")")
        *parents, last = path
        for word in parents:
            node = _build_required(node, word)
        return lambda env: last in node(env)

    def _parse_word(self) -> str:
        kind, text = self._tokens.pop(0)
        assert kind == "word", text
        return text


_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">": lambda left, right: left > right,
    "in": lambda left, right: left in right,
}
_METHODS: dict[str, Callable[[Any, Any], Any]] = {
    "hasValue": lambda optional, _: bool(optional.found),
    "orValue": lambda optional, other: optional.found[0] if optional.found else other,
    "startsWith": lambda text, prefix: text.startswith(prefix),
    "endsWith": lambda text, suffix: text.endswith(suffix),
    "size": lambda value, _: len(value),
}


def _build_constant(value: Any) -> Node:
    return lambda _: value


_CONSTANTS = {"true": _build_constant(True), "false": _build_constant(False)}  # noqa: FBT003  the values themselves


def _build_required(node: Node, word: str) -> Node:
    return lambda env: node(env)[word]


def _build_optional(node: Node, key: Node) -> Node:
    def select(env: Environment) -> Optional:
        value = node(env)
        if isinstance(value, Optional):
            if not value.found:
                return value
            value = value.found[0]
        wanted = key(env)
        return Optional((value[wanted],)) if wanted in value else Optional()

    return select
