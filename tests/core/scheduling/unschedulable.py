"""Pods that wait for one node, for the tests of filters."""

from msgspec.structs import replace

from webhook.core.kubernetes.pod import Pod
from webhook.core.policy_fields.scheduling import Scheduling
from webhook.core.scheduling.hot_node_filters import make_filters
from webhook.core.scheduling.node_table import NodeRow, NodeRows
from webhook.core.scheduling.unschedulable_pods import UnschedulablePods


def list_fitting(pod: Pod, rules: Scheduling, row: NodeRow) -> list[str]:
    """Return the uids of the Pods to wake, of one that node `row` has refused: "p", or none."""
    waiting, rows = UnschedulablePods(), NodeRows()
    waiting.note_refusal("web", replace(pod, metadata=replace(pod.metadata, uid="p")), (row.node.name,))
    for _ in range(2):
        for uid in waiting.begin_round(1):
            waiting.keep_noted(uid)
    rows.put(row)
    for kind in waiting.list_kinds():
        waiting.judge(kind, rows, rules, lambda found: make_filters(found, rules))
    return [reference.uid for reference in waiting.list_fitting()]
