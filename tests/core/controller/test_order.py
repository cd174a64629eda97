"""The release order does what its model does, and keeps its promises."""

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tests.core.controller.order_model import OrderModel, shape_of
from webhook.core.controller.order import ReleaseOrder
from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.quota import Holder

_MINUTE_US = 60_000_000
_MEMBERS = {
    "gold-a": Member("gold-a", 0, 10 * _MINUTE_US),
    "gold-b": Member("gold-b", 0, 5 * _MINUTE_US, lifted_percent=25),
    "silver": Member("silver", 1, 10 * _MINUTE_US, lifted_percent=50),
    "bronze-a": Member("bronze-a", 3, 2 * _MINUTE_US),
    "bronze-b": Member("bronze-b", 3, 10 * _MINUTE_US, lifted_percent=0),
}


class _OrderComparison(RuleBasedStateMachine):
    """The same events for the order and for its model."""

    pods: Bundle[WaitingPod] = Bundle("pods")
    taken: Bundle[WaitingPod] = Bundle("taken")

    def __init__(self) -> None:
        super().__init__()
        self.order, self.model = ReleaseOrder(_MEMBERS.values()), OrderModel(dict(_MEMBERS))
        self.now_us = self.count = 0

    @rule(
        target=pods,
        service=st.sampled_from(sorted(_MEMBERS)),
        amount=st.sampled_from([1, 2]),
        priority=st.sampled_from([0, 0, 0, 5]),
        scope=st.sampled_from(["", "", "team", "other"]),
        waited_seconds=st.sampled_from([0, 0, 1, 300, 1500]),
    )
    def add(self, service: str, amount: int, priority: int, scope: str, waited_seconds: int = 0) -> WaitingPod:
        """Add a Pod, also one that waits anew, as old as it is."""
        self.count += 1
        since_us = self.now_us - waited_seconds * 1_000_000
        pod = WaitingPod(f"u{self.count:04}", service, since_us, {"pods": amount}, scope, priority)
        self.order.add(pod)
        self.order.add(pod)
        self.model.add(pod)
        return pod

    @rule(most=st.sampled_from([2, 5, 12]))
    def release_several(self, most: int) -> None:
        for _ in range(most):
            self.release(self.take())

    @rule(service=st.sampled_from(sorted(_MEMBERS)), count=st.sampled_from([5, 15]))
    def add_several(self, service: str, count: int) -> None:
        for _ in range(count):
            self.add(service, 1, 0, "")

    @rule(target=taken)
    def take(self) -> Any:
        found = self.order.take(self.now_us)
        assert found == self.model.take(self.now_us)
        return found

    @rule(pod=consumes(taken))
    def release(self, pod: WaitingPod | None) -> None:
        if pod is not None and pod.uid in self.model.releasing:
            self.order.confirm(pod.uid)
            self.model.confirm(pod.uid)

    @rule(
        pod=consumes(taken),
        seconds=st.sampled_from([1, 30, 700, 4000]),
        by=st.sampled_from([Holder.SERVICE, Holder.POOL, Holder.STANDING]),
    )
    def block(self, pod: WaitingPod | None, seconds: int, by: Holder) -> None:
        if pod is not None and pod.uid in self.model.releasing:
            until_us = self.now_us + seconds * 1_000_000
            self.order.put_back(pod.uid, self.now_us, until_us, by)
            self.model.put_back(pod.uid, self.now_us, until_us, by)

    @rule(pod=consumes(pods))
    def remove(self, pod: WaitingPod) -> None:
        if pod.uid in self.order:
            self.order.remove(pod.uid)
            self.model.remove(pod)

    @rule(but=st.sets(st.sampled_from(sorted(_MEMBERS)), max_size=2))
    def retry(self, but: set[str]) -> None:
        self.order.retry(but)
        until = self.model.until.items()
        self.model.until = {shape: (at_us if shape[0] in but else 0, by) for shape, (at_us, by) in until}

    @rule(seconds=st.sampled_from([1, 60, 121, 299, 600, 601, 1300]))
    def wait(self, seconds: int) -> None:
        self.now_us += seconds * 1_000_000

    @invariant()
    def check_agreement(self) -> None:
        waiting = [pod for pods in self.model.waiting.values() for pod in pods]
        assert len(self.order) == len(waiting)
        times = [self.model.until[shape][0] for shape in map(shape_of, waiting) if shape in self.model.until]
        assert self.order.find_next_us(self.now_us) == min((time for time in times if time > self.now_us), default=None)


TestComparison = _OrderComparison.TestCase
TestComparison.settings = settings(max_examples=60, stateful_step_count=80)


def test_a_pool_lane_that_is_put_aside_leaves_its_place_to_those_behind_it() -> None:
    """C was put aside behind B, whose room is kept in the pool; B is behind A now, in another scope than C."""
    members = {"gold": Member("gold", 0, 5 * _MINUTE_US), "bronze": Member("bronze", 1, 5 * _MINUTE_US)}
    for order in (OrderModel(members), ReleaseOrder(members.values())):
        for pod in (
            WaitingPod("A", "gold", 1, {"pods": 1}, "team", 5),
            WaitingPod("B", "gold", 2, {"pods": 2}, "team", 5),
            WaitingPod("C", "gold", 3, {"pods": 1}, "other"),
            WaitingPod("D", "bronze", 4, {"pods": 1}),
            WaitingPod("E", "bronze", 5, {"pods": 1}),
        ):
            order.add(pod)
        assert [_take(order, 0), _take(order, 0)] == ["A", "B"]
        order.put_back("B", 0, 60 * _MINUTE_US, Holder.POOL)
        order.put_back("A", 0, 5 * _MINUTE_US, Holder.SERVICE)
        now_us = 5 * _MINUTE_US + 1
        assert [_take(order, now_us), _take(order, now_us)] == ["A", "D"]
        order.confirm("D")
        order.put_back("A", now_us, 6 * _MINUTE_US, Holder.SERVICE)
        assert [_take(order, now_us), _take(order, now_us)] == ["C", "E"]


def _take(order: ReleaseOrder | OrderModel, now_us: int) -> str | None:
    pod = order.take(now_us)
    return None if pod is None else pod.uid
