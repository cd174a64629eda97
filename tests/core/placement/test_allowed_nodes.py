"""Nodes allowed to a rewritten Pod: node by node and taint by taint, by Kubernetes' rules."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.core.generating.vocabulary import ODD
from tests.core.oracle.nodes import (
    Node,
    compute_score,
    is_any_term_match,
    is_node_match,
    is_selector_match,
    preferences_of,
)
from tests.core.oracle.policy import find_preferences, find_required_terms, find_rule, select_tolerations
from tests.core.oracle.taints import TAINTS, find_tolerated_seconds
from tests.core.rewriting import rewrite_pod
from tests.core.strategies import Json, Pair, examples, pairs, some_node_labels, tolerations
from webhook.core.kubernetes.types import Toleration
from webhook.core.placement.toleration_match import covers

nodes = st.builds(Node, st.sampled_from(["n1", "n2", "n3"]), some_node_labels)
several = st.lists(nodes, min_size=8, max_size=8)


def is_allowed(pair: Pair, node: Node) -> bool:
    """Return whether the policy allows a node, without nodeSelector entries whose value the user may keep."""
    own = pair.pod["spec"].get("nodeSelector") or {}
    wanted = pair.placement.get("nodeSelector") or {}
    if find_rule(pair.placement, "nodeSelector") != "Override":
        wanted = {key: value for key, value in wanted.items() if key not in own}
    return is_selector_match(wanted, node) and is_any_term_match(find_required_terms(pair.placement), node)


def drop_overridden_selector(pair: Pair) -> Json:
    """Return the Pod without the entries of its nodeSelector that the policy overrides."""
    spec = pair.pod["spec"]
    if find_rule(pair.placement, "nodeSelector") != "Override":
        return pair.pod
    wanted = pair.placement.get("nodeSelector") or {}
    kept = {key: value for key, value in (spec.get("nodeSelector") or {}).items() if key not in wanted}
    return {**pair.pod, "spec": {**spec, "nodeSelector": kept}}


@examples(120)
@given(pairs, several)
def test_a_node_fits_the_rewritten_pod_iff_the_user_and_the_policy_both_allow_it(pair: Pair, nodes: list[Node]) -> None:
    patched = rewrite_pod(pair.pod, pair.service)
    user_pod = drop_overridden_selector(pair)
    for node in nodes:
        assert is_node_match(patched, node) == (is_node_match(user_pod, node) and is_allowed(pair, node)), node


@examples(120)
@given(pairs, several)
def test_node_score_adds_each_policy_preference_once_to_those_of_the_user(pair: Pair, nodes: list[Node]) -> None:
    before, after = preferences_of(pair.pod), preferences_of(rewrite_pod(pair.pod, pair.service))
    added = after[len(before) :]
    assert after[: len(before)] == before
    for node in nodes:
        assert compute_score(after, node) == compute_score(before, node) + compute_score(added, node)
        assert compute_score(added, node) <= compute_score(find_preferences(pair.placement), node)


@examples(120)
@given(pairs)
def test_a_taint_is_tolerated_iff_the_user_or_the_policy_tolerates_it(pair: Pair) -> None:
    user_tolerations = pair.pod["spec"].get("tolerations") or []
    after = rewrite_pod(pair.pod, pair.service)
    policy_tolerations = select_tolerations(pair.placement, after).get("tolerations") or []
    final_tolerations = after["spec"].get("tolerations") or []
    for taint in TAINTS:
        either = (
            find_tolerated_seconds(user_tolerations, *taint) >= 0
            or find_tolerated_seconds(policy_tolerations, *taint) >= 0
        )
        assert (find_tolerated_seconds(final_tolerations, *taint) >= 0) == either, taint


@examples(300)
@given(tolerations(ODD), tolerations(ODD))
def test_toleration_covers_another_only_if_it_tolerates_every_taint_as_long(own: Json, wanted: Json) -> None:
    first, second = msgspec.convert([own, wanted], tuple[Toleration, ...])
    if covers(first, msgspec.structs.replace(second, operator=second.operator or "Equal")):
        for taint in TAINTS:
            assert find_tolerated_seconds([own], *taint) >= find_tolerated_seconds([wanted], *taint)
