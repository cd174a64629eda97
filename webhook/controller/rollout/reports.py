"""Inputs of the rollout's leader, callbacks for what it finds, and its intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from webhook.controller.rollout.figure_reader import FigureReader
from webhook.core.policy.model import LoadedPolicy
from webhook.core.rollout.changes import RolloutChange
from webhook.core.rollout.state import RolloutState
from webhook.core.rollout.symptoms import SymptomReading
from webhook.ports import PolicyRevisions, RolloutStateStore


@dataclass(frozen=True, slots=True)
class WishedPolicy:
    """The newest valid policy that people wish, with the text of its document."""

    raw: bytes
    loaded: LoadedPolicy


@dataclass(frozen=True, slots=True)
class RolloutInputs:
    """What the leader reads. `in_force`: what this process has in force, which may lag behind the state."""

    states: RolloutStateStore
    revisions: PolicyRevisions
    wished: Callable[[], WishedPolicy | None]
    in_force: Callable[[], LoadedPolicy | None]
    figures: FigureReader
    now_us: Callable[[], int]
    """The wall clock, by which the state's times are read."""


@dataclass(frozen=True, slots=True)
class RolloutReports:
    """Callbacks. `on_round` receives the state, the wished policy, and the symptoms; `on_end` follows the last one."""

    on_change: Callable[[RolloutChange], None]
    on_round: Callable[[RolloutState, str, Sequence[SymptomReading]], None]
    on_trouble: Callable[[str], None]
    on_over: Callable[[str], None]
    on_end: Callable[[], None]


@dataclass(frozen=True, slots=True)
class RolloutTiming:
    """Intervals of the leader."""

    round_seconds: float = 1.0
    pause_seconds_max: float = 10.0
