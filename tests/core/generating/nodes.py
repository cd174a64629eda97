"""Node affinity: expressions of every operator, fields, several and empty terms, preferences."""

from functools import cache
from typing import Any

from hypothesis import strategies as st

from tests.core.generating.vocabulary import HOME, NODE_KEYS, NODE_NAMES, PREFERRED, REQUIRED, Json, Taste, built

_OPERATORS = st.sampled_from(["In", "In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
_BOUNDS = st.sampled_from(["0", "1", "1", HOME, HOME, "3", "abc", "99999999999999999999"])


def _expression(key: str, operator: str, chosen: list[str], bound: str, *, null: bool) -> Json:
    if operator in {"In", "NotIn"}:
        return {"key": key, "operator": operator, "values": chosen}
    if operator in {"Gt", "Lt"}:
        return {"key": key, "operator": operator, "values": [bound]}
    return {"key": key, "operator": operator, **({"values": None} if null else {})}


@cache
def expressions(taste: Taste) -> st.SearchStrategy[Json]:
    return st.builds(
        _expression,
        taste.keys,
        _OPERATORS,
        st.lists(taste.values, min_size=1, max_size=3),
        _BOUNDS,
        null=st.just(False) if taste.strict else st.booleans(),  # noqa: FBT003  a value to draw
    )


name_fields = st.builds(
    lambda operator, name: {"key": "metadata.name", "operator": operator, "values": [name]},
    st.sampled_from(["In", "In", "NotIn"]),
    st.sampled_from(NODE_NAMES),
)


@cache
def terms(taste: Taste) -> st.SearchStrategy[Json]:
    some, names = st.lists(expressions(taste), max_size=3), st.lists(name_fields, max_size=2)
    return built(taste, {}, {"matchExpressions": some, "matchFields": names})


@cache
def required(taste: Taste) -> st.SearchStrategy[Json]:
    """One to four terms, some of them the same."""
    several = st.lists(terms(taste), min_size=1, max_size=3)
    repeated = st.builds(lambda some, place: [*some, some[place % len(some)]], several, st.integers(0, 2))
    return built(taste, {"nodeSelectorTerms": several | several | repeated}, {})


@cache
def preferred(taste: Taste, most: int = 3) -> st.SearchStrategy[list[Json]]:
    weights = st.sampled_from([1, 50, 100])
    return st.lists(st.fixed_dictionaries({"weight": weights, "preference": terms(taste)}), max_size=most)


@cache
def affinities(taste: Taste, *, surely: bool = False) -> st.SearchStrategy[Json]:
    """Draw node affinity; `surely`: with required terms."""
    terms = {REQUIRED: required(taste)}
    return built(taste, terms if surely else {}, {**terms, PREFERRED: preferred(taste)})


@st.composite
def agreeable(draw: st.DrawFn) -> Json:
    """Draw a term that a node with every label at HOME fits: what a policy that does not contradict itself asks for."""
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
homely = node_labels.map(lambda labels: {**all_home, **labels})
some_node_labels = node_labels | homely
