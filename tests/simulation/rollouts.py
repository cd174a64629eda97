"""Rollouts: leaders that follow each other or overlap, people with commands, and replicas that hear late.

The state is one object that is replaced only as it was read. At each step: what is accepted may follow what was before,
and no replica has a policy in force that the state it knows has stopped. In the end all have the same in force.
"""

from collections.abc import Callable

import msgspec

from tests.simulation.rollout_model import RolloutModel
from tests.simulation.world import SECOND_US, Fault, Simulation, World
from webhook.core.kubernetes.quantity import convert_amount
from webhook.core.kubernetes.timestamps import format_rfc3339
from webhook.core.policy_fields.rollout import Rollout
from webhook.core.rollout import commands
from webhook.core.rollout.advance import Facts, advance
from webhook.core.rollout.state import Intervention, RolloutState, decide_in_force, decode_state, encode_state
from webhook.core.rollout.symptoms import Figures, Share

_STANZA = {
    "shadow": {"for": "30s"},
    "canary": {"steps": [{"namespaces": ["a"], "for": "20s"}, {"percent": 10, "for": "40s"}]},
    "rollback": {"pending": {"for": "15s", "minPods": 1}},
}
_ROLLOUT = msgspec.convert(_STANZA, Rollout, dec_hook=convert_amount)
_DURATIONS_US = (30 * SECOND_US, 20 * SECOND_US, 40 * SECOND_US)
_HASHES = tuple(digit * 16 for digit in "0123456")
_CALM, _BAD = (
    Figures(Share(part, 100), part, Share(0, 100), Share(0, 100), Share(0, 100), Share(0, 100)) for part in (0, 50)
)
_BLIND = Figures()
_UNGOVERNED = _HASHES[6]
"""Has no rollout: its successor is in force at once."""


def governs(policy_hash: str) -> bool:
    return policy_hash != _UNGOVERNED


class _Replica:
    """A server: what it has heard of the wish and of the state; messages of one watch keep their order."""

    def __init__(self) -> None:
        self.wished, self.version = _HASHES[0], 0
        self.state: RolloutState | None = None


