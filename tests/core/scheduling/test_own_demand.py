"""The Pod's own load: it counts below a hot threshold, by at most half of the threshold."""

import pytest

from tests.core.scheduling.unschedulable import list_fitting
from webhook.core.kubernetes.pod import Container, Pod, PodMetadata, PodSpec, Resources
from webhook.core.kubernetes.quantity import Number
from webhook.core.policy_fields.scheduling import Hot, Scheduling, WhenUnknown
from webhook.core.scheduling.assumed_load import NO_LOAD, LoadEstimates, PodLoad, estimate_load
from webhook.core.scheduling.hot_node_filters import make_filters
from webhook.core.scheduling.measured_load import NodeLoad
from webhook.core.scheduling.node_table import NodeRow, SchedulableNode

POD = Pod(PodMetadata(name="p"), PodSpec(containers=(Container(name="c"),)))
NODE = SchedulableNode("n", 64_000.0, 256.0)
CPU, MEMORY, COMBINED = Hot(cpu=Number(0.8)), Hot(memory=Number(0.9)), Hot(combined=Number(1.2))
CPU_NOW, CPU_THEN = (
    f"node(s) {what}above the cpu hot threshold 0.8{more}" for what, more in (("", ""), ("would be ", " with this Pod"))
)
MEMORY_THEN = "node(s) would be above the memory hot threshold 0.9 with this Pod"
COMBINED_THEN = "node(s) would be above the combined hot threshold 1.2 with this Pod"


def find_reason(row: NodeRow, hot: Hot, load: PodLoad) -> str:
    found = make_filters(POD, Scheduling(hot=hot), load).find_refusal(row)
    return "" if found is None else found.reason


@pytest.mark.parametrize(
    ("hot", "cpu_millis", "memory_bytes", "load", "reason"),
    [
        (CPU, 50_560.0, 0.0, PodLoad(32_000, 0), CPU_THEN),  # 0.79 and half of the node
        (CPU, 48_000.0, 0.0, PodLoad(3_200, 0), ""),  # exactly 0.8
        (CPU, 48_000.0, 0.0, PodLoad(3_201, 0), CPU_THEN),
        (CPU, 25_600.0, 0.0, PodLoad(1e9, 0), ""),  # half of the threshold: any Pod
        (CPU, 25_601.0, 0.0, PodLoad(1e9, 0), CPU_THEN),
        (CPU, 25_601.0, 0.0, PodLoad(25_599, 0), ""),
        (CPU, 51_201.0, 0.0, NO_LOAD, CPU_NOW),
        (CPU, 51_201.0, 0.0, PodLoad(1e9, 0), CPU_NOW),  # what it is by itself
        (CPU, 48_000.0, 256.0, PodLoad(100, 1e9), ""),  # memory has no threshold
        (MEMORY, 64_000.0, 128.0, PodLoad(1e9, 102.4), ""),
        (MEMORY, 0.0, 128.0, PodLoad(0, 103), MEMORY_THEN),
        (COMBINED, 19_200.0, 76.8, PodLoad(1e9, 1e9), ""),  # 0.3 and 0.3: half of the threshold
        (COMBINED, 32_000.0, 64.0, PodLoad(12_800, 64), ""),  # 0.75 and 0.2 and 0.25
        (COMBINED, 32_000.0, 64.0, PodLoad(12_800, 65), COMBINED_THEN),
        (COMBINED, 32_000.0, 64.0, PodLoad(29_000, 0), COMBINED_THEN),  # cpu alone
    ],
)  # fmt: skip
def test_own_load_counts_by_at_most_half_of_the_threshold(
    hot: Hot, cpu_millis: float, memory_bytes: float, load: PodLoad, reason: str
) -> None:
    row = NodeRow.from_node(NODE, NodeLoad("prometheus", 0.0, cpu_millis, memory_bytes))
    assert find_reason(row, hot, load) == reason
    without = Hot(hot.cpu, hot.memory, hot.combined, own_demand=False)
    assert find_reason(row, without, load) == (reason if reason == CPU_NOW else "")


def test_assumed_load_of_others_counts_beside_it() -> None:
    load = NodeLoad("prometheus", 0.0, 40_000.0)
    assert find_reason(NodeRow.from_node(NODE, load), CPU, PodLoad(10_000, 0)) == ""
    assert find_reason(NodeRow.from_node(NODE, load, PodLoad(2_000, 0)), CPU, PodLoad(10_000, 0)) == CPU_THEN


def test_last_load_of_a_silent_node_counts_and_what_is_not_measured_does_not() -> None:
    load, pod = NodeLoad("prometheus", 0.0, 50_000.0), PodLoad(10_000, 0)
    assert find_reason(NodeRow.from_node(NODE, load, is_silent=True), CPU, pod) == CPU_THEN
    assert find_reason(NodeRow.from_node(NODE, NodeLoad("requests", 0.0, 50_000.0)), CPU, pod) == ""
    assert find_reason(NodeRow.from_node(NODE, None, is_silent=True), CPU, pod) == ""
    assert find_reason(NodeRow.from_node(NODE, NodeLoad("prometheus", 0.0, None, 256.0)), CPU, pod) == ""


def test_first_rule_that_refuses_is_told() -> None:
    rules = Scheduling(hot=Hot(Number(0.8), Number(0.9)), when_unknown=WhenUnknown.REFUSE)
    found = make_filters(POD, rules, PodLoad(32_000, 0))
    hot = NodeRow.from_node(NODE, NodeLoad("prometheus", 0.0, 50_000.0, 256.0))
    assert (refusal := found.find_refusal(hot)) is not None
    assert (refusal.rule, refusal.reason) == ("hot_cpu", CPU_THEN)
    assert found.find_demand(refusal, hot) == 0.4, "half of the threshold: the rest of its load does not count"


def test_estimates_that_were_kept_are_those_computed_anew() -> None:
    loads, rules = LoadEstimates(), Scheduling()
    for _ in range(2):
        assert loads.find_load(POD, rules.estimate) == estimate_load(POD, rules.estimate)
    assert len(loads) == 1


def test_waiting_pod_fits_once_a_node_has_room_for_its_load() -> None:
    amounts = Resources({"cpu": "20"}, None)
    pod = Pod(PodMetadata(name="p"), PodSpec(containers=(Container(name="c", resources=amounts),)))  # 17 expected
    fits = [
        list_fitting(pod, Scheduling(hot=CPU), NodeRow.from_node(NODE, NodeLoad("prometheus", 0.0, cpu_millis)))
        for cpu_millis in (60_000.0, 50_000.0, 35_000.0, 34_000.0)
    ]
    assert fits == [[], [], [], ["p"]]
