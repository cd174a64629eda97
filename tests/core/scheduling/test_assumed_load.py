"""Assumed load: the sums against a model, and a burst of Pods that must not pile up on the one cool node."""

from dataclasses import dataclass, field

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from webhook.core.scheduling.assumed_load import AssumedLoad, PodLoad
from webhook.core.scheduling.measured_load import Decay

EVERY, WINDOW, SETTLE = 30.0, 300.0, 60.0
uids, nodes = st.sampled_from("pqrstu"), st.sampled_from("abc")
loads = st.builds(PodLoad, st.floats(1, 1000), st.floats(1, 1000))


@dataclass
class Expected:
    node: str
    load: PodLoad
    since: float
    tentative: bool


@dataclass
class Model:
    now: float = 0.0
    pods: dict[str, Expected] = field(default_factory=dict)


class AssumedLoadMachine(RuleBasedStateMachine):
    """Random assignments, confirmations and deletions; the sums are always those of the model."""

    def __init__(self) -> None:
        super().__init__()
        self.assumed = AssumedLoad(Decay(0.8, EVERY), WINDOW)
        self.model = Model()

    @rule(uid=uids, node=nodes, load=loads)
    def assign(self, uid: str, node: str, load: PodLoad) -> None:
        self.assumed.assign(uid, node, load, self.model.now, SETTLE)
        known = self.model.pods.get(uid)
        if known is None or known.tentative:
            self.model.pods[uid] = Expected(node, load, self.model.now, tentative=True)

    @rule(uid=uids, node=nodes, load=loads)
    def confirm(self, uid: str, node: str, load: PodLoad) -> None:
        self.assumed.confirm(uid, node, load, self.model.now, SETTLE)
        known = self.model.pods.get(uid)
        if known is not None and known.node == node:
            if known.tentative:
                known.tentative, known.since = False, self.model.now
        else:
            self.model.pods[uid] = Expected(node, load, self.model.now, tentative=False)

    @rule(uid=uids)
    def remove(self, uid: str) -> None:
        self.assumed.remove(uid)
        self.model.pods.pop(uid, None)

    @rule(seconds=st.sampled_from([1.0, 4.0, 6.0, 45.0, 200.0, 400.0]))
    def wait(self, seconds: float) -> None:
        self.model.now += seconds
        lasts = {True: 5.0, False: SETTLE + WINDOW}
        self.model.pods = {
            uid: pod for uid, pod in self.model.pods.items() if self.model.now - pod.since <= lasts[pod.tentative]
        }

    @invariant()
    def sums_are_those_of_the_model(self) -> None:
        lasts = {True: 5.0, False: SETTLE + WINDOW}
        for node in "abc":
            found = self.assumed.sum_load(node, self.model.now)
            cpu = memory = 0.0
            for pod in self.model.pods.values():
                age = self.model.now - pod.since
                if pod.node == node and age <= lasts[pod.tentative]:
                    share = 0.8 ** (max(0.0, age - SETTLE) / EVERY)
                    cpu, memory = cpu + share * pod.load.cpu_millis, memory + share * pod.load.memory_bytes
            assert found == pytest.approx((cpu, memory))
        assert len(self.assumed) == len(self.model.pods), "others are forgotten"
        assert set(self.assumed.list_nodes()) == {pod.node for pod in self.model.pods.values()}


TestAssumedLoad = AssumedLoadMachine.TestCase


def test_burst_of_sixty_pods_goes_to_all_nodes_and_not_to_the_one_that_was_cooler() -> None:
    measured = {"cooler": 1000.0, **{f"other-{number}": 2000.0 for number in range(4)}}
    assumed = AssumedLoad(Decay(0.8, EVERY), WINDOW)
    for number in range(60):
        best = min(measured, key=lambda node: measured[node] + assumed.sum_load(node, 0.0).cpu_millis)
        assumed.assign(f"pod-{number}", best, PodLoad(255.0, 0.0), 0.0, SETTLE)
    shares = {node: (measured[node] + assumed.sum_load(node, 0.0).cpu_millis) / 8000 for node in measured}
    assert max(shares.values()) - min(shares.values()) <= 255 / 8000
