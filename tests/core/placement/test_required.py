"""Required node affinity by example: written terms and their positions."""

import pytest

from tests.core.generating.vocabulary import REGION, REQUIRED, ZONE, Json
from tests.core.oracle.nodes import terms_of
from tests.core.placement.examples import (
    IN_ZONES,
    TERMS,
    ZONES,
    build_pod_with_terms,
    build_required_affinity,
    expression_term,
    list_operations,
    pod,
)
from tests.core.rewriting import decode_pod, rewrite_pod
from tests.core.strategies import service_of
from webhook.core.admission.validation import check
from webhook.core.placement import find_contradiction


def test_each_of_several_terms_is_narrowed_not_only_the_last() -> None:
    assert list_operations(
        build_pod_with_terms(expression_term("disk"), expression_term(ZONE, "In", "b", "g"), expression_term("disk")),
        topology=ZONES,
    ) == [
        {"op": "add", "path": f"{TERMS}/0/matchExpressions/-", "value": IN_ZONES},
        {"op": "add", "path": f"{TERMS}/2/matchExpressions/-", "value": IN_ZONES},
    ]


def test_a_daemon_sets_match_fields_are_joined_not_replaced() -> None:
    raw = build_pod_with_terms({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]})
    assert list_operations(raw, topology=ZONES) == [
        {"op": "add", "path": f"{TERMS}/0/matchExpressions", "value": [IN_ZONES]}
    ]


@pytest.mark.parametrize("empty", [{}, {"matchExpressions": None}, {"matchExpressions": []}, {"matchFields": []}])
def test_an_empty_term_matches_nothing_and_stays_empty(empty: Json) -> None:
    assert list_operations(build_pod_with_terms(empty), topology=ZONES) == []


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
def test_term_that_implies_the_placement_or_fits_no_node_is_unchanged(own: list[Json]) -> None:
    assert list_operations(build_pod_with_terms({"matchExpressions": own}), topology=ZONES) == []


@pytest.mark.parametrize(
    "own",
    [
        {"operator": "In", "values": ["b", "x"]},
        {"operator": "NotIn", "values": ["b"]},
        {"operator": "Exists"},
        {"operator": "DoesNotExist"},
    ],
)
def test_term_that_does_not_imply_the_placement_is_narrowed(own: Json) -> None:
    assert list_operations(build_pod_with_terms({"matchExpressions": [{"key": ZONE, **own}]}), topology=ZONES) == [
        {"op": "add", "path": f"{TERMS}/0/matchExpressions/-", "value": IN_ZONES}
    ]


def test_required_entries_of_one_label_are_intersected_and_preferred_ones_ignored() -> None:
    topology = [*ZONES, {"level": "Zone", "in": ["g", "h"]}, {"level": "Region", "in": ["r"], "preferredWeight": 9}]
    (written,) = list_operations(pod(), topology=topology)
    expected = {"key": ZONE, "operator": "In", "values": ["g"]}
    required = written["value"]["nodeAffinity"][REQUIRED]
    assert required == {"nodeSelectorTerms": [{"matchExpressions": [expected]}]}
    assert REGION not in str(required)


def test_first_native_term_joins_the_users_term_and_the_next_a_copy_of_it() -> None:
    own = {**expression_term("disk"), "fieldOfTomorrow": {"a": [1]}}
    after = rewrite_pod(
        build_pod_with_terms(own),
        service_of(
            {"affinity": build_required_affinity(expression_term("a"), expression_term("b")), "topology": ZONES}
        ),
    )
    disk, a, b = ({"key": key, "operator": "Exists"} for key in ("disk", "a", "b"))
    found = terms_of(after) or []
    assert [[*found[0]["matchExpressions"][:2]], [*found[1]["matchExpressions"][:2]]] == [[disk, a], [disk, b]]
    assert [IN_ZONES in term["matchExpressions"] for term in found] == [True, True]
    assert [term["fieldOfTomorrow"] for term in found] == [{"a": [1]}] * 2


def test_term_that_implies_a_native_term_is_unchanged() -> None:
    placement = {"affinity": build_required_affinity(expression_term("a", "In", "1"), expression_term("b"))}
    assert list_operations(build_pod_with_terms(expression_term("b", "In", "x")), **placement) == []


def test_too_many_terms_are_not_rewritten_and_are_found_unfulfilled() -> None:
    """The product of the terms would be a Pod that the API server rejects."""
    many = build_pod_with_terms(*[expression_term(f"k{number}") for number in range(600)])
    placement = {"affinity": build_required_affinity(expression_term("a"), expression_term("b"))}
    assert list_operations(many, **placement) == []
    (found,) = check(decode_pod(many), service_of(placement), hash_known=True)
    assert found.code == "PlacementUnfulfilled"
    assert "nodeSelectorTerms" in found.field


@pytest.mark.parametrize(
    ("selector", "os", "text"),
    [
        ({"kubernetes.io/os": "linux"}, "windows", "asks for kubernetes.io/os=linux, and spec.os.name is windows"),
        ({"kubernetes.io/os": "windows"}, "windows", ""),
        ({"disk": "ssd"}, "windows", ""),
    ],
)
def test_operating_system_against_a_node_selector_is_a_contradiction(selector: Json, os: str, text: str) -> None:
    found = find_contradiction(decode_pod(pod(nodeSelector=selector, os={"name": os})))
    assert (found is not None and found.text.endswith(text)) if text else found is None


def test_operating_system_against_required_terms_is_a_contradiction() -> None:
    raw = build_pod_with_terms(expression_term("kubernetes.io/os", "In", "linux"))
    raw["spec"]["os"] = {"name": "windows"}
    found = find_contradiction(decode_pod(raw))
    assert found is not None
    assert (
        "nodeSelector and spec.os ask for kubernetes.io/os In [windows] with kubernetes.io/os In [linux]" in found.text
    )
    raw["spec"]["os"] = {"name": "linux"}
    assert find_contradiction(decode_pod(raw)) is None
