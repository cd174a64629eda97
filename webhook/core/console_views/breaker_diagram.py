"""Diagram of a breaker's states: places of the states and arrows between them, in the coordinates of an SVG."""

from typing import NamedTuple

from webhook.core.console_views.cell import Cells, LiveCell
from webhook.core.console_views.countdown import NO_COUNTDOWN, build_countdown
from webhook.core.console_views.status_document import BreakerStatus

_WIDTH, _HEIGHT = 400, 262
_STATE_WIDTH, _STATE_HEIGHT = 116, 46


class DiagramState(NamedTuple):
    """One state: its upper left corner."""

    name: str
    words: str
    x: int
    y: int


class DiagramTransition(NamedTuple):
    """A transition as the path of its line, and its cause as text at a place."""

    path: str
    words: str = ""
    x: int = 0
    y: int = 0


_STATES = (
    DiagramState("CLOSED", "Closed", 2, 16),
    DiagramState("OPEN", "Open", 282, 16),
    DiagramState("HALF_OPEN", "Half open", 142, 118),
    DiagramState("FORCED_CLOSED", "Held closed", 2, 212),
    DiagramState("FORCED_OPEN", "Held open", 282, 212),
)
_ARROWS = (
    DiagramTransition("M118 39 H276", "a trigger fires", 200, 32),
    DiagramTransition("M350 62 Q346 140 264 142", "openFor passed", 320, 160),
    DiagramTransition("M142 142 Q66 140 60 68", "probes succeed", 80, 160),
    DiagramTransition("M216 118 Q226 74 278 56", "a probe fails", 184, 90),
)
_BY_HAND = (DiagramTransition("M11 64 V206"), DiagramTransition("M389 64 V206"))
"""An override holds a state; when it ends, the breaker is closed."""


class Diagram(NamedTuple):
    """The whole picture."""

    width: int = _WIDTH
    height: int = _HEIGHT
    state_width: int = _STATE_WIDTH
    state_height: int = _STATE_HEIGHT
    states: tuple[DiagramState, ...] = _STATES
    arrows: tuple[DiagramTransition, ...] = _ARROWS
    by_hand: tuple[DiagramTransition, ...] = _BY_HAND


DIAGRAM = Diagram()


def list_diagram_cells(breaker: BreakerStatus, time: str) -> Cells:
    """Return for each state whether it is the present one, and its second line: a countdown or probes."""
    cells: dict[str, LiveCell] = {}
    for box in _STATES:
        is_now = box.name == breaker.state
        cells[f"diagram/{box.name}"] = LiveCell(attributes={"data-state": box.name if is_now else None})
        line = NO_COUNTDOWN
        if is_now and box.name == "HALF_OPEN":
            line = LiveCell(
                f"{breaker.probes.succeeded} of {breaker.probes.needed or '?'} probes", {"data-until": None}
            )
        elif is_now:
            line = build_countdown(breaker.open_until, time)
        cells[f"diagram/{box.name}/line"] = line
    return cells
