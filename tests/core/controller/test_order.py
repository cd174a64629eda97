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
        scope=st.sampled_from(["", "", "team"]),
    )
    def add(self, service: str, amount: int, priority: int, scope: str) -> WaitingPod:
        self.count += 1
        pod = WaitingPod(f"u{self.count:04}", service, self.now_us, {"pods": amount}, scope, priority)
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

    @rule()
    def retry(self) -> None:
        self.order.retry()
        self.model.until = {shape: (0, by) for shape, (_, by) in self.model.until.items()}

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
