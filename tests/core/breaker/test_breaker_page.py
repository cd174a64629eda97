"""docs/breaker.md: its diagram is generated from the transition table.

--refresh-goldens writes the diagram anew: read the difference before it is kept.
"""

import re
from pathlib import Path

from webhook.core.breaker import TRANSITIONS, State

PAGE = Path(__file__).parents[3] / "docs" / "breaker.md"
BLOCK = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)


def render_diagram() -> str:
    """Return the table as a diagram, in its own order."""
    moves = [f"    {old} --> {new}: {cause.value}" for (old, cause), new in TRANSITIONS.items()]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {State.CLOSED}", *moves, ""])


def test_the_diagram_is_the_transition_table(*, refresh_goldens: bool) -> None:
    page = PAGE.read_text()
    if refresh_goldens:
        page = BLOCK.sub(lambda _: f"```mermaid\n{render_diagram()}```", page)
        PAGE.write_text(page)
    assert BLOCK.findall(page) == [render_diagram()]


def test_each_state_has_its_row() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    named = {state for state in State for line in rows if f"`{state}`" in line.split("|")[1]}
    assert named == set(State)
