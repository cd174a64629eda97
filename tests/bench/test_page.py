"""The page about performance: its generated tables and pictures."""

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from tests.bench.lineup import RATES, SERVICES
from tests.bench.page import fragments, scale
from tests.bench.page.capacity import Capacity
from tests.bench.page.fleet import Fleet
from tests.bench.page.pictures import pictures
from tests.bench.page.rows import USUAL
from tests.bench.page.svg import Chart, Line
from tests.bench.servers import GO, OWN, OWN_MEMORY, OWN_TWO

MARKERS = (
    "source",
    "costs",
    "cases",
    "opcodes",
    "rates",
    "connections",
    "apiserver",
    "shares",
    "deployments",
    "scheduling",
    "acquires",
    "loop",
    "policies",
    "starts",
    "idle",
    "memory",
    "capacity",
    "fleet",
)


SCALE_MARKERS = ("source", "limits", "growth", "changes", "commands")


def row(case: str, server: str = OWN, ratio: float = 2.0, **special: Any) -> dict[str, Any]:
    spread = {"median": ratio, "low": ratio - 0.5, "high": ratio + 0.5}
    micros = {"median": 100 * ratio, "low": 90 * ratio, "high": 110 * ratio}
    ratios = {"times_unit": spread, "ratio_to_one_go_mutate": spread, "p50_ratio_to_go": spread}
    measured = {"cpu_us": micros, "redis_cpu_us": micros, "p50_us": micros, "p90_us": micros}
    return {**USUAL, **ratios, **measured, "case": case, "server": server, **special}


def results(**parts: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        name: {"date": "2026-01-02", "machine": "a processor", "figures": {"rows": rows}}
        for name, rows in parts.items()
    }


def step(pods: int) -> dict[str, Any]:
    """Return the figures of one step of a growing cluster."""
    every = dict.fromkeys(("servers", "controller", "Redis", "kube-apiserver", "etcd"), 0.5)
    start = {"seconds": 2.0, "cpu_s": 1.0, "rss_mib": 90.0, "peak_mib": 120.0}
    swap = {"seconds": 1.5, "cpu_s": every, "stall_ms": every}
    return {
        "pods": pods,
        "nodes": 5_000,
        "services": 2_000,
        "per_second": 150.0,
        "cpu_s_per_1000": every,
        "idle_ms_per_second": dict.fromkeys(every, 20.0),
        "rss_mib": {"servers": 80.0, "controller": 100.0 + pods / 1000, "controller, peak": 130.0},
        "redis_mib": 20.0 + pods / 1000,
        "redis_connections": 12,
        "lag_ms": {"median": 9.0, "longest": 30.0},
        "swap": {"one service": swap, "all services": swap},
        "start": {"servers": start, "controller": start},
        "commands": {"status": {"cpu_s": 0.4, "seconds": 0.5, "bytes": 9}},
    }


