"""Figures of Pods by policy, from the events of a watch."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw
from msgspec.structs import replace

from tests.controller.controller_simulation import SECOND_US, START_US, compile_policy, format_moment, pod
from webhook.adapters.clocks import VirtualClock
from webhook.controller.rollout import pod_figures
from webhook.controller.rollout.pod_figures import PodFigures, PodFiguresObserver
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.kubernetes.pod import (
    ContainerState,
    ContainerStateDetail,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
    SchedulingGate,
)
from webhook.core.pods import ownership
from webhook.core.rollout.symptoms import Share

OLD, NEW = "0" * 16, "1" * 16
GRACE_US = 60 * SECOND_US
READY = (PodCondition("Ready", "True", None, format_moment(START_US)),)
PULLING = (ContainerStatus(state=ContainerState(waiting=ContainerStateDetail("ImagePullBackOff"))),)


class Watched:
    """The observer of a watch whose first list was complete; it follows two policies."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START_US)
        self.policy = compile_policy()
        self.observer = PodFiguresObserver(self.clock.now_us)
        self.observer.on_list_begun(self.policy)
        self.observer.on_list_complete()
        self.observer.follow({OLD: 0, NEW: 0}, GRACE_US)

    def wait(self, seconds: int) -> None:
        self.clock.set(self.clock.now_us() + seconds * SECOND_US)

    def show(self, shown: Pod) -> None:
        self.observer.on_changed(shown, ownership.find_ownership(shown, self.policy, {}))

    def create(self, uid: str, policy_hash: str = NEW, status: PodStatus = PodStatus("Pending"), **spec: Any) -> Pod:  # noqa: B008  frozen
        made = pod(uid, annotations={HASH_ANNOTATION: policy_hash}, **spec)
        created = format_moment(self.clock.now_us())
        made = Pod(replace(made.metadata, creation_timestamp=created), made.spec, status)
        self.show(made)
        return made

    def read(self, policy_hash: str = NEW) -> PodFigures:
        found = self.observer.read(policy_hash)
        assert found is not None
        return found


def test_nothing_is_known_before_the_first_list() -> None:
    assert PodFiguresObserver(VirtualClock(START_US).now_us).read(NEW) is None


def test_pending_pods_count_after_the_grace_period() -> None:
    watched = Watched()
    watched.create("a")
    watched.create("b", node_name="n1")
    watched.create("c", status=PodStatus("Running", conditions=READY), node_name="n1")
    watched.create("d", OLD)
    watched.wait(59)
    assert watched.read() == PodFigures(Share(0, 0), 0, Share(0, 1))
    watched.wait(1)
    assert watched.read() == PodFigures(Share(2, 3), 1, Share(0, 1))
    assert watched.read(OLD).pending == Share(1, 1)


def test_a_gated_pod_counts_from_when_it_is_released() -> None:
    watched = Watched()
    gated = watched.create("a", scheduling_gates=(SchedulingGate("podgate.io/queue"),))
    watched.wait(600)
    assert watched.read().pending == Share(0, 0)
    released = Pod(gated.metadata, replace(gated.spec, scheduling_gates=None), gated.status)
    watched.show(released)
    assert watched.read().pending == Share(0, 0)
    watched.wait(60)
    assert watched.read().pending == Share(1, 1)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_was_not_kept_waiting(phase: str) -> None:
    watched = Watched()
    made = watched.create("a")
    watched.wait(61)
    watched.show(Pod(made.metadata, made.spec, PodStatus(phase)))
    assert watched.read() == PodFigures(Share(0, 1), 0, Share(int(phase == "Failed"), 1))


def test_jobs_that_wait_are_a_share_of_all_jobs_and_not_of_those_that_wait() -> None:
    """A Job's Pod that is done within the grace period would otherwise never count."""
    watched = Watched()
    for number in range(100):
        made = watched.create(f"{number}")
        if number >= 3:
            watched.show(Pod(made.metadata, made.spec, PodStatus("Succeeded")))
    assert watched.read().pending == Share(0, 0)
    watched.wait(60)
    assert watched.read().pending == Share(3, 100)
    watched.observer.on_deleted("99")
    assert watched.read().pending == Share(3, 99)


def test_deleted_and_terminating_pods_do_not_count() -> None:
    watched = Watched()
    made, _ = watched.create("a"), watched.create("b")
    watched.wait(61)
    watched.show(replace(made, metadata=replace(made.metadata, deletion_timestamp=format_moment(START_US))))
    watched.observer.on_deleted("b")
    watched.observer.on_deleted("unknown")
    assert watched.read() == PodFigures()
    assert len(watched.observer) == 0


