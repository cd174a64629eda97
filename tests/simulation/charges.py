"""Charges: servers that share a store over a bad network, Pods that are created or not, and a controller that crashes.

At each answer of the store: it is what the exact log says; no window is oversold, and no denial is without a cause;
what is live is what was admitted or seen. In the end: each Pod of the cluster is charged once, and no other one is.
"""

from collections import deque
from dataclasses import dataclass

from msgspec.structs import replace

from tests.core.plans import plan_of, standing, window
from tests.simulation.charge_model import ChargeModel
from tests.simulation.store_clock import StoreClock, call
from tests.simulation.world import SECOND_US, Fault, Simulation, World
from webhook.adapters.memory_store import MemoryStore
from webhook.core.quota import Acquire, Booking, Cost, CounterPlan, PoolGuarantees, PoolPlan, Receipt, Sighting

_POOLED = (window(1, pods=6), window(60, pods=25, cpu=2000))
_GUARANTEES = PoolGuarantees({(1, "pods"): (("api", 1),), (60, "pods"): (("web", 8), ("api", 3))})
_LIVE = plan_of(service="live", tag="live", standing=standing(pods=6))


def build_plans(hard: int) -> tuple[CounterPlan, ...]:
    """Return the plans under one policy, all of other objects than under the one before."""
    web, api = (PoolPlan("pool", tuple(_GUARANTEES.bind(each, name) for each in _POOLED)) for name in ("web", "api"))
    return (
        plan_of(window(2, pods=hard), service="web", tag="pool", pool=web),
        plan_of(window(1, pods=3), window(64, pods=20), service="api", tag="pool", per_namespace=True, pool=api),
        replace(_LIVE),
    )


_COSTS: tuple[Cost, ...] = ({"pods": 1}, {"pods": 1, "requests.cpu": 350}, {"pods": 1, "requests.cpu": 100})
_TIMEOUT_US = SECOND_US
_UNSEEN_US = 60 * SECOND_US


@dataclass
class _Pod:
    """A Pod that a user asked for; `asked`: how often a server has asked the store; `answer` of the servers."""

    request: Acquire
    asked: int = 0
    answer: str = ""
    created_us: int = 0