@pytest.fixture
def measured() -> dict[str, Any]:
    spread = {"median": 2.0, "low": 1.5, "high": 2.5}
    names = ("pods_per_second", "rate_ratio", "p50_us", "p50_ratio")
    created = {"way": "none", "clients": 1, "cpu_us": {"kube-apiserver": 900.0}, **dict.fromkeys(names, spread)}
    start = dict.fromkeys(("ready_ms", "server_ms", "children_ms", "rss_mib"), spread)
    costs = {"client_us": spread, "script_us": spread, "redis_us": spread}
    listed = {
        "opcodes": [{"name": "mutate, 6 KB", OWN: 1100, OWN_MEMORY: 1000}],
        "acquires": [{"redis": "redis-8.2", "case": "9 limits, admitted", "name": "podgate", **costs}],
        "loop": [{"name": "a scrape", "cpu_ms": spread, "wall_ms": spread}],
        "starts": [
            *({"name": name, **start} for name in ("Redis, a few services", "before: Redis, a few services")),
            {"name": "interpreter", "cpu_ms": spread},
        ],
    }
    verbs = {f"{verb} {quantile}": 2.0 for verb in ("filter", "prioritize") for quantile in ("p50", "p99")}
    listed["scheduling"] = [
        {
            "nodes": 1_000,
            "percentage": 100,
            "pods_per_second": {"no extender": spread},
            "all_rules_by_passes_all": spread,
            "cpu_ms": spread,
            "opcodes": {"passes all": 200, "all rules": 1000},
            "quantiles_ms": verbs,
            "idle_ms": 9.0,
            "rss_mib": 80,
        }
    ]
    changed = dict.fromkeys(("check_ms", "server_ms", "longest_turn_ms"), spread)
    listed["policies"] = [{"name": "a change of one of 5,000", **changed}]
    listed["memory"] = [{"name": OWN, "rss_mib": {"0": 70.2, "10000": 80.1}}]
    listed["idle"] = [{"name": "podgate, memory, 1 service", "server_ms": spread}]
    call = {"server": OWN, "connections": 16, "times_without": spread, "cpu_us": spread, "redis_us": spread}
    review = {"store": OWN, "opcodes": 2000, "opcodes_without": 1000, "redis_us": spread}
    deployed = ("servers", "controller", "Redis", "commands", "scripts", "gets", "lists", "times_without")
    listed["deployments"] = [{"service": "with-shares", **dict.fromkeys(deployed, spread)}]
    common = {"date": "2026-01-02", "machine": "a processor"}
    shares = {"shares": {**common, "figures": {"calls": [call], "reviews": [review]}}}
    shares["scale"] = {**common, "figures": [step(5_000), step(50_000)]}
    return (
        shares
        | {part: {**common, "figures": figures} for part, figures in listed.items()}
        | results(
            apiserver=[created, {**created, "clients": 16}],
            servers=[
                *(row("mutate", GO, 1.0), row("mutate", ratio=1.5), row("both", ratio=3.0)),
                row("mutate", ratio=2.5, pod_bytes=65_000),
            ],
            rates=[row("mutate", ratio=1.6, rate=rate) for rate in RATES],
            connections=[row("mutate", connections=1), row("mutate", ratio=9.0, new_connections=True)],
            processes=[row("validate", ratio=2.0), row("validate", OWN_TWO, 2.5)],
            services=[row(case, services=count) for case in ("mutate", "validate") for count in SERVICES],
        )
    )


