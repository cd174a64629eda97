"""What counts against a variant: only Pods that the scheduler has tried in vain, and that nothing else holds back."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import SECOND_US, START_US
from tests.controller.shares.variant_cluster import compile_shares, end, manage, scheduled, variant_pod
from tests.harness.nesting import nest
from webhook.core.kubernetes.pod import Pod, PodStatus, SchedulingGate
from webhook.core.pods.variant_pod import VariantPod, holds_slot, read_variant_pod

SHARES = compile_shares().shares["web"]
NOW_US = START_US + 90 * SECOND_US
UNBOUND = (
    "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims. preemption: 0/3 nodes are available"
)
NO_VOLUME = "0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind."


def read(pod: Pod, now_us: int = NOW_US, before: VariantPod | None = None) -> VariantPod:
    found = read_variant_pod(pod, "web", SHARES, now_us, before)
    assert found is not None
    return found


def test_a_pod_is_read_with_the_variant_of_its_slot() -> None:
    found = read(variant_pod("a", 3, "on-demand"))
    assert (found.slot, found.variant, found.intended, found.claim) == (3, "on-demand", "on-demand", "c-a")
    fallen = read(variant_pod("b", 1, "on-demand", intended="spot"))
    assert (fallen.intended, fallen.fell_back) == ("spot", True)


def test_a_pod_fell_back_only_if_it_says_so_whatever_variant_its_slot_has_today() -> None:
    kept = read(variant_pod("a", 1, "on-demand"))
    assert (kept.slot_variant, kept.intended, kept.fell_back) == ("spot", "on-demand", False)
    fallen = read(variant_pod("b", 3, "on-demand", intended="spot"))
    assert (fallen.slot_variant, fallen.intended, fallen.fell_back) == ("on-demand", "spot", True)


def test_a_pod_with_an_index_holds_no_slot_in_the_store() -> None:
    indexed = variant_pod("a", 5, kind="StatefulSet", claim="", name="rs-4")
    assert (read(indexed).claim, read(indexed).probe) == ("", "rs/5")
    claimed = variant_pod("a", 5, kind="StatefulSet", name="rs-4")
    assert (read(claimed).claim, read(claimed).probe) == ("", "c-a")


@pytest.mark.parametrize("change", [{"variant": ""}, {"slot": 0}, {"kind": "DaemonSet"}])
def test_other_pods_have_no_slot(change: dict[str, Any]) -> None:
    assert read_variant_pod(variant_pod("a", **change), "web", SHARES, NOW_US) is None


def test_an_unschedulable_pod_counts_since_its_condition() -> None:
    assert read(variant_pod("a", status=scheduled())).unschedulable_us == START_US


def test_a_condition_that_is_written_again_keeps_the_time() -> None:
    before = read(variant_pod("a", status=scheduled(message="0/3 nodes are available")))
    again = variant_pod("a", status=scheduled(message="0/4 nodes are available"))
    assert read(again, NOW_US + SECOND_US, before).unschedulable_us == START_US


@pytest.mark.parametrize(
    "held",
    [
        variant_pod("a", status=scheduled("SchedulingGated")),
        variant_pod("a", status=scheduled(), scheduling_gates=(SchedulingGate("other"),)),
        variant_pod("a", status=scheduled(nominated_node_name="node-1")),
        variant_pod("a", status=scheduled(message=UNBOUND)),
        variant_pod("a", status=scheduled(message='persistentvolumeclaim "data" not found')),
        variant_pod("a", status=scheduled(message=NO_VOLUME)),
        variant_pod("a", status=scheduled(), node_name="node-1"),
        variant_pod("a", status=scheduled("SchedulerError")),
        variant_pod("a", status=PodStatus("Pending")),
    ],
)
def test_a_pod_that_something_else_holds_back_does_not_count(held: Pod) -> None:
    assert read(held).unschedulable_us == 0


def test_a_pod_that_had_a_gate_counts_since_the_scheduler_wrote_its_status() -> None:
    """Its condition has the time at which it got the gate."""
    released = variant_pod("a", status=scheduled())
    written_us = START_US + 30 * SECOND_US
    fields = manage("message", "reason", at_us=written_us)
    found = read(replace(released, metadata=replace(released.metadata, managed_fields=fields)))
    assert found.unschedulable_us == written_us
    fields = manage("message", "reason", at_us=written_us + SECOND_US)
    again = replace(released, metadata=replace(released.metadata, managed_fields=fields))
    assert read(again, before=found).unschedulable_us == written_us, "another message does not begin the time again"


@pytest.mark.parametrize(
    "fields",
    [
        msgspec.Raw(b"null"),
        msgspec.Raw(b"{}"),
        msgspec.Raw(b'[{"subresource": "status", "fieldsV1": {"f:status": []}}]'),
        manage("lastTransitionTime", subresource=""),
        msgspec.Raw(b'[{"fieldsV1": {"f:\xff": {}}}]'),
        msgspec.Raw(nest(9_000).encode()),
    ],
)
def test_without_the_scheduler_s_fields_a_pod_counts_since_it_is_known(fields: msgspec.Raw) -> None:
    made = variant_pod("a", status=scheduled())
    made = replace(made, metadata=replace(made.metadata, managed_fields=fields))
    found = read(made)
    assert found.unschedulable_us == NOW_US
    assert read(made, NOW_US + SECOND_US, found).unschedulable_us == NOW_US


@pytest.mark.parametrize(
    ("pod", "holds"),
    [
        (variant_pod("a"), True),
        (end(variant_pod("a")), False),
        (variant_pod("a", status=PodStatus("Succeeded")), False),
        (variant_pod("a", status=PodStatus("Failed")), False),
    ],
)
def test_a_slot_is_held_until_its_pod_ends_or_begins_to(pod: Pod, *, holds: bool) -> None:
    assert holds_slot(pod) is holds
