"""Required node affinity by example: written terms and their positions."""

import pytest

from tests.core.generating.vocabulary import REGION, REQUIRED, ZONE, Json
from tests.core.oracle.nodes import terms_of
from tests.core.placement.examples import IN_ZONES, TERMS, ZONES, asking, operations, pod, says, with_terms
from tests.core.rewriting import read, rewritten
from tests.core.strategies import service_of
from webhook.core.admission.validation import check


def test_each_of_several_terms_is_narrowed_not_only_the_last() -> None:
    assert operations(with_terms(says("disk"), says(ZONE, "In", "b", "g"), says("disk")), topology=ZONES) == [
        {"op": "add", "path": f"{TERMS}/0/matchExpressions/-", "value": IN_ZONES},
        {"op": "add", "path": f"{TERMS}/2/matchExpressions/-", "value": IN_ZONES},
    ]


def test_a_daemon_sets_match_fields_are_joined_not_replaced() -> None:
    raw = with_terms({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})
    assert operations(raw, topology=ZONES) == [
        {"op": "add", "path": f"{TERMS}/0/matchExpressions", "value": [IN_ZONES]}
    ]


@pytest.mark.parametrize("empty", [{}, {"matchExpressions": None}, {"matchExpressions": []}, {"matchFields": []}])
def test_an_empty_term_matches_nothing_and_stays_empty(empty: Json) -> None:
    assert operations(with_terms(empty), topology=ZONES) == []


@pytest.mark.parametrize(
    "own",
    [
        [{"key": ZONE, "operator": "In", "values": ["g"]}],
        [{"key": ZONE, "operator": "In", "values": ["b", "x"]}, {"key": ZONE, "operator": "NotIn", "values": ["x"]}],
        [{"key": ZONE, "operator": "In", "values": ["a"]}, {"key": ZONE, "operator": "In", "values": ["x"]}],
        [{"key": "disk", "operator": "Exists"}, {"key": "disk", "operator": "DoesNotExist"}],
        [{"key": "cores", "operator": "Gt", "values": ["3"]}, {"key": "cores", "operator": "Lt", "values": ["4"]}],
    ],
    ids=["narrower", "together_narrower", "contradictory", "there_and_not", "no_number_between"],
)
def test_a_term_that_is_narrow_enough_or_fits_no_node_stays(own: list[Json]) -> None:
    assert operations(with_terms({"matchExpressions": own}), topology=ZONES) == []


@pytest.mark.parametrize(
    "own",
    [
        {"operator": "In", "values": ["b", "x"]},
        {"operator": "NotIn", "values": ["b"]},
        {"operator": "Exists"},
        {"operator": "DoesNotExist"},
    ],
)
def test_a_term_that_is_wider_or_other_is_narrowed(own: Json) -> None:
    assert operations(with_terms({"matchExpressions": [{"key": ZONE, **own}]}), topology=ZONES) == [
        {"op": "add", "path": f"{TERMS}/0/matchExpressions/-", "value": IN_ZONES}
    ]


def test_entries_of_one_label_are_intersected_and_preferred_ones_do_not_bind() -> None:
    topology = [*ZONES, {"level": "Zone", "in": ["g", "h"]}, {"level": "Region", "in": ["r"], "preferredWeight": 9}]
    (written,) = operations(pod(), topology=topology)
    expected = {"key": ZONE, "operator": "In", "values": ["g"]}
    required = written["value"]["nodeAffinity"][REQUIRED]
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [expected]}]}
    assert REGION not in str(required)


def test_of_several_native_terms_the_first_goes_into_the_users_and_the_next_into_a_copy() -> None:
    own = {**says("disk"), "fieldOfTomorrow": {"a": [1]}}
    after = rewritten(with_terms(own), service_of({"affinity": asking(says("a"), says("b")), "topology": ZONES}))
    disk, a, b = ({"key": key, "operator": "Exists"} for key in ("disk", "a", "b"))
    found = terms_of(after) or []
    assert [[*found[0]["matchExpressions"][:2]], [*found[1]["matchExpressions"][:2]]] == [[disk, a], [disk, b]]
    assert [IN_ZONES in term["matchExpressions"] for term in found] == [True, True]
    assert [term["fieldOfTomorrow"] for term in found] == [{"a": [1]}] * 2


def test_a_term_that_implies_any_of_the_native_ones_stays() -> None:
    placement = {"affinity": asking(says("a", "In", "1"), says("b"))}
    assert operations(with_terms(says("b", "In", "x")), **placement) == []


def test_more_terms_than_anybody_needs_are_left_alone_and_refused() -> None:
    """A hundred terms times ten hundred would be a Pod that no API server takes."""
    many = with_terms(*[says(f"k{number}") for number in range(600)])
    placement = {"affinity": asking(says("a"), says("b"))}
    assert operations(many, **placement) == []
    (found,) = check(read(many), service_of(placement), hash_known=True)
    assert found.code == "PlacementUnfulfilled"
    assert "nodeSelectorTerms" in found.field
