"""The oracle itself: it accepts a correct rewrite, and names each known wrong one."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.generating.nodes import terms
from tests.core.generating.vocabulary import ODD
from tests.core.oracle import pod_affinity
from tests.core.oracle.node_sets import Universe
from tests.core.oracle.nodes import REQUIRED, Node, is_match, is_term_match
from tests.core.oracle.rewriting import find_faults
from tests.core.oracle.taints import is_tolerating
from tests.core.oracle.validating import find_expected
from tests.core.strategies import HASH, OUR_ANNOTATION, OUR_LABEL, ZONE, Json, examples, some_node_labels

IN_ZONE = {"key": ZONE, "operator": "In", "values": ["b", "g"]}
ON_SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
SPREAD = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
SELECTOR = {"matchLabels": {OUR_LABEL: "s"}}
PLACEMENT: Json = {
    "schedulerName": "podgate-scheduler",
    "nodeSelector": {"disk": "ssd"},
    "topology": [{"level": "Zone", "in": ["b", "g"]}, {"key": "disk", "in": ["ssd"], "preferredWeight": 5}],
    "affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": SELECTOR}]}},
    "topologySpreadConstraints": [SPREAD],
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "priorityClassName": "payments-high",
    "runtimeClassName": "gvisor",
}
BEFORE: Json = {
    "metadata": {"namespace": "shop", "labels": {"app": "x"}},
    "spec": {
        "containers": [{"name": "c"}],
        "nodeSelector": {"arch": "arm64"},
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [ON_SSD]}, {"matchExpressions": [IN_ZONE]}]}
            }
        },
        "tolerations": [{"key": "t", "operator": "Exists"}],
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": SELECTOR}],
    },
}
AFTER: Json = {
    "metadata": {"namespace": "shop", "labels": {"app": "x", OUR_LABEL: "s"}, "annotations": {OUR_ANNOTATION: HASH}},
    "spec": {
        "containers": [{"name": "c"}],
        "schedulerName": "podgate-scheduler",
        "nodeSelector": {"arch": "arm64", "disk": "ssd"},
        "affinity": {
            "nodeAffinity": {
                REQUIRED: {
                    "nodeSelectorTerms": [{"matchExpressions": [ON_SSD, IN_ZONE]}, {"matchExpressions": [IN_ZONE]}]
                },
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 5, "preference": {"matchExpressions": [ON_SSD]}}
                ],
            },
            "podAntiAffinity": {REQUIRED: [{"topologyKey": ZONE, "labelSelector": SELECTOR}]},
        },
        "tolerations": [{"key": "t", "operator": "Exists"}, {"key": "gpu", "operator": "Exists"}],
        "priorityClassName": "payments-high",
        "runtimeClassName": "gvisor",
        "topologySpreadConstraints": [
            {**SPREAD, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": SELECTOR},
            {**SPREAD, "labelSelector": SELECTOR},
        ],
    },
}
Change = Callable[[Any], Any]


def _get_terms(pod: Any) -> Any:
    return pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]


def _get_preferred(pod: Any) -> Any:
    return pod["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]


def _build_faulty_changes(pod: Any) -> dict[str, Change]:
    """Return changes that each make a correct Pod wrong."""
    spec = pod["spec"]
    return {
        "a_term_is_ored": lambda pod: _get_terms(pod).append({"matchExpressions": [IN_ZONE]}),
        "only_the_last_term": lambda pod: _get_terms(pod)[0]["matchExpressions"].pop(),
        "twice_in_a_term": lambda pod: _get_terms(pod)[1]["matchExpressions"].append(IN_ZONE),
        "the_users_terms_replaced": lambda pod: _get_terms(pod).__setitem__(
            slice(None), [{"matchExpressions": [IN_ZONE]}]
        ),
        "another_order": lambda pod: _get_terms(pod).reverse(),
        "a_preference_twice": lambda pod: _get_preferred(pod).append(_get_preferred(pod)[0]),
        "a_preference_lost": lambda pod: _get_preferred(pod).clear(),
        "tolerations_replaced": lambda pod: pod["spec"]["tolerations"].pop(0),
        "a_toleration_twice": lambda pod: pod["spec"]["tolerations"].append(spec["tolerations"][1]),
        "an_unwanted_toleration": lambda pod: pod["spec"]["tolerations"].append({"operator": "Exists"}),
        "the_old_priority_stays": lambda pod: pod["spec"].update(priority=0),
        "another_class": lambda pod: pod["spec"].update(priorityClassName="other"),
        "overhead_stays": lambda pod: pod["spec"].update(overhead={"cpu": "1"}),
        "a_constraint_twice": lambda pod: pod["spec"]["topologySpreadConstraints"].append(
            spec["topologySpreadConstraints"][1]
        ),
        "the_users_constraint_lost": lambda pod: pod["spec"]["topologySpreadConstraints"].pop(0),
        "anti_affinity_lost": lambda pod: pod["spec"]["affinity"].pop("podAntiAffinity"),
        "the_users_node_selector_lost": lambda pod: pod["spec"]["nodeSelector"].pop("arch"),
        "a_label_of_the_users_lost": lambda pod: pod["metadata"]["labels"].pop("app"),
        "an_id_of_the_call": lambda pod: pod["metadata"]["annotations"].update(call="7f3a"),
        "a_field_not_written": lambda pod: pod["spec"].pop("schedulerName"),
        "a_container_touched": lambda pod: pod["spec"]["containers"][0].update(image="other"),
        "a_field_added": lambda pod: pod.update(status={}),
    }


def test_correct_rewrite_has_no_fault() -> None:
    assert find_faults(BEFORE, AFTER, PLACEMENT, "s", HASH) == []


@pytest.mark.parametrize("name", list(_build_faulty_changes(AFTER)))
def test_a_wrong_rewrite_is_reported(name: str) -> None:
    pod = deepcopy(AFTER)
    _build_faulty_changes(pod)[name](pod)
    assert find_faults(BEFORE, pod, PLACEMENT, "s", HASH) != []


def test_null_fields_are_ignored() -> None:
    assert find_faults({**BEFORE, "status": None}, AFTER, PLACEMENT, "s", HASH) == []


def test_correct_pod_has_no_expected_findings_and_a_bare_one_has_all() -> None:
    assert find_expected(AFTER, PLACEMENT, "s").must == set()
    assert {field for _, field in find_expected(BEFORE, PLACEMENT, "s").must} == {
        "spec.schedulerName",
        "spec.nodeSelector[disk]",
        "spec.affinity.nodeAffinity",
        "spec.affinity.podAntiAffinity",
        "spec.topologySpreadConstraints",
        "spec.tolerations",
        "spec.priorityClassName",
        "spec.runtimeClassName",
    }


@pytest.mark.parametrize(
    ("operator", "values", "value", "expectation"),
    [
        ("In", ["a"], "a", True),
        ("In", ["a"], None, False),
        ("NotIn", ["a"], None, True),
        ("Exists", None, "", True),
        ("DoesNotExist", None, None, True),
        ("Gt", ["1"], "02", True),
        ("Gt", ["1"], "+2", True),
        ("Gt", ["1"], "two", False),
        ("Lt", ["one"], "0", False),
        ("Gt", ["1"], "99999999999999999999", False),
        ("Gt", ["99999999999999999999"], "1", False),
        ("Lt", ["1"], "²", False),
    ],
)
def test_expression_has_the_semantics_of_kubernetes(
    operator: str, values: list[str] | None, value: str | None, *, expectation: bool
) -> None:
    assert is_match({"key": "k", "operator": operator, "values": values}, value) is expectation


@pytest.mark.parametrize(
    ("value", "expectation"), [("4", False), ("5", False), ("6", True), ("07", False), ("", False), ("-1", False)]
)
def test_gt_toleration_accepts_canonical_numbers_only(value: str, *, expectation: bool) -> None:
    found = {"key": "k", "operator": "Gt", "value": "5", "effect": "NoSchedule"}
    assert is_tolerating(found, "k", value, "NoSchedule") is expectation


nodes = st.builds(Node, st.sampled_from(["n1", "n2", "n3"]), some_node_labels)


@examples(150)
@given(st.lists(terms(ODD), max_size=3), st.lists(terms(ODD), max_size=3), st.lists(nodes, min_size=6, max_size=6))
def test_node_sets_agree_with_each_single_node(some: list[Json], others: list[Json], nodes: list[Node]) -> None:
    universe = Universe([*some, *others])
    left, right = universe.find_boxes(some), universe.find_boxes(others)
    both = universe.intersect(left, right)
    assert universe.is_within(both, left)
    assert universe.is_within(both, right)
    for node in nodes:
        in_left, in_right = (any(is_term_match(term, node) for term in side) for side in (some, others))
        if in_left and not in_right:
            assert not universe.is_within(left, right)
        if in_left and in_right:
            assert both


@pytest.mark.parametrize(
    ("narrow", "wide", "expectation"),
    [
        ([("In", ["1", "2"])], [("In", ["1", "2", "3"])], True),
        ([("Gt", ["0"]), ("Lt", ["2"])], [("In", ["1"])], False),  # the number 01 is not the string 1
        ([("In", ["1", "5"]), ("Gt", ["3"])], [("In", ["5"])], True),
        (
            [("Gt", ["1"]), ("Lt", ["2"])],
            [("In", ["x"])],
            True,
        ),  # no integer is between: the empty set is within every set
        ([("Exists", None), ("NotIn", ["1"])], [("Exists", None)], True),
        ([("NotIn", ["1"])], [("Exists", None)], False),
    ],
)
def test_implication_is_exact(narrow: list[tuple[str, Any]], wide: list[tuple[str, Any]], *, expectation: bool) -> None:
    one, other = (
        {"matchExpressions": [{"key": "k", "operator": operator, "values": values} for operator, values in side]}
        for side in (narrow, wide)
    )
    universe = Universe([one, other])
    assert universe.is_within(universe.find_boxes([one]), universe.find_boxes([other])) is expectation


def test_equivalent_selectors_are_equal() -> None:
    labels: Json = {"matchLabels": {"a": "1"}, "matchExpressions": [{"key": "b", "operator": "Exists", "values": None}]}
    expressions: Json = {
        "matchExpressions": [{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "In", "values": ["1"]}]
    }
    assert pod_affinity.selector(labels) == pod_affinity.selector(expressions)
    assert pod_affinity.selector(None) != pod_affinity.selector({})


def test_match_label_keys_are_merged_as_by_the_api_server_and_keep_the_meaning() -> None:
    term = {"topologyKey": ZONE, "labelSelector": {}, "matchLabelKeys": ["app", "absent"], "mismatchLabelKeys": ["t"]}
    pod: Json = {
        "metadata": {"labels": {"app": "x", "t": "1"}},
        "spec": {"affinity": {"podAffinity": {REQUIRED: [term]}}},
    }
    (merged,) = pod_affinity.merge_label_keys(pod)["spec"]["affinity"]["podAffinity"][REQUIRED]
    assert merged["labelSelector"]["matchExpressions"] == [
        {"key": "app", "operator": "In", "values": ["x"]},
        {"key": "t", "operator": "NotIn", "values": ["1"]},
    ]
    assert pod_affinity.find_pod_term(merged, pod) == pod_affinity.find_pod_term(term, pod)
