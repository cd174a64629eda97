"""Nodes allowed to a rewritten Pod: node by node and taint by taint, by Kubernetes' rules."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.core.generating.vocabulary import ODD
from tests.core.oracle.nodes import Node, any_term_fits, node_fits, preferences_of, score, selector_fits
from tests.core.oracle.policy import of_class, preferences, required_terms, rule
from tests.core.oracle.taints import TAINTS, seconds_tolerated
from tests.core.rewriting import rewritten
from tests.core.strategies import Json, Pair, examples, pairs, some_node_labels, tolerations
from webhook.core.kubernetes.types import Toleration
from webhook.core.placement.toleration_match import covers

nodes = st.builds(Node, st.sampled_from(["n1", "n2", "n3"]), some_node_labels)
several = st.lists(nodes, min_size=8, max_size=8)


def allowed(pair: Pair, node: Node) -> bool:
    """Return whether the policy allows a node, without nodeSelector entries whose value the user may keep."""
    own = pair.pod["spec"].get("nodeSelector") or {}
    wanted = pair.placement.get("nodeSelector") or {}
    if rule(pair.placement, "nodeSelector") != "Override":
        wanted = {key: value for key, value in wanted.items() if key not in own}
    return selector_fits(wanted, node) and any_term_fits(required_terms(pair.placement), node)


def without_overridden_selector(pair: Pair) -> Json:
    """Return the Pod without the entries of its nodeSelector that the policy overrides."""
    spec = pair.pod["spec"]
    if rule(pair.placement, "nodeSelector") != "Override":
        return pair.pod
    wanted = pair.placement.get("nodeSelector") or {}
    kept = {key: value for key, value in (spec.get("nodeSelector") or {}).items() if key not in wanted}
    return {**pair.pod, "spec": {**spec, "nodeSelector": kept}}


@examples(120)
@given(pairs, several)
def test_a_node_fits_the_rewritten_pod_iff_the_user_and_the_policy_both_allow_it(pair: Pair, nodes: list[Node]) -> None:
    patched = rewritten(pair.pod, pair.service)
    user_pod = without_overridden_selector(pair)
    for node in nodes:
        assert node_fits(patched, node) == (node_fits(user_pod, node) and allowed(pair, node)), node


@examples(120)
@given(pairs, several)
def test_node_score_adds_each_policy_preference_once_to_those_of_the_user(pair: Pair, nodes: list[Node]) -> None:
    before, after = preferences_of(pair.pod), preferences_of(rewritten(pair.pod, pair.service))
    added = after[len(before) :]
    assert after[: len(before)] == before
    for node in nodes:
        assert score(after, node) == score(before, node) + score(added, node)
        assert score(added, node) <= score(preferences(pair.placement), node)


@examples(120)
@given(pairs)
def test_a_taint_is_tolerated_iff_the_user_or_the_policy_tolerates_it(pair: Pair) -> None:
    user_tolerations = pair.pod["spec"].get("tolerations") or []
    after = rewritten(pair.pod, pair.service)
    policy_tolerations = of_class(pair.placement, after).get("tolerations") or []
    final_tolerations = after["spec"].get("tolerations") or []
    for taint in TAINTS:
        either = seconds_tolerated(user_tolerations, *taint) >= 0 or seconds_tolerated(policy_tolerations, *taint) >= 0
        assert (seconds_tolerated(final_tolerations, *taint) >= 0) == either, taint


@examples(300)
@given(tolerations(ODD), tolerations(ODD))
def test_toleration_covers_another_only_if_it_tolerates_every_taint_as_long(own: Json, wanted: Json) -> None:
    first, second = msgspec.convert([own, wanted], tuple[Toleration, ...])
    if covers(first, msgspec.structs.replace(second, operator=second.operator or "Equal")):
        for taint in TAINTS:
            assert seconds_tolerated([own], *taint) >= seconds_tolerated([wanted], *taint)
