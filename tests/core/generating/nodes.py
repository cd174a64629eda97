"""Node affinity: expressions of every operator, fields, several and empty terms, preferences."""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.core.generating.vocabulary import (
    HOME,
    NODE_KEYS,
    NODE_NAMES,
    PREFERRED,
    REQUIRED,
    Json,
    PodStyle,
    draw_object,
)

_OPERATORS = st.sampled_from(["In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
_BOUNDS = st.sampled_from(["0", "1", "1", HOME, HOME, "3", "abc", "99999999999999999999"])


def _expression(key: str, operator: str, chosen: list[str], bound: str, *, null: bool) -> Json:
    if operator in {"In", "NotIn"}:
        return {"key": key, "operator": operator, "values": chosen}
    if operator in {"Gt", "Lt"}:
        return {"key": key, "operator": operator, "values": [bound]}
    return {"key": key, "operator": operator, **({"values": None} if null else {})}


@cache
def expressions(style: PodStyle) -> st.SearchStrategy[Json]:
    return st.builds(
        _expression,
        style.keys,
        _OPERATORS,
        st.lists(style.values, min_size=1, max_size=3),
        _BOUNDS,
        null=st.just(False) if style.strict else st.booleans(),  # noqa: FBT003  a value to draw
    )


name_fields = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(["In", "In", "NotIn"]),
    st.sampled_from(NODE_NAMES),
)


@cache
def terms(style: PodStyle) -> st.SearchStrategy[Json]:
    some, names = st.lists(expressions(style), max_size=3), st.lists(name_fields, max_size=2)
    return draw_object(style, {}, {"matchExpressions": some, "matchFields": names})


@cache
def draw_required(style: PodStyle) -> st.SearchStrategy[Json]:
    """One to four terms, some of them the same."""
    several = st.lists(terms(style), min_size=1, max_size=3)
    repeated = st.builds(lambda some, place: [*some, some[place % len(some)]], several, st.integers(0, 2))
    return draw_object(style, {"nodeSelectorTerms": several | several | repeated}, {})


@cache
def draw_preferred(style: PodStyle, most: int = 3) -> st.SearchStrategy[list[Json]]:
    weights = st.sampled_from([1, 50, 100])
    return st.lists(st.fixed_dictionaries({"weight": weights, "preference": terms(style)}), max_size=most)


@cache
def affinities(style: PodStyle, *, is_required: bool = False) -> st.SearchStrategy[Json]:
    """Draw node affinity; `surely`: with required terms."""
    terms = {REQUIRED: draw_required(style)}
    return draw_object(style, terms if is_required else {}, {**terms, PREFERRED: draw_preferred(style)})


@st.composite
def satisfiable_terms(draw: st.DrawFn) -> Json:
    """Draw a term that matches a node with every label at HOME, as the terms of a satisfiable policy do."""
    found: list[Json] = []
    for key in draw(st.lists(st.sampled_from(NODE_KEYS), max_size=2)):
        others = draw(st.lists(st.sampled_from(["1", "3", ""]), max_size=2, unique=True))
        found.append(
            draw(
                st.sampled_from(
                    [
                        {"key": key, "operator": "In", "values": [*others, HOME]},
                        {"key": key, "operator": "In", "values": [HOME, *others]},
                        {"key": key, "operator": "NotIn", "values": others or ["1"]},
                        {"key": key, "operator": "Exists"},
                        {"key": key, "operator": "Gt", "values": ["1"]},
                        {"key": key, "operator": "Lt", "values": ["3"]},
                        {"key": "absent.io/x", "operator": "DoesNotExist"},
                    ]
                )
            )
        )
    if draw(st.sampled_from([False, False, False, True])):
        name: Json = {"key": "metadata.name", "operator": "NotIn", "values": ["n2"]}
        return {"matchExpressions": found, "matchFields": [name]} if found else {"matchFields": [name]}
    return {"matchExpressions": found or [{"key": "disk", "operator": "Exists"}]}


node_labels: st.SearchStrategy[dict[str, str]] = st.dictionaries(
    st.sampled_from([*NODE_KEYS, *NODE_KEYS, "odd.io/~", "absent.io/x"]),
    st.sampled_from(["1", HOME, HOME, "3", "", "02", "abc", "99999999999999999999"]),
    max_size=5,
)
all_home: dict[str, Any] = dict.fromkeys(NODE_KEYS, HOME)
labels_with_home = node_labels.map(lambda labels: {**all_home, **labels})
some_node_labels = node_labels | labels_with_home
