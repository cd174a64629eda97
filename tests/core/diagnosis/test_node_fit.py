"""Nodes that policy, own terms and taints leave, compared with Kubernetes' own semantics."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.core.generating import nodes as node_strategies
from tests.core.oracle import nodes as oracle
from tests.core.rewriting import rewrite_pod
from tests.core.strategies import Json, Pair, examples, real_pairs, service_of
from webhook.core.diagnosis.node_fit import report_nodes
from webhook.core.diagnosis.objects import ReportedNode
from webhook.core.diagnosis.pending_causes import blame
from webhook.core.kubernetes.pod import PodSpec

ZONE = "topology.kubernetes.io/zone"


def node(name: str, *node_taints: Json, **labels: str) -> ReportedNode:
    document = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": list(node_taints)}}
    return msgspec.convert(document, ReportedNode)


def spec_of(**fields: Any) -> PodSpec:
    return msgspec.convert(fields, PodSpec)


SOME_NODES = st.lists(node_strategies.some_node_labels, max_size=4)


@examples(60)
@given(real_pairs, SOME_NODES)
def test_policy_and_own_terms_leave_the_nodes_of_the_rewritten_pod(pair: Pair, labels: list[dict[str, str]]) -> None:
    """The original Pod's nodes that the policy leaves are those of the final Pod, with and without the original."""
    final = rewrite_pod(pair.pod, pair.service)
    some = [oracle.Node(f"n{index}", node_labels) for index, node_labels in enumerate(labels)]
    before, after = (msgspec.convert(document["spec"], PodSpec) for document in (pair.pod, final))
    expected = sum(oracle.is_node_match(final, candidate) for candidate in some)
    reported = [node(candidate.name, **candidate.labels) for candidate in some]
    assert report_nodes(after, before, pair.service, reported).both_leave == expected
    assert report_nodes(after, None, pair.service, reported).both_leave == expected


NODES = (
    node("a1", zone="a", disk="ssd"),
    node("a2", zone="a", disk="hdd"),
    node("b1", {"key": "gpu", "value": "yes", "effect": "NoSchedule"}, zone="b", disk="ssd"),
    node("b2", {"key": "slow", "effect": "PreferNoSchedule"}, zone="b", disk="hdd"),
)
IN_ZONE_B = service_of({"topology": [{"key": "zone", "in": ["b"]}], "nodeSelector": {"disk": "ssd"}})


def affinity(key: str, *values: str) -> Json:
    expression = {"key": key, "operator": "In", "values": list(values)}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def test_each_entry_has_the_nodes_that_it_leaves() -> None:
    final = spec_of(nodeSelector={"disk": "ssd"}, affinity=affinity("zone", "b"))
    report = report_nodes(final, PodSpec(), IN_ZONE_B, NODES)
    assert [(row.by, row.requirement, row.fit, row.left) for row in report.policy] == [
        ("placement.nodeSelector[disk]", "disk=ssd", 2, 2),
        ("placement.topology[0]", "zone In [b]", 2, 1),
    ]
    assert (report.total, report.policy_leaves, report.both_leave, report.left) == (4, 1, 1, 0)
    assert [(row.by, row.fit) for row in report.taints] == [("gpu=yes:NoSchedule", 1)]
    assert blame(report, "") == "by taints: gpu=yes:NoSchedule on 1 of the 1 nodes that fit its terms"


def test_blame_names_the_side_that_leaves_no_node() -> None:
    nowhere = service_of({"topology": [{"key": "zone", "in": ["c"]}]})
    by_policy = report_nodes(spec_of(affinity=affinity("zone", "c")), PodSpec(), nowhere, NODES)
    assert blame(by_policy, "") == "by the policy: placement.topology[0] (zone In [c]) leaves 0 of 4 nodes"
    own = spec_of(nodeSelector={"disk": "ssd", "gpu": "a100"})
    assert blame(report_nodes(own, own, service_of({}), NODES), "") == (
        "by its own terms: spec.nodeSelector[gpu] (gpu=a100) fits 0 of 4 nodes"
    )
    in_b = service_of({"topology": [{"key": "zone", "in": ["b"]}]})
    both = spec_of(nodeSelector={"zone": "a"}, affinity=affinity("zone", "b"))
    assert blame(report_nodes(both, spec_of(nodeSelector={"zone": "a"}), in_b, NODES), "") == (
        "by the policy and its own terms together: the policy leaves 2 of 4 nodes, its own terms 2, and none fits both"
    )
    fits = report_nodes(PodSpec(), PodSpec(), None, NODES)
    assert blame(fits, "Insufficient cpu.") == "3 of 4 nodes fit its terms and taints; the scheduler: Insufficient cpu."
    assert blame(report_nodes(PodSpec(), PodSpec(), None, ()), "x") == "the cluster has no nodes"
    assert blame(None, "0/4 nodes are available") == "0/4 nodes are available"


def test_a_term_that_the_policy_has_overridden_is_not_blamed_on_the_pod() -> None:
    own = spec_of(nodeSelector={"gpu": "a100", "disk": "ssd"})
    overridden = report_nodes(spec_of(nodeSelector={"gpu": "h100", "disk": "ssd"}), own, None, NODES)
    assert [row.by for row in overridden.own] == ["spec.nodeSelector[disk]"]


def test_no_side_is_blamed_if_the_policy_that_rewrote_the_pod_is_not_known() -> None:
    final = spec_of(nodeSelector={"gpu": "a100"})
    unknown = report_nodes(final, None, None, NODES, "0123456789abcdef")
    assert blame(unknown, "") == (
        "spec.nodeSelector[gpu] (gpu=a100) fits 0 of 4 nodes; whether the Pod or the policy wrote it cannot be told:"
        " policy 0123456789abcdef, which rewrote the Pod, cannot be read"
    )
    recorded = report_nodes(final, final, None, NODES, "0123456789abcdef")
    assert blame(recorded, "").startswith("by its own terms: ")
    written_by_policy = report_nodes(final, PodSpec(), None, NODES, "0123456789abcdef")
    assert written_by_policy.own == (), "the record has the Pod before the rewrite"


def test_selector_that_the_pod_kept_is_its_own() -> None:
    kept = service_of({"nodeSelector": {"disk": "ssd"}, "onConflict": {"default": "Keep"}})
    own = spec_of(nodeSelector={"disk": "hdd"})
    report = report_nodes(own, own, kept, NODES)
    assert report.policy == ()
    assert [row.by for row in report.own] == ["spec.nodeSelector[disk]"]
    assert report.left == 2
