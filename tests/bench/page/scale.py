"""Fragments and pictures of docs/scale.md: how a large cluster's costs grow with its Pods."""

from collections.abc import Callable
from pathlib import Path

from tests.bench.page.markers import insert_fragments
from tests.bench.page.rows import Json, render_table
from tests.bench.page.svg import Chart, Line
from tests.bench.scale.cluster import API_SERVER, CONTROLLER, ETCD, REDIS, SERVERS
from tests.harness.server_process import TREE

PAGE = TREE / "docs" / "scale.md"
_PARTS = (SERVERS, CONTROLLER, REDIS)
_MIB = 1 << 20
_ABSENT = {"seconds": -1.0}
"""In place of a start that was not measured."""
_CORE_USE = 0.6
"""Share of a core in use at a stated limit, as in capacity.py."""


def write(results: Json, page: Path = PAGE) -> None:
    """Write the fragments and the pictures if a large cluster was measured."""
    if "scale" not in results:
        return
    insert_fragments(page, fragments(results["scale"]))
    (page.parent / "pictures").mkdir(exist_ok=True)
    for name, svg in pictures(results["scale"]["figures"]).items():
        (page.parent / "pictures" / f"growth-{name}.svg").write_text(svg)


def fragments(part: Json) -> dict[str, str]:
    """Return the text of each fragment."""
    rows = part["figures"]
    return {
        "source": f"Measured on {part['date']}: {part['machine']}.",
        "limits": _describe_limits(rows),
        "growth": _render_growth(rows),
        "changes": _render_changes(rows),
        "commands": _render_commands(rows),
    }


def _describe_limits(rows: list[Json]) -> str:
    before, last = rows[-2], rows[-1]
    more_pods = last["pods"] - before["pods"]
    # Earlier steps also meet each service for the first time.
    pod_bytes = (last["rss_mib"][CONTROLLER] - before["rss_mib"][CONTROLLER]) * _MIB / more_pods
    rates = {name: _CORE_USE * 1000 / last["cpu_s_per_1000"][name] for name in _PARTS}
    resident, start, lag = last["rss_mib"], last["start"].get(CONTROLLER), last["lag_ms"]
    leader = (
        f"\n- A new leader knows all Pods after {start['seconds']:.0f} s and {start['cpu_s']:.1f} s of CPU, with"
        f"\n  {start['peak_mib']:.0f} MiB at most."
        if start is not None
        else ""
    )
    size = f"{last['nodes']:,} nodes, {last['services']:,} services and {last['pods']:,} Pods"
    return f"""\
With {size}, and {_CORE_USE:.0%} of a core:

- Both servers together admit {rates[SERVERS]:,.0f} Pods a second, the controller follows {rates[CONTROLLER]:,.0f},
  and one Redis counts {rates[REDIS]:,.0f}.
- The controller holds {resident[CONTROLLER]:.0f} MiB, {max(0.0, pod_bytes):,.0f} bytes more for each further Pod;
  a server {resident[SERVERS]:.0f} MiB.{leader}
- The store learns of a change {lag["median"]:.1f} ms after the API server, at most {lag["longest"]:.0f} ms."""


def _render_growth(rows: list[Json]) -> str:
    head = [
        "Pods",
        "created a second",
        *(f"{name}, CPU s for 1,000" for name in (*_PARTS, API_SERVER, ETCD)),
        *(f"{name}, idle ms a second" for name in _PARTS),
        "RSS, MiB: server/controller",
        "Redis, MiB",
        "lag, ms",
    ]
    lines = [
        [
            f"{row['pods']:,}",
            f"{row['per_second']:.0f}",
            *(f"{row['cpu_s_per_1000'][name]:.2f}" for name in (*_PARTS, API_SERVER, ETCD)),
            *(f"{row['idle_ms_per_second'][name]:.0f}" for name in _PARTS),
            f"{row['rss_mib'][SERVERS]:.0f}/{row['rss_mib'][CONTROLLER]:.0f}",
            f"{row['redis_mib']:.0f}",
            f"{row['lag_ms']['median']:.1f}",
        ]
        for row in rows
    ]
    return render_table(head, lines)


def _render_changes(rows: list[Json]) -> str:
    head = [
        "Pods",
        "one service changed: s, CPU s of servers/controller",
        "all: s, CPU s of servers/controller",
        "longest turn, ms: server/controller",
        "server starts: s, CPU s",
        "controller starts: s, CPU s, most MiB",
    ]
    lines = []
    for row in rows:
        one, every = row["swap"]["one service"], row["swap"]["all services"]
        server, controller = row["start"][SERVERS], row["start"].get(CONTROLLER)
        lines.append(
            [
                f"{row['pods']:,}",
                *(_join(swap["seconds"], swap["cpu_s"][SERVERS], swap["cpu_s"][CONTROLLER]) for swap in (one, every)),
                "/".join(
                    f"{max(one['stall_ms'][name], every['stall_ms'][name]):.0f}" for name in (SERVERS, CONTROLLER)
                ),
                f"{server['seconds']:.1f}, {server['cpu_s']:.2f}",
                f"{controller['seconds']:.1f}, {controller['cpu_s']:.2f}, {controller['peak_mib']:.0f}"
                if controller is not None
                else "-",
            ]
        )
    return render_table(head, lines)


def _join(seconds: float, server_seconds: float, controller_seconds: float) -> str:
    return f"{seconds:.1f}, {server_seconds:.2f}/{controller_seconds:.2f}"


def _render_commands(rows: list[Json]) -> str:
    names = list(rows[0]["commands"])
    lines = [[f"{row['pods']:,}", *(f"{row['commands'][name]['cpu_s']:.2f}" for name in names)] for row in rows]
    return render_table(["CPU s among Pods", *(f"`podgate {name}`" for name in names)], lines)


def pictures(rows: list[Json]) -> dict[str, str]:
    """Return the SVG text of each picture, by its name."""

    def draw(title: str, y_title: str, names: tuple[str, ...], read: Callable[[Json, str], float]) -> str:
        lines = [
            Line(name, [(value, value, value) for row in rows if (value := read(row, name)) >= 0]) for name in names
        ]
        return Chart(title, "Pods in the cluster", y_title, [f"{row['pods']:,}" for row in rows], lines).svg()

    return {
        "pods-cpu": draw(
            "CPU by Pods", "CPU s for 1,000 new Pods", _PARTS, lambda row, name: row["cpu_s_per_1000"][name]
        ),
        "pods-memory": draw(
            "Memory by Pods",
            "Resident MiB",
            _PARTS,
            lambda row, name: row["redis_mib"] if name == REDIS else row["rss_mib"][name],
        ),
        "pods-start": draw(
            "Start by Pods",
            "Seconds until ready",
            (SERVERS, CONTROLLER),
            lambda row, name: row["start"].get(name, _ABSENT)["seconds"],
        ),
    }
