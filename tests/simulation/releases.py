"""The queue of a pool: Pods and groups that wait, leaders that crash between a charge and its release, lost answers.

At each step: the release order proposes what its model proposes; no window is oversold; a group is charged whole or not
at all, and a gate is removed from a charged Pod only. In the end no gate is left, and none was removed twice.
"""

from dataclasses import dataclass, field

from msgspec.structs import replace

from tests.contract.witness import Witness
from tests.core.controller.order_model import OrderModel
from tests.core.plans import plan_of, window
from tests.simulation.store_clock import StoreClock, call
from tests.simulation.world import SECOND_US, Fault, Simulation, World
from webhook.adapters.memory_store import MemoryStore
from webhook.controller.release.obstacles import find_obstacle
from webhook.core.controller.lane import UNANSWERED
from webhook.core.controller.order import ReleaseOrder
from webhook.core.controller.waiting_pod import Member, WaitingPod
from webhook.core.groups.completeness import WaitingMember, find_completeness
from webhook.core.groups.membership import Membership
from webhook.core.policy_fields import GroupSource
from webhook.core.quota import Acquire, AcquireGroup, GroupMember, Holder, PoolPlan, Receipt, sum_costs

_POOL = PoolPlan("pool", (window(20, pods=9),))
PLANS = {
    name: plan_of(*windows, service=name, tag="pool", pool=_POOL)
    for name, windows in {
        "gold-a": (window(10, pods=6),),
        "gold-b": (),
        "silver": (window(30, pods=8),),
        "bronze": (),
    }.items()
}
_MEMBERS = {
    "gold-a": Member("gold-a", 0, 60 * SECOND_US),
    "gold-b": Member("gold-b", 0, 30 * SECOND_US, lifted_percent=25),
    "silver": Member("silver", 1, 60 * SECOND_US, lifted_percent=50),
    "bronze": Member("bronze", 3, 20 * SECOND_US),
}
_LEASE_US = 15 * SECOND_US
"""So long nobody leads after a crash: what the last leader sent has arrived by then."""


@dataclass
class _Gated:
    """A Pod of the cluster. `removals`: how often its gate was removed."""

    waiting: WaitingPod
    group: str = ""
    size: int = 1
    removals: int = 0


@dataclass
class _Leader:
    """What one leader knows: the order, its model, and what it has charged and not yet seen released."""

    order: ReleaseOrder = field(default_factory=lambda: ReleaseOrder(_MEMBERS.values()))
    model: OrderModel = field(default_factory=lambda: OrderModel(dict(_MEMBERS)))
    wholes: dict[str, tuple[_Gated, ...]] = field(default_factory=dict)
    """By the uid of what waits: a Pod, or what stands for a group."""
    gathering: dict[str, list[_Gated]] = field(default_factory=dict)
    charged: dict[str, _Gated] = field(default_factory=dict)