def test_a_pod_that_cannot_pull_its_image_has_failed_until_it_is_ready() -> None:
    watched = Watched()
    made = watched.create("a", status=PodStatus("Pending", container_statuses=PULLING), node_name="n1")
    assert watched.read().start_errors == Share(1, 1)
    watched.show(Pod(made.metadata, made.spec, PodStatus("Running", conditions=READY)))
    assert watched.read().start_errors == Share(0, 1)
    watched.show(Pod(made.metadata, made.spec, PodStatus("Running", container_statuses=PULLING)))
    assert watched.read().start_errors == Share(0, 1)


def test_a_scheduled_pod_that_is_not_ready_in_five_minutes_has_failed() -> None:
    watched = Watched()
    watched.create("a", status=PodStatus("Running"), node_name="n1")
    watched.create("b")
    watched.wait(299)
    assert watched.read().start_errors == Share(0, 0)
    watched.wait(1)
    assert watched.read() == PodFigures(Share(1, 2), 1, Share(1, 1))


def test_pods_of_other_policies_or_without_a_trusted_label_do_not_count() -> None:
    watched = Watched()
    watched.create("a", "f" * 16)
    watched.create("b", labels={"app": "web"})
    watched.create("c", labels={"podgate.io/service": "other"})
    forged = pod("d", annotations={HASH_ANNOTATION: NEW, "kubernetes.io/config.mirror": "x"})
    sent = Raw(b'[{"fieldsV1":{"f:metadata":{"f:labels":{"f:podgate.io/service":{}}}}}]')
    watched.show(replace(forged, metadata=replace(forged.metadata, managed_fields=sent)))
    assert len(watched.observer) == 0


def test_an_annotation_that_changes_moves_no_pod() -> None:
    watched = Watched()
    made = watched.create("a")
    watched.wait(60)
    watched.show(replace(made, metadata=replace(made.metadata, annotations={HASH_ANNOTATION: OLD})))
    assert (watched.read(OLD).pending, watched.read().pending) == (Share(0, 0), Share(1, 1))


def test_pods_seen_before_the_policies_are_known_count() -> None:
    watched = Watched()
    watched.observer = PodFiguresObserver(watched.clock.now_us)
    watched.create("a")
    watched.create("b", "f" * 16)
    watched.observer.on_list_complete()
    watched.wait(60)
    watched.observer.follow({OLD: 0, NEW: 0}, GRACE_US)
    assert watched.read().pending == Share(1, 1)
    assert len(watched.observer) == 1


def test_without_a_rollout_nothing_is_remembered() -> None:
    watched = Watched()
    watched.create("a")
    watched.observer.follow({}, GRACE_US)
    watched.create("b")
    assert len(watched.observer) == 0


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_figures, "PODS_MAX", 3)
    watched = Watched()
    for number in range(5):
        watched.create(str(number))
    assert len(watched.observer) == 3


STATUSES = st.sampled_from(
    [
        PodStatus("Pending"),
        PodStatus("Pending", container_statuses=PULLING),
        PodStatus("Running", conditions=READY),
        PodStatus("Running"),
        PodStatus("Failed"),
        None,
    ]
)


@given(st.lists(st.tuples(st.integers(0, 4), STATUSES, st.sampled_from([0, 0, 30, 60, 300])), max_size=40))
def test_counting_by_events_is_counting_all_pods(course: list[tuple[int, PodStatus | None, int]]) -> None:
    watched, live = Watched(), dict[int, tuple[Pod, int, bool]]()
    for number, status, seconds in course:
        if status is None:
            live.pop(number, None)
            watched.observer.on_deleted(str(number))
        elif number not in live:
            made = watched.create(str(number), status=status)
            live[number] = made, watched.clock.now_us(), status.phase == "Running" and bool(status.conditions)
        else:
            made, since_us, was_ready = live[number]
            made = Pod(made.metadata, made.spec, status)
            live[number] = made, since_us, was_ready or bool(status.conditions)
            watched.show(made)
        watched.wait(seconds)
        grown = [made for made, since_us, _ in live.values() if watched.clock.now_us() - since_us >= GRACE_US]
        pending = [made for made in grown if made.status.phase == "Pending"]
        assert watched.read().pending == Share(len(pending), len(grown))
