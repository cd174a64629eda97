"""Satisfiability of required node terms, compared with an exact enumeration of all nodes."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.core.document.documents import build_document, list_problems, list_warnings
from tests.core.oracle.node_sets import Universe, selector_term
from tests.core.strategies import Json, examples

KEYS = st.sampled_from(["disk", "cores"])
VALUES = st.lists(st.sampled_from(["1", "2", "4"]), min_size=1, max_size=2, unique=True)


def expression(key: str, operator: str, values: list[str]) -> Json:
    required_values = {"In": values, "NotIn": values, "Gt": values[:1], "Lt": values[:1]}.get(operator)
    return {"key": key, "operator": operator, **({} if required_values is None else {"values": required_values})}


OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
TERMS = st.lists(
    st.lists(st.builds(expression, KEYS, OPERATORS, VALUES), min_size=1, max_size=3).map(
        lambda found: {"matchExpressions": found}
    ),
    min_size=1,
    max_size=2,
)
SELECTORS = st.dictionaries(KEYS, st.sampled_from(["1", "2", "4"]), max_size=1)
TOPOLOGIES = st.lists(st.fixed_dictionaries({"key": KEYS, "in": VALUES}), max_size=1)


def document(terms: list[Json], selector: Json, topology: list[Json]) -> str:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    placement = {"nodeSelector": selector, "topology": topology, "affinity": {"nodeAffinity": required}}
    return build_document(f"  placement: {json.dumps(placement)}\n")


@examples(150)
@given(TERMS, SELECTORS, TOPOLOGIES)
def test_policy_is_an_error_if_no_node_fits_and_a_warning_if_none_fits_one_term(
    terms: list[Json], selector: Json, topology: list[Json]
) -> None:
    outside = [expression(entry["key"], "In", entry["in"]) for entry in topology]
    outside += (selector_term(selector) or {}).get("matchExpressions", [])
    elsewhere = [{"matchExpressions": outside}] if outside else []
    nodes = Universe([*terms, *elsewhere])
    allowed = nodes.find_boxes(elsewhere or None)
    fitting = [bool(nodes.intersect(nodes.find_boxes([term]), allowed)) for term in terms]
    found = list_problems(document(terms, selector, topology))
    if not allowed:
        assert any("contradicts topology" in line for line in found)
    elif any(fitting):
        assert found == []
        about_terms = [
            line for line in list_warnings(document(terms, selector, topology)) if "no node can match" in line
        ]
        assert len(about_terms) == fitting.count(False)
    else:
        assert [line for line in found if "no node can match" not in line] == []
        assert len(found) == len(terms)