class Rollouts(Simulation):
    """All policies have the same rollout. `version` counts the states that were accepted."""

    name = "rollouts"

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.model = RolloutModel(_DURATIONS_US, 15 * SECOND_US)
        self.wished, self.figures, self.version = _HASHES[0], _CALM, 0
        self.text = ""
        self.replicas = (_Replica(), _Replica(), _Replica())
        self.term = 0
        self.has_ended = False
        for act in (self._lead, self._wish, self._change_figures, self._command):
            world.do_after(0, act)

    def _read(self) -> RolloutState | None:
        return decode_state(self.text) if self.text else None

    def _write(self, new: RolloutState, version: int, by: str, *, wished: str, is_above: bool | None = None) -> None:
        """Accept a state if the present one is still that which its writer read."""
        if version != self.version:
            return
        self.text, self.version = encode_state(new), self.version + 1
        self.model.note(new, self.world.now_us, by, wished, is_above=is_above)
        for replica in self.replicas:
            self.world.do_after(self.world.draw_delay_us(), self._hear, replica, self.version, new)

    # --- leaders ---

    def _lead(self) -> None:
        """Begin a term. The leader before may act on what it has read, once more."""
        self.term += 1
        skew_us = self.world.random.randrange(2 * SECOND_US)
        self.world.do_after(0, self._round, self.term, skew_us if Fault.CLOCK in self.world.faults else 0)

    def _round(self, term: int, skew_us: int) -> None:
        if term != self.term:
            return
        state = self._read()
        is_above = None if self.figures is _BLIND else self.figures is _BAD
        facts = Facts(self.wished, wished_governs=governs(self.wished), figures=self.figures)
        rollout = _ROLLOUT if state is not None and governs(state.stable) else None
        new = advance(state, rollout, facts, self.world.now_us + skew_us)
        if new == state:
            self.model.note_round(self.world.now_us, is_above=is_above)
        elif new is not None:
            late_us = self.world.draw_delay_us() if self.world.random.random() < 0.2 else 0
            keywords = self.version, self.wished, is_above
            self.world.do_after(min(late_us, SECOND_US), self._write_round, new, *keywords)
        if self.world.strikes(Fault.CRASH, 0.02):
            self.world.do_after(self.world.draw_delay_us(), self._lead)
            return
        self.world.do_after(SECOND_US, self._round, term, skew_us)

    def _write_round(self, new: RolloutState, version: int, wished: str, is_above: bool | None) -> None:  # noqa: FBT001  of the agenda
        self._write(new, version, "leader", wished=wished, is_above=is_above)

    # --- people, and what the candidate does ---

    def _wish(self) -> None:
        draw = self.world.random
        self.wished = draw.choice(_HASHES)
        for replica in self.replicas:
            self.world.do_after(self.world.draw_delay_us(), self._hear_wish, replica, self.wished)
        if not self.has_ended:
            self.world.do_after(draw.choice((5, 60, 200)) * SECOND_US, self._wish)

    def _change_figures(self) -> None:
        draw = self.world.random
        self.figures = draw.choice((_CALM, _CALM, _CALM, _BAD, _BLIND))
        if not self.has_ended:
            self.world.do_after(draw.choice((3, 10, 20, 60)) * SECOND_US, self._change_figures)

    def _command(self) -> None:
        draw, state = self.world.random, self._read()
        name = draw.choice(("pause", "retry", "retry", "promote", "rollback"))
        if state is not None:
            self._send_command(name, state)
        if not self.has_ended:
            self.world.do_after(draw.choice((2, 20, 90)) * SECOND_US, self._command)

    def _send_command(self, name: str, state: RolloutState) -> None:
        """Read, decide and write as a person's client does; somebody else may have written meanwhile."""
        wished = self.wished
        action = Intervention("INC-1", "ada", format_rfc3339(self.world.now_us))
        targets: dict[str, Callable[[], RolloutState]] = {
            "pause": lambda: commands.pause(state, wished, action),
            "retry": lambda: commands.retry(state, wished, action.at),
            "promote": lambda: self._promote(state, wished),
            "rollback": lambda: self._roll_back(state, wished, action),
        }
        try:
            new = targets[name]()
        except commands.RefusedCommandError:
            return
        late_us = min(self.world.draw_delay_us(), SECOND_US)
        self.world.do_after(late_us, self._write_command, new, self.version, name, wished)

    def _promote(self, state: RolloutState, wished: str) -> RolloutState:
        promoted = commands.choose_promoted(state, wished)
        return commands.promote(state, promoted, governed=governs(promoted))

    def _roll_back(self, state: RolloutState, wished: str, action: Intervention) -> RolloutState:
        target = commands.choose_rollback(state, wished, {found: True for found in _HASHES if found != wished})
        return commands.roll_back(*(state, wished, target, action), governed=governs(target))

    def _write_command(self, new: RolloutState, version: int, name: str, wished: str) -> None:
        self._write(new, version, name, wished=wished)

    # --- replicas ---

    def _hear(self, replica: _Replica, version: int, state: RolloutState) -> None:
        if version > replica.version:  # a watch keeps the order
            replica.version, replica.state = version, state

    def _hear_wish(self, replica: _Replica, wished: str) -> None:
        replica.wished = wished

    def check(self) -> None:
        for replica in self.replicas:
            if replica.state is not None:
                self.model.check_in_force(decide_in_force(replica.wished, replica.state), replica.state)

    def settle(self) -> None:
        """Check that a good candidate that is wished, and that nothing holds, is in force everywhere in the end."""
        world = self.world
        self.has_ended, world.faults = True, frozenset()
        world.run_until(world.now_us + 250 * SECOND_US)
        self.figures = _CALM
        state = self._read()
        if state is None:
            return
        if state.holds_back(self.wished) or state.paused is not None:
            freed = commands.retry(state, self.wished, format_rfc3339(world.now_us))
            self._write(freed, self.version, "retry", wished=self.wished)
        for replica in self.replicas:
            replica.wished = self.wished
        self._lead()
        world.run_until(world.now_us + sum(_DURATIONS_US) + 60 * SECOND_US)
        state = self._read()
        assert state is not None
        assert state.stable == self.wished, f"{self.wished} is wished, nothing holds it, and the state is {state}"
        found = {decide_in_force(replica.wished, replica.state) for replica in self.replicas}
        assert len(found) == 1, f"replicas differ: {found}"
