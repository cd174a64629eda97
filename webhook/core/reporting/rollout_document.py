"""Rollout in the status documents: what a process has in force, what it follows, and what its shadow has found."""

from typing import Any

from msgspec import to_builtins

from webhook.core.rollout.counting import ShadowTotals
from webhook.core.rollout.state import RolloutView


def render_rollout(view: RolloutView | None, shadow: ShadowTotals | None = None) -> dict[str, Any] | None:
    """Return the rollout; null where there is none. `shadow`: of this process, in its shadow phase."""
    if view is None or not view.is_followed:
        return None
    state = view.state
    return {
        "stable": view.stable or None,
        "candidate": view.candidate or None,
        "phase": None if state is None else state.phase,
        "step": state.step if state is not None and state.candidate else None,
        "since": (state.since or None) if state is not None else None,
        "waitsFor": (state.waits_for or None) if state is not None else None,
        "paused": None if state is None else to_builtins(state.paused),
        "pinned": None if state is None else to_builtins(state.pinned),
        "rejected": [] if state is None else list(to_builtins(state.rejected[::-1])),
        "problem": view.problem or None,
        "shadow": None if shadow is None else _render_shadow(shadow),
    }


def _render_shadow(shadow: ShadowTotals) -> dict[str, Any]:
    return {
        "judged": shadow.judged,
        "leftOut": shadow.left_out,
        "differences": [
            {"service": service or None, "difference": difference, "pods": pods}
            for (service, difference), pods in sorted(shadow.differences.items())
        ],
    }
