"""Unschedulable Pods: a kind is taken once a node that refused it passes, and only once."""

from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields.scheduling import Hot, Scheduling
from webhook.core.scheduling.assumed_load import PodLoad
from webhook.core.scheduling.attempts import UnschedulablePods
from webhook.core.scheduling.hot_node_filters import make_filters
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import NodeRow, SchedulableNode

FILTERS = make_filters(Pod(PodMetadata(), PodSpec(containers=(Container(),))), Scheduling(hot=Hot(cpu=Number(0.8))))
SMALL, LARGE = ("web", PodLoad(1, 1)), ("web", PodLoad(2, 1))


def rows(cpu_millis: float) -> dict[str, NodeRow]:
    return {"a": NodeRow.from_node(SchedulableNode("a", 1000, 1000), NodeLoad("prometheus", 0.0, cpu_millis, 0.0))}


def test_kind_is_taken_once_a_node_that_refused_it_passes() -> None:
    refused = UnschedulablePods()
    refused.note_refusal(SMALL, FILTERS, frozenset({"a"}))
    refused.note_refusal(LARGE, FILTERS, frozenset({"gone"}))
    assert refused.list_kinds() == [SMALL, LARGE]
    assert not any(refused.take_if_fitting(kind, rows(900)) for kind in refused.list_kinds()), "it is still hot"
    assert [refused.take_if_fitting(kind, rows(700)) for kind in (SMALL, LARGE)] == [True, False]
    assert refused.list_kinds() == [LARGE]
    assert not refused.take_if_fitting(SMALL, rows(700)), "the scheduler was woken for it"