class Releases(Simulation):
    """`cluster`: all Pods of the API server, by uid, with and without a gate."""

    name = "releases"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.clock = StoreClock(world)
        self.store = MemoryStore(self.clock)
        self.witness = Witness()
        self.cluster: dict[str, _Gated] = {}
        self.groups = 0
        self.leader: _Leader | None = None
        self.has_ended = False
        self._pace_us = world.random.choice((SECOND_US, 4 * SECOND_US, 8 * SECOND_US))
        for act in (self._create, self._lead):
            world.do_after(0, act)

    # --- users ---

    def _create(self) -> None:
        draw, size, group = self.world.random, 1, ""
        service = draw.choice(tuple(_MEMBERS))
        priority, amount = draw.choice((0, 0, 0, 5)), draw.choice((1, 1, 2))
        if draw.random() < 0.2:
            self.groups += 1
            size, group, amount = draw.randrange(2, 5), f"g{self.groups}", 1
        for _ in range(size):
            uid = f"u{len(self.cluster):04}"
            waiting = WaitingPod(uid, service, self.world.now_us, {"pods": amount}, "", priority)
            pod = self.cluster[uid] = _Gated(waiting, group, size)
            self.world.do_after(self.world.draw_delay_us(), self._arrive, pod)
        if not self.has_ended:
            self.world.do_after(draw.randrange(1, 2 * self._pace_us), self._create)

    # --- leaders ---

    def _lead(self) -> None:
        """Begin a term: nothing is known but the cluster and the store."""
        self.leader = _Leader()
        for pod in self.cluster.values():
            self._arrive(pod)
        self.world.do_after(0, self._round, self.leader)

    def _arrive(self, pod: _Gated) -> None:
        leader = self.leader
        if leader is None or pod.removals or pod.waiting.uid in leader.charged:
            return
        if not pod.group or self._has_begun(pod.group):
            self._enqueue(leader, pod.waiting, (pod,))
            return
        members = leader.gathering.setdefault(pod.group, [])
        if all(one is not pod for one in members):
            members.append(pod)
        waiting = [
            WaitingMember(
                one.waiting.uid, Membership(GroupSource.ANNOTATIONS, one.group, size=one.size), one.waiting.since_us
            )
            for one in members
        ]
        complete = find_completeness(waiting, None, 9).complete
        assert bool(complete) is (len(members) == pod.size), f"{len(members)} of {pod.size} members: {complete}"
        if complete:
            together = sum_costs(one.waiting.cost for one in members)
            oldest = min(members, key=lambda one: one.waiting.since_us).waiting
            self._enqueue(leader, replace(oldest, uid=f"group:{pod.group}", cost=together), tuple(members))

    def _has_begun(self, group: str) -> bool:
        return any(pod.group == group and pod.removals for pod in self.cluster.values())

    def _enqueue(self, leader: _Leader, waiting: WaitingPod, pods: tuple[_Gated, ...]) -> None:
        if waiting.uid not in leader.wholes:
            leader.wholes[waiting.uid] = pods
            leader.order.add(waiting)
            leader.model.add(waiting)

    def _round(self, leader: _Leader) -> None:
        """Charge what is next, some at once; then remove the gates of what was charged."""
        if leader is not self.leader:
            return
        now_us = self.clock.now_us()
        for _ in range(12):
            taken = self._take(leader, now_us, self.world.random.choice((1, 1, 3)))
            if not taken:
                break
            answers = [(waiting, self._charge(leader.wholes[waiting.uid])) for waiting in taken]
            if self.world.strikes(Fault.CRASH, 0.02):
                self.leader = None  # what it has charged is not released
                self.world.do_after(_LEASE_US, self._lead)
                return
            others = [(waiting, receipt) for waiting, receipt in answers if not self._confirm(leader, waiting, receipt)]
            for waiting, receipt in reversed(others):
                self._put_back(leader, waiting, receipt, now_us)
        for pod in leader.charged.values():
            self.world.send(self._remove_gate, pod, leader)
        if self.world.random.random() < 0.05:
            leader.order.retry()
            leader.model.until = {shape: (0, by) for shape, (_, by) in leader.model.until.items()}
        self.world.do_after(SECOND_US, self._round, leader)

    def _take(self, leader: _Leader, now_us: int, most: int) -> list[WaitingPod]:
        taken: list[WaitingPod] = []
        while len(taken) < most:
            found, expected = leader.order.take(now_us), leader.model.take(now_us)
            assert found == expected, f"{found} is next, and not {expected}"
            if found is None:
                break
            taken.append(found)
        waiting = [pod for pods in leader.model.waiting.values() for pod in pods]
        assert len(leader.order) == len(waiting)
        return taken

    def _charge(self, pods: tuple[_Gated, ...]) -> Receipt | None:
        """Charge a Pod or a group in one step; None without an answer, whether the store has charged or not."""
        if self.world.strikes(Fault.LOSS, 0.03):
            return None
        first, plan = pods[0].waiting, PLANS[pods[0].waiting.service]
        cost = sum_costs(pod.waiting.cost for pod in pods)
        request = Acquire(plan, "x", first.uid, cost, "user:x", counts_as_event=False)
        if len(pods) == 1:
            receipt = call(self.store.acquire(request))
        else:
            members = tuple(GroupMember(pod.waiting.uid, pod.waiting.uid, pod.waiting.cost, "user:x") for pod in pods)
            receipt = call(self.store.acquire_group(AcquireGroup(plan, "x", members)))
        charged = {self._is_charged(pod) for pod in pods}
        assert len(charged) == 1, f"a part of {pods[0].group} is charged"
        if receipt.charged:
            for pod in pods:
                alone = replace(request, uid=pod.waiting.uid, cost=pod.waiting.cost)
                self.witness.record_charge(alone, alone.cost, receipt, self.clock.wall())
        elif receipt.over:
            self.witness.check_denial(request, receipt.over, self.clock.wall())
        return None if self.world.strikes(Fault.LOSS, 0.03) else receipt

    def _is_charged(self, pod: _Gated) -> bool:
        request = Acquire(PLANS[pod.waiting.service], "x", pod.waiting.uid, {}, "user:x", peek=True)
        return call(self.store.find_charged_us(request)) is not None

    def _confirm(self, leader: _Leader, waiting: WaitingPod, receipt: Receipt | None) -> bool:
        if receipt is None or not receipt.charged:
            return False
        leader.order.confirm(waiting.uid)
        leader.model.confirm(waiting.uid)
        leader.charged |= {pod.waiting.uid: pod for pod in leader.wholes.pop(waiting.uid)}
        return True

    def _put_back(self, leader: _Leader, waiting: WaitingPod, receipt: Receipt | None, now_us: int) -> None:
        """Let it wait on: until there is room, or at once if an earlier charge had to be undone first."""
        until_us, by = now_us + SECOND_US, UNANSWERED
        if receipt is not None and receipt.repeated:
            for pod in leader.wholes[waiting.uid]:
                self._refund(pod)
            until_us, by = now_us, Holder.SERVICE
        elif receipt is not None:
            until_us, by = find_obstacle(receipt, receipt.at_us, receipt.at_us)
            until_us = max(until_us, now_us + 1)
        leader.order.put_back(waiting.uid, now_us, until_us, by)
        leader.model.put_back(waiting.uid, now_us, until_us, by)  # type: ignore[arg-type]  any holder but a pool's is one

    def _refund(self, pod: _Gated) -> None:
        plan, uid = PLANS[pod.waiting.service], pod.waiting.uid
        if call(self.store.refund(plan, uid)) and (plan.tag, uid) in self.witness._pods:
            self.witness.forget_charge(plan, uid)

    def _remove_gate(self, pod: _Gated, leader: _Leader) -> None:
        """Remove a gate in the API server; the leader hears of it, or asks again."""
        if not pod.removals:
            assert self._is_charged(pod), f"{pod.waiting.uid} is released, and not charged"
            whole = [one for one in self.cluster.values() if pod.group and one.group == pod.group]
            left = [one.waiting.uid for one in whole if not one.removals and not self._is_charged(one)]
            assert not left or self._has_begun(pod.group), f"{left} of {pod.group} are not charged"
            pod.removals += 1
        if not self.world.strikes(Fault.LOSS, 0.1):
            leader.charged.pop(pod.waiting.uid, None)

    # --- what must hold in the end ---

    def settle(self) -> None:
        world = self.world
        self.has_ended, world.faults = True, frozenset()
        world.run_until(world.now_us + _LEASE_US + SECOND_US)
        ends_us = world.now_us + (60 + 8 * len(self.cluster)) * SECOND_US
        while world.now_us < ends_us and not all(pod.removals for pod in self.cluster.values()):
            world.run_until(world.now_us + 20 * SECOND_US)
        left = [uid for uid, pod in self.cluster.items() if not pod.removals]
        assert not left, f"never released: {left}"
