"""A breaker in a store compared with a plain model, in any order of events; it never gets stuck.

`make soak` takes more than 100,000 steps on every store; `make test` some thousands.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from tests.contract.counter_store import HandClock
from tests.contract.store_session import STORES, Stage, count_examples, open_stage
from tests.core import plans as counter_plans
from tests.core.breaker.random_walks import build_offered_view, convert_transition, plans, strip_view
from tests.core.breaker_model import Model, Move, plan_of
from tests.redis_servers import RedisServer
from webhook.adapters.memory_store import MemoryStore
from webhook.core.breaker import BreakerPlan, BreakerView, Forcing, LatencyPlan, State, Transition
from webhook.core.breaker.manual import EXCUSED_US
from webhook.core.breaker.outcome_types import Outcomes, Settlement, Start
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, Receipt
from webhook.fallback.local_breakers import LocalBreakers

pytest_plugins = ("tests.redis_servers.fixtures",)

EXAMPLES = 60
STEPS = 60
LATE_US = 7
START_US = HandClock().us
PODS = 10**9
"""More Pods than a run asks for; a larger request is always denied by quota."""

sources = st.sampled_from(["controller:a", "controller:b", "controller:c", "controller:d", "user:e", ""])
ages = st.sampled_from([0, 0, 1, 5, 9, -3])
interventions = st.one_of(
    st.tuples(st.just("force"), st.sampled_from([None, State.FORCED_OPEN, State.FORCED_CLOSED]), st.integers(-3, 30)),
    st.tuples(st.just("by hand"), st.sampled_from([None, None, 0, 3, -9])),
    st.tuples(st.just("guard"), st.sampled_from([None, None, 0, 1])),
    st.tuples(st.just("suppress_quota_events")),
    st.tuples(
        st.just("propose"),
        st.sampled_from([State.CLOSED, State.OPEN, State.HALF_OPEN, State.FORCED_OPEN]),
        st.integers(-1, 2),
        st.integers(-9, 30),
        st.lists(st.sampled_from(["controller:a", "user:e"]), unique=True),
    ),
)
names_of_replicas = st.sampled_from(["one", "two", "three"])
old_uids = st.integers(0, 9)
"""Counted back from the newest."""


@dataclass
class Pod:
    """The expected record of an admitted Pod."""

    generation: int
    source: str
    is_probe: bool
    is_settled: bool = False
    is_refunded: bool = False


@dataclass
class IsolatedReplica:
    """A replica isolated from the store, and its model."""

    breakers: LocalBreakers
    model: Model


class BreakerMachine(RuleBasedStateMachine):
    """Every rule does the same to the store and to the model; its microseconds are as short as the model's."""

    stage: ClassVar[Stage]
    clock: ClassVar[HandClock]
    steps: ClassVar[int] = 0

    @initialize(breaker=plans)
    def begin(self, breaker: BreakerPlan) -> None:
        name, self.clock.us = self.stage.name(), START_US
        is_memory = isinstance(self.stage.store, MemoryStore)
        # One store for each run: a removed service is kept for an hour, longer than this clock runs.
        self.store: Any = MemoryStore(self.clock, late_us=LATE_US) if is_memory else self.stage.store
        self.plan: CounterPlan = counter_plans.plan_of(
            counter_plans.window(60, pods=PODS), breaker=breaker, service=f"s-{name}", tag=f"s-{name}"
        )
        self.model = Model(breaker, now_us=START_US, evaluated_us=START_US - LATE_US, late_us=LATE_US)
        self.pods: dict[str, Pod] = {}
        self.moves: list[Move] = []
        self.generation = 0
        self.isolated: dict[str, IsolatedReplica] = {}
        self.stage.reports.clear()

    def run(self, call: Any) -> Any:
        return self.stage.runner.run(call)

    def take(self, transitions: Sequence[Transition]) -> None:
        self.moves += [convert_transition(move) for move in transitions]

    def view(self) -> BreakerView:
        view: BreakerView = self.run(self.store.snapshot(self.plan)).breaker
        return view

    def uid(self, back: int) -> str:
        return f"pod-{max(0, len(self.pods) - 1 - back)}"

    def find_known(self, uid: str) -> Pod | None:
        pod = self.pods.get(uid)
        return pod if pod is not None and not pod.is_refunded else None

    def replan(self, **changes: Any) -> None:
        """Change the policy, after a tick."""
        self.tick()
        breaker = replace(self.model.plan, **changes)
        self.pass_time_isolated()
        self.plan = replace(self.plan, breaker=breaker)
        for model in (self.model, *[isolated.model for isolated in self.isolated.values()]):
            model.plan = breaker
            model.settle()

    # Time

    @rule(gap_us=st.sampled_from([1, 3, 5, 10, 12, 41]))
    def advance_time(self, gap_us: int) -> None:
        self.clock.us += gap_us
        self.model.pass_time(self.clock.us)
        for isolated in self.isolated.values():
            isolated.model.pass_time(self.clock.us)

    def pass_time_isolated(self) -> None:
        for isolated in self.isolated.values():
            isolated.breakers.pass_time([self.plan], self.clock.us)

    @rule()
    def tick(self) -> None:
        self.take(self.run(self.store.tick([self.plan])))

    # Pods

    def ask(self, uid: str, source: str, pods: int, *, peek: bool = False) -> Receipt:
        request = Acquire(self.plan, "payments", uid, {"pods": pods}, source, peek=peek)
        receipt: Receipt = self.run(self.store.acquire(request))
        self.take(receipt.transitions)
        return receipt

    @rule(source=sources)
    def ask_for_pod(self, source: str) -> None:
        uid, is_admitted, generation = f"pod-{len(self.pods)}", self.model.can_admit(source), self.model.generation
        assert self.ask(uid, source, 1, peek=True).charged is False
        receipt = self.ask(uid, source, 1)
        assert (receipt.refused, receipt.charged) == (None if is_admitted else DeniedBy.BREAKER, is_admitted)
        if is_admitted:
            maker = source if self.model.plan.has_outcomes else ""
            self.pods[uid] = Pod(generation, maker, self.model.charge(uid, source))

    @rule(back=old_uids, source=sources)
    def repeat_pod(self, back: int, source: str) -> None:
        if self.find_known(self.uid(back)):
            assert self.ask(self.uid(back), source, 1).repeated

    @rule(source=sources)
    def deny_by_quota(self, source: str) -> None:
        is_admitted = self.model.can_admit(source)
        receipt = self.ask("greedy", source, PODS + 1)
        assert receipt.refused is (DeniedBy.QUOTA if is_admitted else DeniedBy.BREAKER)
        if is_admitted:
            self.model.record_quota_event(source)

    @rule(back=old_uids)
    def refund_pod(self, back: int) -> None:
        uid = self.uid(back)
        pod = self.find_known(uid)
        self.run(self.store.refund(self.plan, uid))
        if pod is not None:
            pod.is_refunded = True
            if pod.is_probe:
                self.model.give_back(uid)

    # Outcomes

    @rule(
        sums=st.lists(st.sampled_from([(1, 0), (0, 1), (0, 1), (3, 2), (0, 0)]), min_size=1, max_size=3),
        latency_us=st.sampled_from([0, 5, 9]),
        is_current=st.none() | st.just(0),
        age_us=ages,
    )
    def report_requests(
        self, sums: list[tuple[int, int]], latency_us: int, is_current: int | None, age_us: int
    ) -> None:
        generation = None if is_current is None else self.model.generation
        outcomes = [Outcomes(good, bad, latency_us, None, generation, age_us) for good, bad in sums]
        self.take(self.run(self.store.record_outcomes(self.plan, outcomes)))
        for outcome in outcomes:
            self.model.record_outcomes(outcome)

    @rule(back=old_uids, ok=st.booleans(), age_us=ages, generation=st.none() | st.integers(0, 4))
    def report_request_of_pod(self, back: int, ok: bool, age_us: int, generation: int | None) -> None:  # noqa: FBT001  a rule's arguments go by name
        uid = self.uid(back)
        outcome = Outcomes(int(ok), int(not ok), 6, uid, generation, age_us)
        pod = self.find_known(uid)
        self.take(self.run(self.store.record_outcomes(self.plan, [outcome])))
        self.model.record_outcomes(outcome, pod.source if pod is not None else "")

    @rule(back=old_uids, ok=st.booleans(), age_us=ages)
    def start_pod(self, back: int, ok: bool, age_us: int) -> None:  # noqa: FBT001  a rule's arguments go by name
        uid = self.uid(back)
        (settlement,), moves = self.run(self.store.record_starts(self.plan, [Start(uid, ok, 6, age_us)]))
        self.take(moves)
        assert settlement is self._find_expected(uid, ok=ok, age_us=age_us)

    def _find_expected(self, uid: str, *, ok: bool, age_us: int) -> Settlement:
        pod = self.find_known(uid)
        if pod is None:
            return Settlement.UNKNOWN
        if pod.is_settled:
            return Settlement.REPEATED
        pod.is_settled = True
        outcome = Outcomes(int(ok), int(not ok), 6, uid, pod.generation, age_us)
        return Settlement.COUNTED if self.model.record_outcomes(outcome, pod.source) else Settlement.STALE

    @rule(back=st.none() | old_uids, ahead=st.sampled_from([-2, -1, 1, 7]), ok=st.booleans())
    def report_stale_outcome(self, back: int | None, ahead: int, ok: bool) -> None:  # noqa: FBT001  a rule's arguments go by name
        generation = self.model.generation + ahead
        if generation in {lease.generation for lease in self.model.leases}:
            return
        self.tick()
        before = self.view()
        outcome = Outcomes(int(ok), int(not ok), 9, None if back is None else self.uid(back), generation)
        assert self.run(self.store.record_outcomes(self.plan, [outcome] * 3)) in ((), [])
        assert self.view() == before

    @rule(source=sources)
    def fail_pods_until_trip(self, source: str) -> None:
        rules = [rule for rule in (self.model.plan.error_rate, self.model.plan.latency) if rule is not None]
        for times in range(8):
            if self.model.state is not State.CLOSED or self.model.find_manual_state() is not None or not rules:
                break
            self.ask_for_pod(source if times < 7 else "")
            self.start_pod(0, ok=False, age_us=0)
            self.advance_time(5)

    @rule(source=st.sampled_from(["controller:a", "controller:e"]))
    def start_probes(self, source: str) -> None:
        for _ in range(self.model.plan.probes):
            if self.model.can_admit(source):
                self.ask_for_pod(source)
                self.start_pod(0, ok=True, age_us=0)

    @rule(ok=st.booleans(), is_newest=st.booleans())
    def start_probe(self, ok: bool, is_newest: bool) -> None:  # noqa: FBT001  a rule's arguments go by name
        if self.model.leases:
            uid = self.model.leases[-1 if is_newest else 0].uid
            self.start_pod(len(self.pods) - 1 - [*self.pods].index(uid), ok=ok, age_us=0)

    @rule()
    def wait_for_half_open(self) -> None:
        if self.model.state is State.OPEN:
            self.advance_time(max(0, self.model.open_until_us - self.clock.us))

    # Interventions

    @rule(intervention=interventions)
    def intervene(self, intervention: tuple[Any, ...]) -> None:
        match intervention:
            case ("force", state, for_us):
                self.replan(forcing=None if state is None else Forcing(state, self.clock.us + for_us, "INC-1"))
            case ("by hand", ago_us):
                self.apply_override(0 if ago_us is None else self.clock.us - ago_us)
            case ("guard", open_max):
                self.replan(open_max=open_max)
                self.tick()
            case ("suppress_quota_events",):
                self.run(self.store.suppress_quota_events(self.plan, ["controller:d"]))
                if self.model.plan.quota is not None:
                    self.model.suppress_quota_events(["controller:d"], EXCUSED_US)
            case (_, state, ahead, until_us, failed):
                self.tick()  # else no call would report due transitions
                self.isolated.clear()  # a proposal of unknown origin would interfere with them
                generation = max(0, self.model.generation + ahead)
                view = build_offered_view(state, generation, self.clock.us, until_us, tuple(failed))
                self.run(self.store.propose(self.plan, view))
                self.model.propose(view)

    def apply_override(self, reset_us: int = 0) -> None:
        self.take(self.run(self.store.apply_override(self.plan, reset_us)))
        self.model.apply_override(reset_us)

    # Partitions

    @rule(name=names_of_replicas)
    def isolate_replica(self, name: str) -> None:
        """Isolate a replica with its last view of the store."""
        if name in self.isolated:
            return
        self.tick()
        last = self.store.find_last_breaker(self.plan)
        breakers = LocalBreakers(lambda _: last, 1, LATE_US)
        self.isolated[name] = IsolatedReplica(breakers, self.model.cut_off(name))
        self.report_to_isolated(name, (0, 0), 0, 0)

    @rule(
        name=names_of_replicas,
        counts=st.sampled_from([(1, 0), (0, 1), (3, 2)]),
        latency_us=st.sampled_from([0, 9]),
        age_us=ages,
    )
    def report_to_isolated(self, name: str, counts: tuple[int, int], latency_us: int, age_us: int) -> None:
        if name in self.isolated:
            outcomes = Outcomes(*counts, latency_us, age_us=age_us)
            self.isolated[name].breakers.record_outcomes(self.plan, [outcomes], self.clock.us)
            self.isolated[name].model.record_outcomes(outcomes)

    @rule(name=names_of_replicas, source=sources)
    def ask_isolated(self, name: str, source: str) -> None:
        if name in self.isolated:
            breakers, model = self.isolated[name].breakers, self.isolated[name].model
            request = Acquire(self.plan, "payments", f"alone-{self.clock.us}", {"pods": 1}, source)
            judgement = breakers.judge(request, self.clock.us)
            assert judgement is not None
            assert judgement.admits is model.can_admit(source)
            if judgement.admits:
                breakers.lease_probe(request, self.clock.us)
                model.charge(request.uid, source)

    @rule(name=names_of_replicas, good=st.booleans())
    def decide_isolated(self, name: str, good: bool) -> None:  # noqa: FBT001  a rule's arguments go by name
        """Probe until the breaker closes, or fail until it trips."""
        for _ in range(6 if name in self.isolated else 0):
            model = self.isolated[name].model
            if good and model.state is State.OPEN:
                self.advance_time(max(0, model.open_until_us - self.clock.us))
            if good:
                self.ask_isolated(name, "controller:a")
            self.report_to_isolated(name, (1, 0) if good else (0, 3), 0 if good else 9, 0)
            self.advance_time(1 if good else 5)

    @rule(name=names_of_replicas)
    def reconnect_replica(self, name: str) -> None:
        """Propose the isolated decisions to the store; the result is known here at once."""
        if name not in self.isolated:
            return
        self.tick()
        self.pass_time_isolated()  # the plan may have changed
        breakers, model = self.isolated[name].breakers, self.isolated.pop(name).model
        self.run(breakers.propose_to(self.store, self.plan.key))
        assert not breakers.records
        model.plan = replace(model.plan, forcing=None)  # overrides are the leader's to apply
        model.settle()
        self.model.heal(model)
        assert strip_view(self.store.find_last_breaker(self.plan)) == self.model.view()

    # Invariants

    @invariant()
    def store_matches_model(self) -> None:
        type(self).steps += 1
        view = self.view()
        assert strip_view(view) == self.model.view()
        assert self.moves == self.model.moves[: len(self.moves)]
        assert view.probes_leased + view.probes_succeeded <= self.plan.breaker.probes  # type: ignore[union-attr]
        assert view.generation >= self.generation
        self.generation = view.generation
        for isolated in self.isolated.values():
            isolated_view = isolated.breakers.view(self.plan, self.clock.us)
            assert isolated_view is not None
            assert strip_view(isolated_view) == isolated.model.view()

    def teardown(self) -> None:
        """Wait, then let probes succeed: the breaker closes."""
        if not hasattr(self, "model"):
            return
        for name in sorted(self.isolated):
            self.reconnect_replica(name)
        self.replan(forcing=None)
        self.apply_override()
        self.advance_time(60)  # the intervals end
        if self.model.state is State.OPEN:
            self.advance_time(max(0, self.model.open_until_us - self.clock.us))
        assert self.view().state in {State.CLOSED, State.HALF_OPEN}
        self.advance_time(self.model.plan.probe_timeout_us)
        self.tick()
        assert self.view().probes_leased == 0
        while self.model.state is State.HALF_OPEN:
            before = self.model.generation, self.model.successes
            self.ask_for_pod("controller:a")
            self.start_pod(0, ok=True, age_us=0)
            assert (self.model.generation, self.model.successes) > before
        assert self.view().state is State.CLOSED
        assert self.moves == self.model.moves
        assert self.stage.reports == []


