"""Metrics of the policy's rollout as this process follows it, of its shadow, and of the policy's parts."""

from collections.abc import Callable, Mapping, Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row
from webhook.adapters.metrics.family import Family
from webhook.core.breaker import BreakerOwner
from webhook.core.rollout.counting import ShadowTotals
from webhook.core.rollout.state import Phase, RolloutView
from webhook.ports import PartialObserver


class RolloutMetrics(PartialObserver):
    """Gauges of the last change. Without a rollout there are no series."""

    def __init__(
        self, forget_services: Callable[[], None], set_variants: Callable[[frozenset[BreakerOwner]], None]
    ) -> None:
        """Create it; `forget_services` is called before other services have series, `set_variants` with variants."""
        self._forget_services = forget_services
        self._set_variants = set_variants
        self._view = RolloutView()
        self.added = self._view.added
        """Services that have series although the policy in force lacks them."""
        self._shadow: Callable[[], ShadowTotals] | None = None
        self._refused_parts: tuple[str, ...] = ()

    def on_rollout_changed(self, former: RolloutView, now: RolloutView) -> None:  # noqa: ARG002  the log reports the change
        if now.added != self.added:
            self._forget_services()
        self._view, self.added = now, now.added
        self._set_variants(now.added_variants)

    def on_policy_parts_checked(self, problems: Mapping[str, Sequence[str]]) -> None:
        self._refused_parts = tuple(problems)

    def watch_shadow(self, totals: Callable[[], ShadowTotals]) -> None:
        """Export the totals of a server's shadow."""
        self._shadow = totals

    def rows(self) -> Sequence[tuple[Family, list[Row]]]:
        view, state = self._view, self._view.state
        roles = [(view.stable, "stable"), (view.candidate, "candidate")] if view.is_followed else []
        phases = Phase if state is not None else ()
        shadow = self._shadow() if self._shadow is not None and view.is_followed else None
        return [
            (families.POLICY_PART_REFUSED, [((part,), 1.0) for part in self._refused_parts]),
            (families.ROLLOUT_POLICY, [((name, role), 1.0) for name, role in roles if name]),
            (
                families.ROLLOUT_PHASE,
                [((phase,), float(state is not None and state.phase is phase)) for phase in phases],
            ),
            (families.ROLLOUT_STEP, [((), float(state.step))] if state is not None else []),
            (families.ROLLOUT_PINNED, [((), float(state.pinned is not None))] if state is not None else []),
            (families.ROLLOUT_FOLLOWED, [((), float(not view.problem))] if view.is_followed else []),
            (
                families.SHADOW_REVIEWS,
                [] if shadow is None else [(("judged",), float(shadow.judged)), (("leftOut",), float(shadow.left_out))],
            ),
            (
                families.SHADOW_DIFFERENCES,
                [] if shadow is None else [(key, float(pods)) for key, pods in shadow.differences.items()],
            ),
        ]