def test_each_fragment_is_written_between_its_markers(measured: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("before\n" + "".join(f"<!-- begin {name} -->\nold\n<!-- end {name} -->\n" for name in MARKERS))
    fragments.write(measured, page)
    once = page.read_text()
    fragments.write(measured, page)
    assert page.read_text() == once
    assert "old" not in once
    assert once.startswith("before\n<!-- begin source -->\nMeasured on 2026-01-02: a processor.\n<!-- end source -->\n")
    assert "| mutate | 1.50 (1.00-2.00) | - | 1.00 |" in once
    assert "| mutate, 65 KB | 2.50 (2.00-3.00) | - | - |" in once
    assert "| mutate, 6 KB | 1,100 | 1,000 |" in once
    assert "| mutate, 20/s | 0.16/0.16 |" in once
    assert "| none | 2 | 2.00 (1.50-2.50) | 0.0 | 2 | 2.00 (1.50-2.50) | 0.0 |" in once
    assert "| podgate | 2/2/2 |" in once
    assert "| a scrape | 2.0 |" in once
    assert "| 1,000 (100 % asked) | 2 | 2.00 (1.50-2.50) | 2.0 | 1,000/200 | 2.0/2.0 | 9 | 80 |" in once
    assert f"| {OWN}, 16 connections | 2.00 (1.50-2.50) | 2 | 2 | 2,000/1,000 |" in once
    assert "| with shares | 2.00 (1.50-2.50) | 2 | 2 | 2 | 2 | 2.0 | 2/2 |" in once
    assert once.count("Redis, a few services") == 1
    assert "| Redis, a few services | 2 | 2 | 2 | 2 |" in once
    assert "| podgate, memory, 1 service | 2.0 | - |" in once
    assert f"| {OWN} | 900 | 200 |" in once
    ET.parse(tmp_path / "pictures" / "growth-services.svg")  # noqa: S314 - written by the code under test


def test_page_without_a_marker_is_an_error(measured: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("")
    with pytest.raises(SystemExit, match="begin source"):
        fragments.write(measured, page)


def test_page_in_the_tree_has_all_markers_and_pictures() -> None:
    text = fragments.PAGE.read_text()
    for name in MARKERS:
        assert f"<!-- begin {name} -->\n" in text
        assert f"<!-- end {name} -->" in text
    for name in ("services", "windows", "containers", "connections"):
        assert (fragments.PAGE.parent / "pictures" / f"growth-{name}.svg").is_file()


def test_picture_has_a_point_for_each_value(measured: dict[str, Any]) -> None:
    assert list(pictures(measured)) == ["services", "connections"]
    assert pictures(measured)["services"].count("<circle") == 2 * len(SERVICES)


def test_point_of_a_chart_is_as_high_as_its_value() -> None:
    chart = Chart("t", "x", "y", ["a", "b", "c"], [Line("one", [(0.0, 0.0, 0.0), (1.0, 2.0, 3.0), (4.0, 4.0, 4.0)])])
    picture = ET.fromstring(chart.svg())  # noqa: S314 - written by the code under test
    zero, *heights = [float(element.attrib["cy"]) for element in picture if element.tag.endswith("circle")]
    assert (zero - heights[0]) * 2 == pytest.approx(zero - heights[1])


def test_capacity_follows_from_the_measured_costs(measured: dict[str, Any]) -> None:
    capacity = Capacity.from_results(measured)
    assert capacity == Capacity(server_us=300.0, redis_us=300.0, efficiency=0.8)
    assert capacity.per_replica == pytest.approx(0.6 * 0.8 * 1e6 / 300)
    assert capacity.render_table().splitlines()[-1] == "| 100,000 | 63 | 37.50 | 60 | 30.00 |"
    assert Capacity.from_results(results(servers=[row("both")])) is None


def test_page_of_a_large_cluster_is_written_between_its_markers(measured: dict[str, Any], tmp_path: Path) -> None:
    page = tmp_path / "scale.md"
    page.write_text("".join(f"<!-- begin {name} -->\nold\n<!-- end {name} -->\n" for name in SCALE_MARKERS))
    scale.write(measured, page)
    text = page.read_text()
    assert "\nold\n" not in text
    assert "The controller holds 150 MiB, 1,049 bytes more for each further Pod" in text
    assert "| 50,000 | 150 | 0.50 | 0.50 | 0.50 | 0.50 | 0.50 | 20 | 20 | 20 | 80/150 | 70 | 9.0 |" in text
    assert "| 5,000 | 0.40 |" in text
    for name in ("pods-cpu", "pods-memory", "pods-start"):
        ET.parse(tmp_path / "pictures" / f"growth-{name}.svg")  # noqa: S314 - written by the code under test
    scale.write({}, tmp_path / "none.md")
    assert not (tmp_path / "none.md").exists()


def test_page_of_a_large_cluster_in_the_tree_has_all_markers_and_pictures() -> None:
    text = scale.PAGE.read_text()
    assert all(f"<!-- begin {name} -->\n" in text and f"<!-- end {name} -->" in text for name in SCALE_MARKERS)
    pictures_of = scale.PAGE.parent / "pictures"
    assert all((pictures_of / f"growth-{name}.svg").is_file() for name in ("pods-cpu", "pods-memory", "pods-start"))


def test_a_fleet_follows_from_what_one_cluster_costs(measured: dict[str, Any]) -> None:
    fleet = Fleet.from_results(measured)
    assert fleet is not None
    assert (fleet.pod_us, fleet.idle_ms_per_second, fleet.connections) == (500.0, 20.0, 12)
    assert fleet.bytes_per_pod == pytest.approx(2**20 / 1000)
    assert fleet.bytes_per_service == pytest.approx(20 * 2**20 / 2_000)
    assert fleet.compute_cores(100, 1_000) == pytest.approx(100 * (0.5 + 0.02))
    assert fleet.compute_bytes(1, 10) == pytest.approx(70 * 2**20), "those that live"
    assert fleet.compute_bytes(2, 100) == pytest.approx(2 * 380 * 2**20), "those of an hour"
    assert fleet.count_shards(1, 10) == 1
    assert fleet.count_shards(100, 1_000) == 104, "CPU"
    assert fleet._line(100, 1_000)[:3] == ["100", "1,000", "52.00"]
    assert Fleet.from_results({"scale": {"figures": [step(1)]}}) is None
