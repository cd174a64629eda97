"""Nodes that a Pod's terms and tolerations allow, compared with Kubernetes' own semantics."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.core.generating import nodes as node_strategies
from tests.core.generating.vocabulary import NODE_NAMES, REAL
from tests.core.oracle import nodes as oracle
from tests.core.oracle import taints
from tests.core.strategies import Json, Pair, examples, real_pairs, tolerations
from webhook.core.kubernetes.pod import PodSpec
from webhook.core.kubernetes.types import NodeSelectorTerm, Toleration
from webhook.core.placement.node_match import NodeTaint, list_untolerated, term_fits, terms_fit, tolerates


@examples(100)
@given(node_strategies.terms(REAL), node_strategies.node_labels, st.sampled_from(NODE_NAMES))
def test_term_fits_the_nodes_that_kubernetes_chooses(term: Json, labels: dict[str, str], name: str) -> None:
    decoded = msgspec.convert(term, NodeSelectorTerm)
    expected = oracle.is_term_match(term, oracle.Node(name, labels))
    assert term_fits(decoded, name, labels) == expected


@examples(100)
@given(tolerations(REAL), st.sampled_from(taints.TAINTS))
def test_toleration_tolerates_the_taints_of_kubernetes(toleration: Json, taint: tuple[str, str, str]) -> None:
    decoded, found = msgspec.convert(toleration, Toleration), NodeTaint(*taint)
    expected = taints.is_tolerating(toleration, *taint)
    assert tolerates(decoded, found) == expected
    keeps_off = taint[2] != "PreferNoSchedule" and not expected
    assert list_untolerated(PodSpec(tolerations=(decoded,)), [found]) == [found] * keeps_off


@examples(60)
@given(real_pairs, st.lists(node_strategies.some_node_labels, max_size=4))
def test_terms_of_a_pod_fit_the_nodes_that_kubernetes_chooses(pair: Pair, labels: list[dict[str, str]]) -> None:
    spec = msgspec.convert(pair.pod["spec"], PodSpec)
    for index, node_labels in enumerate(labels):
        assert terms_fit(spec, f"n{index}", node_labels) == oracle.is_node_match(
            pair.pod, oracle.Node(f"n{index}", node_labels)
        )
