"""Exact sets of nodes: each term is a box, the product of the values that it allows for each label.

Of the infinitely many values of a label it needs those that expressions distinguish: the values they name, the integers
around a bound (also with more leading zeros than any list of values has), one other value, and no value.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.core.oracle.nodes import NAME, Json, is_match, parse_integer

Values = frozenset[str | None]
Box = Mapping[str, Values]
_FIELD = "field:"
_OTHER = "neither named nor a number"


class Universe:
    """The values of each label that given terms distinguish."""

    def __init__(self, terms: Iterable[Json]) -> None:
        named: dict[str, set[str | None]] = {}
        for key, expression in _list_expressions(terms):
            values = named.setdefault(key, {_OTHER} if key.startswith(_FIELD) else {_OTHER, None})
            values.update(_list_told_apart(expression))
        self._values = {key: frozenset(values) for key, values in named.items()}

    def find_box(self, term: Json) -> Box | None:
        """Return the values that a term allows, by key; None if it matches nothing."""
        found: dict[str, Values] = {}
        for key, expression in _list_expressions([term]):
            known = found.get(key, self._values[key])
            found[key] = frozenset(value for value in known if is_match(expression, value))
        return found if found and all(found.values()) else None

    def find_boxes(self, terms: Sequence[Json] | None) -> list[Box]:
        """Return the boxes of ORed terms; None as terms allows every node."""
        if terms is None:
            return [{}]
        return [box for box in map(self.find_box, terms) if box is not None]

    def intersect(self, some: Iterable[Box], others: Sequence[Box]) -> list[Box]:
        return [box for one in some for other in others if (box := self._intersect_boxes(one, other)) is not None]

    def _intersect_boxes(self, one: Box, other: Box) -> Box | None:
        found = {key: one.get(key, self._values[key]) & other.get(key, self._values[key]) for key in {*one, *other}}
        return found if all(found.values()) else None

    def is_within(self, some: Iterable[Box], others: Sequence[Box]) -> bool:
        """Return whether the union of `others` contains each of `some`."""
        return all(not self._has_rest(box, others) for box in some)

    def is_same(self, some: Sequence[Box], others: Sequence[Box]) -> bool:
        return self.is_within(some, others) and self.is_within(others, some)

    def _has_rest(self, box: Box, others: Sequence[Box]) -> bool:
        """Return whether a box has nodes outside of all `others`."""
        if not others:
            return True
        return any(self._has_rest(rest, others[1:]) for rest in self._subtract(box, others[0]))

    def _subtract(self, box: Box, other: Box) -> Iterator[Box]:
        kept: dict[str, Values] = dict(box)
        for key, allowed in other.items():
            mine = kept.get(key, self._values[key])
            outside = mine - allowed
            if outside:
                yield {**kept, key: outside}
            if not mine & allowed:
                return
            kept[key] = mine & allowed


def selector_term(selector: Mapping[str, str] | None) -> Json | None:
    """Return a nodeSelector as a term; None if it is empty."""
    if not selector:
        return None
    return {"matchExpressions": [{"key": key, "operator": "In", "values": [value]} for key, value in selector.items()]}


def _list_expressions(terms: Iterable[Json]) -> Iterator[tuple[str, Json]]:
    for term in terms:
        for expression in term.get("matchExpressions") or []:
            yield expression["key"], expression
        for expression in term.get("matchFields") or []:
            assert expression["key"] == NAME
            yield _FIELD + NAME, expression


def _list_told_apart(expression: Json) -> Iterator[str]:
    for value in expression.get("values") or []:
        yield value
        number = parse_integer(value)
        if number is not None and expression["operator"] in {"Gt", "Lt"}:
            for near in (number - 1, number, number + 1):
                yield from (str(near), f"{near:09d}")
