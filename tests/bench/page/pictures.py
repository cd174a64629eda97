"""Pictures of growth: CPU time per call by services, windows, containers and connections."""

from tests.bench.lineup import CONNECTIONS, CONTAINERS, SERVICES, WINDOWS
from tests.bench.page.rows import USUAL, Json, row
from tests.bench.page.svg import Chart, Line
from tests.bench.servers import GO, OWN

_UNIT = "CPU time per call, by that of one mutating call of a Go webhook with a 6 KB Pod"
_CONTAINERS = tuple(sorted({*CONTAINERS, USUAL["containers"]}))
_CONNECTIONS = tuple(sorted({*CONNECTIONS, USUAL["connections"]}))
_PICTURES = {
    "services": ("Services in the policy", SERVICES, (OWN,)),
    "windows": ("Windows of the quota", WINDOWS, (OWN,)),
    "containers": ("Containers of the Pod", _CONTAINERS, (OWN, GO)),
    "connections": ("Connections that send at once", _CONNECTIONS, (OWN, GO)),
}


def pictures(results: Json) -> dict[str, str]:
    """Return the SVG text of each picture whose part was measured, by the name of the part."""
    return {name: _picture(results, name) for name in _PICTURES if name in results}


def _picture(results: Json, part: str) -> str:
    x_title, values, servers = _PICTURES[part]
    lines, shown = [], [value for value in values if row(results, part, "mutate", **{part: value})]
    for server in servers:
        for case in ("mutate", "validate"):
            found = [row(results, part, case, server, **{part: value}) for value in shown]
            spreads = [figures["times_unit"] for figures in found if figures]
            if len(spreads) == len(shown):
                points = [(spread["low"], spread["median"], spread["high"]) for spread in spreads]
                lines.append(Line(f"{server}: {case}", points))
    return Chart(f"Cost by {part}", x_title, _UNIT, [f"{value:,}" for value in shown], lines).svg()