class Charges(Simulation):
    """`cluster`: the Pods of the API server, by uid."""

    name = "charges"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.clock = StoreClock(world)
        self.store = MemoryStore(self.clock)
        self.model = ChargeModel()
        self.pods: dict[str, _Pod] = {}
        self.cluster: dict[str, _Pod] = {}
        self.has_ended = False
        self.plans = build_plans(5)
        self._pace_us = world.random.choice((20_000, 150_000, SECOND_US))
        self._sightings: deque[tuple[CounterPlan, Sighting]] = deque()
        self._term = 0
        for act in (self._create, self._tick):
            world.do_after(0, act)
        self._lead()

    # --- users, the API server and the servers ---

    def _create(self) -> None:
        draw = self.world.random
        plan, namespace = draw.choice(self.plans), draw.choice(("x", "y"))
        uid = f"u{len(self.pods)}"
        pod = self.pods[uid] = _Pod(Acquire(plan, namespace, uid, draw.choice(_COSTS), "user:x", name=uid))
        self._ask(pod)
        if draw.random() < 0.05:
            self.clock.step()
        if draw.random() < 0.05:
            self.plans = build_plans(draw.choice((2, 5, 5, 9)))
        if draw.random() < 0.03:
            self._pace_us = draw.choice((20_000, 150_000, SECOND_US, 20 * SECOND_US))
        if not self.has_ended:
            self.world.do_after(draw.randrange(2 * self._pace_us), self._create)

    def _ask(self, pod: _Pod) -> None:
        pod.asked += 1
        self.world.send(self._acquire, pod)
        self.world.do_after(_TIMEOUT_US, self._time_out, pod, pod.asked)

    def _acquire(self, pod: _Pod) -> None:
        """Do in the store what a server asks for; another server may ask for the same Pod."""
        receipt = call(self.store.acquire(pod.request))
        self.model.check_acquire(pod.request, receipt, self.clock.wall())
        self.world.send(self._answer, pod, receipt)

    def _answer(self, pod: _Pod, receipt: Receipt) -> None:
        if pod.answer:
            return
        pod.answer = "denied" if receipt.refused is not None else "admitted"
        if pod.answer == "admitted" and self.world.random.random() < 0.85:  # else another webhook denies it
            self.world.do_after(self.world.random.randrange(5 * SECOND_US), self._persist, pod)

    def _time_out(self, pod: _Pod, asked: int) -> None:
        if pod.answer or pod.asked != asked:
            return
        chosen = self.world.random.random()
        if chosen < 0.5 and asked < 4:
            self._ask(pod)
        elif chosen < 0.8:
            pod.answer = "denied"
            self.world.send(self._withdraw, pod)
        else:  # as by a share of its own
            pod.answer = "admitted"
            self.world.do_after(self.world.random.randrange(SECOND_US), self._persist, pod)
            request, at_us = pod.request, self.clock.now_us()
            booking = Booking(request.namespace, request.uid, request.cost, at_us, request.name)
            self.world.send(self._book, request.plan, booking)

    def _withdraw(self, pod: _Pod) -> None:
        answer = call(self.store.withdraw(pod.request, None))
        self.model.check_withdrawal(pod.request, answer, self.clock.wall())

    def _book(self, plan: CounterPlan, booking: Booking) -> None:
        answer = call(self.store.book(plan, [booking]))
        self.model.check_booking(plan, booking, answer, self.clock.wall())

    def _persist(self, pod: _Pod) -> None:
        self.cluster[pod.request.uid] = pod
        pod.created_us = self.clock.now_us()
        self._watch(pod, lives=True)
        self.world.do_after(self.world.random.randrange(1, 90 * SECOND_US), self._end, pod)
        limits_cpu = pod.request.plan.standing is None and "requests.cpu" in pod.request.cost
        if self.world.random.random() < 0.4 and limits_cpu:
            self.world.do_after(self.world.random.randrange(30 * SECOND_US), self._ask_to_resize, pod)

    def _ask_to_resize(self, pod: _Pod) -> None:
        cost = {"pods": 1, "requests.cpu": self.world.random.choice((50, 350, 900))}
        if self.world.random.random() < 0.3:  # no server answers, and the API server lets it pass
            self._persist_size(pod, cost)
        else:
            self.world.send(self._resize, pod, replace(pod.request, cost=cost, resize_from=pod.request.cost))

    def _resize(self, pod: _Pod, request: Acquire) -> None:
        receipt = call(self.store.acquire(request))
        self.model.check_resize(request, receipt, self.clock.wall())
        if receipt.refused is None:
            self.world.send(self._persist_size, pod, request.cost)

    def _persist_size(self, pod: _Pod, cost: Cost) -> None:
        if pod.request.uid in self.cluster and pod.request.cost != cost:
            pod.request = replace(pod.request, cost=cost)
            self._watch(pod, lives=True)

    def _end(self, pod: _Pod) -> None:
        if self.has_ended:
            return  # so that there are some in the end
        del self.cluster[pod.request.uid]
        self._watch(pod, lives=False)

    # --- the controller: what it has not sent when it crashes, the next one lists ---

    def _lead(self) -> None:
        self._term += 1
        self._sightings.clear()
        for pod in self.cluster.values():
            self._watch(pod, lives=True)
        for plan in self.plans:
            for uid in call(self.store.list_live(plan, ""))[0]:
                if uid not in self.cluster:
                    self._watch(self.pods[uid], lives=False)
        for act, us in ((self._send_sightings, SECOND_US), (self._refund, 5 * SECOND_US), (self._complete, 0)):
            self.world.do_after(us, act, self._term)

    def _watch(self, pod: _Pod, *, lives: bool) -> None:
        request = pod.request
        seen = Sighting(request.namespace, request.name, request.uid, request.cost, lives, pod.created_us)
        self._sightings.append((request.plan, seen))

    def _send_sightings(self, term: int) -> None:
        """Send all, in their order; without an answer they are sent again, whether the store has them or not."""
        if term != self._term:
            return
        is_lost, is_unanswered = (self.world.strikes(Fault.LOSS, 0.1) for _ in range(2))
        for plan, seen in () if is_lost else tuple(self._sightings):
            (answer,) = call(self.store.observe(plan, [seen]))
            self.model.check_sighting(plan, seen, answer, self.clock.wall())
        if not (is_lost or is_unanswered):
            self._sightings.clear()
        if self.world.strikes(Fault.CRASH, 0.02):
            self.world.do_after(15 * SECOND_US, self._lead)
            self._term += 1
            return
        self.world.do_after(SECOND_US, self._send_sightings, term)

    def _complete(self, term: int) -> None:
        if term == self._term:
            call(self.store.mark_complete(_LIVE, [""]))
            self.model.complete_us = self.clock.now_us()
            self.world.do_after(120 * SECOND_US, self._complete, term)

    def _refund(self, term: int) -> None:
        """Refund Pods that were charged a minute ago, and are not in the cluster."""
        if term != self._term:
            return
        for plan in self.plans[1:]:  # one of each tag
            for unseen in call(self.store.list_overdue(plan, _UNSEEN_US, 20)):
                if unseen.uid in self.cluster or self.world.strikes(Fault.LOSS, 0.1):
                    continue
                of = self.pods[unseen.uid].request.plan
                for _ in range(2 if self.world.strikes(Fault.DOUBLING, 0.2) else 1):
                    answer = call(self.store.refund(of, unseen.uid))
                    self.model.check_refund(of, unseen.uid, answer, self.clock.wall())
        self.world.do_after(5 * SECOND_US, self._refund, term)

    def _tick(self) -> None:
        call(self.store.tick(self.plans))
        for plan in self.plans:
            if plan.tag in self.store._states:
                self.model.log.find_time(plan).advance(self.clock.now_us())
        self.world.do_after(SECOND_US, self._tick)

    # --- what must hold ---

    def check(self) -> None:
        (use,) = call(self.store.snapshot(_LIVE)).uses[""]
        assert use.used == self.model.sum_live(), f"{use.used} live Pods, and not {self.model.sum_live()}"

    def settle(self) -> None:
        world = self.world
        self.has_ended, world.faults = True, frozenset()
        world.run_until(world.now_us + 30 * SECOND_US)
        self._lead()
        world.run_until(world.now_us + 400 * SECOND_US)
        reading_us = self.clock.now_us()
        kept = {uid for uid, pod in self.pods.items() if self.model.is_charged(pod.request.plan, uid, reading_us)}
        created = {uid for uid, pod in self.pods.items() if pod.created_us}
        assert set(self.cluster) <= kept, f"live, and not charged: {sorted(set(self.cluster) - kept)}"
        assert kept <= created, f"charged, and never created: {sorted(kept - created)}"
        for plan in self.plans:
            assert not call(self.store.list_overdue(plan, _UNSEEN_US, 99)), "a Pod is still waited for"
        live = {uid for uid, pod in self.cluster.items() if pod.request.plan.service == "live"}
        assert set(call(self.store.list_live(_LIVE, ""))[0]) == live
