"""Policy page of the console: what is in force, the history, the difference of two policies, and the rollout."""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

from webhook.core.console_views.cell import Cells, LiveCell
from webhook.core.console_views.status_document import PolicyLine, ServerPage
from webhook.core.reporting.candidate_document import RolloutDocument, StoredRollout
from webhook.core.reporting.rollout_reports import RevisionEntry
from webhook.core.rollout.commands import describe_intervention, describe_rejection
from webhook.core.rollout.progress import describe_phase

_RATIO = re.compile(r'^podgate_rollout_symptom_ratio\{symptom="(\w+)"\} (\S+)$', re.MULTILINE)
_PERCENT = 100
_SYMPTOM_WORDS = {
    "pending": "Pods Pending",
    "denied": "Pods denied, more than in force",
    "startErrors": "Starts failed, more than in force",
}


class SymptomFigure(Struct, frozen=True, rename="camel"):
    """One symptom of the candidate against its threshold; `percent` is None while it is not known."""

    name: str
    text: str
    percent: float | None
    threshold_percent: int
    duration: str
    above_since: str = ""

    @property
    def level(self) -> str:
        """How near to its threshold it is."""
        if self.percent is None or self.percent <= 0:
            return "low"
        return "full" if self.percent > self.threshold_percent else "low" if not self.above_since else "high"


class PolicyComparison(Struct, frozen=True):
    """What changes between two policies, as `podgate policy diff` says it; `problem`: why that is not known."""

    before: str
    after: str
    lines: tuple[str, ...] = ()
    problem: str = ""


class PolicyPage(Struct, frozen=True, rename="camel"):
    """The policy at one moment."""

    time: str
    policy: PolicyLine
    entries: tuple[RevisionEntry, ...]
    rollout: RolloutDocument | None
    obstacle: str
    """Why there is no history or no rollout, with the next step; "" if both are known."""
    figures: tuple[SymptomFigure, ...] = ()
    compared: PolicyComparison | None = None
    warnings: tuple[str, ...] = ()

    def list_order(self) -> Sequence[str]:
        shown = [f"{entry.hash} {','.join(entry.roles)}" for entry in self.entries]
        return [*shown, *self.policy.errors, self.obstacle, *self.warnings, *self._list_states()]

    def _list_states(self) -> Iterator[str]:
        if self.rollout is not None:
            yield self.rollout.candidate
            yield self.rollout.phase
            yield str(self.rollout.state.step)

    def list_cells(self) -> Cells:
        """Return the cells of the page."""
        cells = {"time": LiveCell(self.time[11:19] + " UTC")}
        if self.rollout is not None:
            waits = self.rollout.state.waits_for
            cells["waits"] = LiveCell(waits or "nothing", {"data-state": "WAITING" if waits else None})
        for figure in self.figures:
            known = "no data" if figure.percent is None else f"{figure.percent:.1f} %"
            since = f"since {figure.above_since[11:19]} UTC" if figure.above_since else "not above"
            share = 0 if not figure.threshold_percent else (figure.percent or 0) / figure.threshold_percent
            width = str(max(0, min(_PERCENT, round(_PERCENT * share))))
            cells[f"{figure.name}/now"] = LiveCell(known)
            cells[f"{figure.name}/gauge"] = LiveCell(attributes={"width": width, "data-state": figure.level})
            cells[f"{figure.name}/since"] = LiveCell(since)
        return cells

    @property
    def headline(self) -> str:
        """The rollout in a sentence."""
        found = self.rollout
        if found is None:
            return "There is no rollout to show."
        state = found.state
        if found.rejection is not None:
            why = describe_rejection(found.rejection)
            return f"{found.wished}, the wished policy, was taken back: {why}. {found.in_force} is in force."
        if state.pinned is not None:
            return f"{found.in_force} is pinned: {describe_intervention(state.pinned)}."
        if found.candidate:
            return f"{found.candidate} is tried: {describe_phase(state, found.steps)}."
        if found.wished and found.wished != found.in_force:
            return f"{found.wished} is wished, and waits for the leader to begin."
        return f"No candidate: {found.in_force} is wished and in force."


def build_policy(
    server: ServerPage,
    stored: StoredRollout | None,
    obstacle: str,
    metrics: str = "",
    compared: PolicyComparison | None = None,
) -> PolicyPage:
    """Return the page. Without `stored`, `obstacle` says why; `metrics`: of the process that leads the rollout."""
    if stored is None:
        return PolicyPage(server.time, server.policy, (), None, obstacle, compared=compared)
    shown = stored.rollout
    ratios = {name: float(ratio) for name, ratio in _RATIO.findall(metrics)}
    figures = () if shown is None else tuple(_list_figures(shown, ratios))
    missing = stored.obstacle or obstacle
    return PolicyPage(server.time, server.policy, stored.entries, shown, missing, figures, compared, stored.warnings)


def _list_figures(shown: RolloutDocument, ratios: Mapping[str, float]) -> Iterator[SymptomFigure]:
    for symptom in shown.symptoms:
        ratio = ratios.get(symptom.name)
        yield SymptomFigure(
            symptom.name,
            _SYMPTOM_WORDS.get(symptom.name, symptom.name),
            None if ratio is None else round(_PERCENT * ratio, 1),
            symptom.threshold_percent,
            symptom.duration,
            symptom.above_since,
        )
