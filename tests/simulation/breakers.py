"""A breaker that servers, reporters and operators reach by messages: at each step it is what the simple model is.

Time has the model's scale, microseconds. Every transition is in the table, and each increments the generation.
"""

from random import Random
from typing import ClassVar

from tests.core.breaker.random_walks import Operation, Pair, convert_transition, strip_view
from tests.core.breaker_model import plan_of
from tests.simulation.world import BEGIN_US, Fault, Simulation, World
from webhook.core.breaker import (
    TRANSITIONS,
    BreakerPlan,
    ErrorRatePlan,
    LatencyPlan,
    QuotaEventPlan,
    State,
    UnschedulablePlan,
)

_SOURCES = ("a", "b", "c", "d", "user:e", "", "x", "y", "z")
_CHANGES = {(old, new) for (old, _), new in TRANSITIONS.items()}
_CALM = ("force", "guard", "propose")
"""These do not advance a breaker by themselves."""


def draw_plan(draw: Random) -> BreakerPlan:
    errors = (
        None,
        ErrorRatePlan(draw.choice((50, 100)), 10, draw.randint(1, 3), draw.randint(1, 2)),
        UnschedulablePlan(1, 10, 1, 1, 300),
    )
    slow = LatencyPlan(5, draw.choice((10, 15)), draw.randint(1, 3), draw.randint(1, 2))
    denied = QuotaEventPlan(draw.randint(1, 3), 25, draw.random() < 0.5)
    return plan_of(
        error_rate=draw.choice(errors),
        latency=draw.choice((None, slow)),
        quota=draw.choice((None, denied, denied)),
        open_for_us=draw.choice((1, 10, 40)),
        probes=draw.randint(1, 3),
        probe_timeout_us=draw.choice((1, 20)),
    )


class Breakers(Simulation):
    """One breaker. A server that crashes reports nothing of the Pods that it has admitted."""

    name = "breakers"
    unit_us: ClassVar[int] = 20

    def __init__(self, world: World) -> None:
        super().__init__(world)
        draw = world.random
        self.pair = Pair.from_plan(draw_plan(draw), draw.choice((0, 3, 14)))
        self.generation = self.moves = self.pods = 0
        self.epoch = 0
        """A crash ends it: what servers would have reported later is lost."""
        self._is_failing = True
        for act in (self._ask, self._deny, self._report, self._operate):
            world.do_after(draw.randrange(20), act)

    # --- servers ---

    def _ask(self) -> None:
        """Ask for a Pod; if it is charged, its outcome is reported later."""
        draw = self.world.random
        self.pods += 1
        uid = draw.choice(("a", "b", "c", "d", f"u{self.pods}"))
        source = draw.choice(_SOURCES)
        self.world.send(self._charge, uid, source, self.epoch)
        self.world.do_after(draw.choice((1, 3, 8, 30)), self._ask)

    def _charge(self, uid: str, source: str, epoch: int) -> None:
        self._apply(("charge", uid, source))
        if self.world.random.random() < 0.15:
            self.world.send(self._give_back, uid)
        elif epoch == self.epoch:
            at_us, generation = self.pair.model.now_us, self.pair.model.generation
            self.world.send(self._settle, uid, source, generation, at_us)

    def _give_back(self, uid: str) -> None:
        self._apply(("give back", uid))

    def _settle(self, uid: str, source: str, generation: int, at_us: int) -> None:
        draw, model = self.world.random, self.pair.model
        ok = draw.random() < (0.3 if self._is_failing else 0.9)
        offset, age_us = generation - model.generation, draw.choice((0, 0, model.now_us - at_us))
        outcomes = ((int(ok), int(not ok)), draw.choice((0, 5, 9)), uid, offset, age_us, source)
        self._apply(("record_outcomes", *outcomes))

    def _report(self) -> None:
        """Report sums without uids, as a mesh does, late or of the future."""
        draw = self.world.random
        counts = draw.choice(((1, 0), (0, 1), (0, 1), (3, 2), (0, 0)))
        age_us, offset = draw.choice((0, 0, 1, 7, 12, -3)), draw.choice((None, None, 0, -1))
        outcomes = (counts, draw.choice((0, 5, 9)), None, offset, age_us, draw.choice(_SOURCES))
        self.world.send(self._apply, ("record_outcomes", *outcomes))
        self.world.do_after(draw.choice((1, 5, 20)), self._report)

    def _deny(self) -> None:
        draw = self.world.random
        self.world.send(self._apply, ("refused", draw.choice(_SOURCES)))
        self.world.do_after(draw.choice((1, 3, 15, 60)), self._deny)

    # --- operators, and other replicas ---

    def _operate(self) -> None:
        draw, model = self.world.random, self.pair.model
        self._is_failing = draw.random() < 0.5
        if self.world.strikes(Fault.CRASH, 0.2):
            self.epoch += 1
        forced = draw.choice((None, State.FORCED_OPEN, State.FORCED_CLOSED))
        offered = draw.choice((State.CLOSED, State.OPEN, State.HALF_OPEN, State.FORCED_OPEN))
        operations: tuple[Operation, ...] = (
            ("force", forced, draw.randrange(-5, 40)),
            ("by hand", draw.choice((None, None, -3, 0, 9))),
            ("suppress_quota_events", draw.sample(_SOURCES, draw.randrange(2))),
            ("propose", offered, draw.randrange(-1, 3), draw.randrange(-9, 31), draw.choice(((), ("controller:a",)))),
            ("guard", draw.choice((None, 0, 2)), draw.randrange(4)),
        )
        chosen = draw.choice(operations)
        if chosen[0] != "propose" or model.generation < 1_000:
            self.world.send(self._apply, chosen)
        self.world.do_after(draw.choice((5, 20, 80)), self._operate)

    # --- the comparison ---

    def _apply(self, operation: Operation) -> None:
        now_us = self.world.now_us - BEGIN_US
        self.pair.model.pass_time(now_us)
        if operation[0] in _CALM:
            self.pair.breaker.find_state(now_us)
        self.pair.apply(operation)

    def check(self) -> None:
        breaker, model = self.pair
        now_us = self.world.now_us - BEGIN_US
        model.pass_time(now_us)
        view = strip_view(breaker.view(now_us))
        assert view == model.view(), f"{view}\nand not\n{model.view()}"
        assert view.probes_leased + view.probes_succeeded <= breaker.plan.probes
        breaker.find_state(now_us)
        new = breaker.moves[self.moves :]
        assert [convert_transition(move) for move in new] == model.moves[self.moves :]
        self.moves += len(new)
        for move in new:
            assert not move.is_change or (move.old, move.new) in _CHANGES, f"no transition of the table: {move}"
            assert not move.is_change or move.generation > self.generation, f"no new generation: {move}"
            self.generation = max(self.generation, move.generation)