@pytest.fixture(scope="module")
def clock() -> HandClock:
    return HandClock()


@pytest.fixture(scope="module", params=STORES)
def stage(
    request: pytest.FixtureRequest, clock: HandClock, shared_redis: Callable[[str], RedisServer]
) -> Iterator[Stage]:
    with open_stage(request.param, clock, shared_redis, late_us=LATE_US) as on:
        yield on


def test_breaker_matches_its_model_in_any_order_of_events(
    stage: Stage, clock: HandClock, request: pytest.FixtureRequest
) -> None:
    class Staged(BreakerMachine):
        pass

    Staged.stage, Staged.clock = stage, clock
    examples = count_examples(stage.kind, EXAMPLES)
    run_state_machine_as_test(
        Staged, settings=settings(max_examples=examples, stateful_step_count=STEPS, deadline=None)
    )
    print(f"\n{request.node.callspec.id}: {Staged.steps} steps")  # noqa: T201  `make soak` prints it
    assert Staged.steps > examples


def test_proposed_decision_replaces_a_half_open_state_of_the_same_generation(stage: Stage, clock: HandClock) -> None:
    """A lost reset is proposed after an older trip, whose `openFor` has passed: both are of generation 2."""

    class Staged(BreakerMachine):
        pass

    Staged.stage, Staged.clock = stage, clock
    machine = Staged()
    machine.begin(
        breaker=plan_of(
            error_rate=None, latency=LatencyPlan(5, 10, 3, 1), quota=None, open_for_us=1, probes=1, probe_timeout_us=1
        )
    )
    machine.fail_pods_until_trip("controller:a")
    machine.intervene(("propose", State.CLOSED, 0, 0, []))
    machine.isolate_replica("one")
    assert strip_view(machine.store.find_last_breaker(machine.plan)) == machine.model.view()
    machine.store_matches_model()
    machine.teardown()
