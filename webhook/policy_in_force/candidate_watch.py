"""Watch of a candidate: what counts and compares takes part only while there is one."""

from collections.abc import Callable

from webhook.core.rollout.state import Phase, RolloutView
from webhook.policy_in_force.shadow import Shadow
from webhook.ports import Observer, PartialObserver

Observers = tuple[Callable[[Observer], None], Callable[[Observer], None]]
"""Functions that let an observer join, and leave."""


class CandidateWatch(PartialObserver):
    """Lets `counts` join while there is a candidate, and `shadow` while that is in its shadow phase.

    A review without them costs nothing for them.
    """

    def __init__(self, observers: Observers, counts: Observer, shadow: Shadow) -> None:
        self._join, self._leave = observers
        self._counts = counts
        self._shadow = shadow

    def on_rollout_changed(self, former: RolloutView, now: RolloutView) -> None:
        if _is_shadow(now) and former.candidate != now.candidate:
            self._shadow.begin()
        for observer, was_wanted, is_wanted in (
            (self._counts, bool(former.candidate), bool(now.candidate)),
            (self._shadow, _is_shadow(former), _is_shadow(now)),
        ):
            if is_wanted and not was_wanted:
                self._join(observer)
            elif was_wanted and not is_wanted:
                self._leave(observer)


def _is_shadow(view: RolloutView) -> bool:
    return bool(view.candidate) and view.state is not None and view.state.phase is Phase.SHADOW
