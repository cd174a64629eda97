"""What may happen to a rollout, told by what has happened: plain notes of times, by hash, and no state machine.

It sees each state that was accepted, in order, with who wrote it and when, and what that writer saw.
"""

from dataclasses import dataclass, field

from webhook.core.rollout.state import InForce, Phase, RolloutState

SKEW_US = 5_000_000
"""Clocks of two leaders, whole seconds and the way of a state together are off by no more."""


@dataclass
class RolloutModel:
    """`durations_us`: how long shadow and each step last; `lasts_us`: how long a symptom, before it takes one back."""

    durations_us: tuple[int, ...]
    lasts_us: int
    state: RolloutState | None = None
    taken_back: set[str] = field(default_factory=set)
    """Policies that were taken back, and that nobody has freed."""
    put_by_hand: set[str] = field(default_factory=set)
    """Policies that a person put into force."""
    entered_us: int = 0
    """When the candidate entered its shadow or its present step, or a person let it go on."""
    stage: int = -1
    """Of a candidate: 0 in shadow, then the number of its step from 1; -1 without."""
    calm_us: int = 0
    """When a leader last saw nothing above."""

    def note(self, new: RolloutState, at_us: int, by: str, wished: str, *, is_above: bool | None) -> None:
        """Check an accepted state against what was before. `is_above`: what its leader saw, None if nothing."""
        old, self.state = self.state, new
        stage = -1 if new.phase is Phase.STABLE else 0 if new.phase is Phase.SHADOW else new.step + 1
        rejected = {rejection.hash for rejection in new.rejected}
        if by == "leader":
            self._check_leader(old, new, stage, at_us, wished, is_above=is_above)
        elif by == "promote":
            self.put_by_hand.add(new.stable)
        elif by == "rollback":
            self.put_by_hand.add(new.stable)
            assert new.pinned is not None, "rolled back, and not pinned"
            assert new.phase is Phase.STABLE, "rolled back, and still tried"
        elif by == "retry":
            self.taken_back -= {wished}
            if old is not None and old.paused is not None:
                self.entered_us = at_us  # its step begins again
        self.taken_back |= rejected
        freed = self.taken_back - rejected
        assert not freed or by in {"retry", "rollback"}, f"{by} has freed {freed}"
        self.taken_back = set(rejected)
        assert new.candidate not in rejected or not new.candidate, "a policy that was taken back is tried"
        assert new.stable not in rejected or new.stable in self.put_by_hand, "a policy that was taken back is in force"
        if stage != self.stage or (old is not None and old.candidate != new.candidate):
            self.stage, self.entered_us = stage, at_us
            self.calm_us = at_us
        self.note_round(at_us, is_above=is_above)

    def _check_leader(
        self, old: RolloutState | None, new: RolloutState, stage: int, at_us: int, wished: str, *, is_above: bool | None
    ) -> None:
        if old is None:
            return
        assert old.pinned is None or new.stable == old.stable, "the pinned policy was replaced"
        assert new.pinned is None or not new.candidate, "a pin does not hold back a candidate"
        assert new.pinned in {None, old.pinned}, "a leader pins nothing"
        assert new.paused == old.paused, "a leader pauses nothing"
        if new.candidate and new.candidate != old.candidate:
            assert new.candidate == wished, "the candidate is not what is wished"
            assert stage == 0, f"a candidate begins in stage {stage}"
            assert old.paused is None, "a candidate begins while paused"
        elif new.candidate and stage != self.stage:
            assert stage == self.stage + 1, f"from stage {self.stage} to {stage}"
            self._check_goes_on(old, at_us, is_above=is_above)
        if new.stable != old.stable and not old.governed:
            assert new.stable == wished, f"{new.stable} is in force, and {wished} is wished"
        elif new.stable != old.stable:
            assert new.stable == old.candidate, f"{new.stable} is in force, and was no candidate"
            assert self.stage == len(self.durations_us) - 1, f"promoted after stage {self.stage}"
            self._check_goes_on(old, at_us, is_above=is_above)
        if len(new.rejected) > len(old.rejected):
            assert is_above, "taken back without a symptom"
            assert at_us - self.calm_us >= self.lasts_us - SKEW_US, "taken back too soon"

    def _check_goes_on(self, old: RolloutState, at_us: int, *, is_above: bool | None) -> None:
        assert old.paused is None, "it goes on while paused"
        assert self.stage == 0 or is_above is False, "it goes on with a symptom, or without data"
        passed_us = at_us - self.entered_us
        assert passed_us >= self.durations_us[self.stage] - SKEW_US, f"stage {self.stage} lasted {passed_us} us"

    def note_round(self, at_us: int, *, is_above: bool | None) -> None:
        """Note what a leader saw who had nothing to change."""
        if is_above is False:
            self.calm_us = at_us

    def check_in_force(self, found: InForce, seen: RolloutState) -> None:
        """Check what a replica puts into force by a state that it has seen."""
        rejected = {rejection.hash for rejection in seen.rejected}
        assert found.candidate not in rejected or not found.candidate, "a stopped candidate is in force"
        assert found.stable not in rejected or found.stable in self.put_by_hand, "a rejected policy is in force"
        if seen.pinned is not None:
            assert found == InForce(seen.stable), "another policy than the pinned one is in force"
        if seen.governed:
            assert found.stable == seen.stable, "a change is in force that has to wait"
        assert not found.candidate or found.candidate == seen.candidate
