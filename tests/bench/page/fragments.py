"""Fragments of docs/performance.md that are generated from results, between markers, and its pictures."""

from pathlib import Path

from tests.bench.lineup import RATES
from tests.bench.page.capacity import Capacity
from tests.bench.page.fleet import Fleet
from tests.bench.page.markers import insert_fragments
from tests.bench.page.pictures import pictures
from tests.bench.page.rows import USUAL, Json, pivot, ratio, render_table, row
from tests.bench.servers import AIOHTTP, GO, GO_FULL, KOPF, OWN, OWN_MEMORY
from tests.bench.starts import BEFORE
from tests.harness.server_process import TREE

PAGE = TREE / "docs" / "performance.md"
_COMPARED = ("mutate", "validate", "both")
_OTHERS = ("unmatched", "refused by quota", "refused by OPEN")
_SAME_POD = "ratio_to_one_go_mutate"
_PEERS = (GO, GO_FULL, "controller-runtime", KOPF, AIOHTTP)


def write(results: Json, page: Path = PAGE) -> None:
    """Write the fragments whose parts were measured, and the pictures."""
    insert_fragments(page, fragments(results))
    (page.parent / "pictures").mkdir(exist_ok=True)
    for name, svg in pictures(results).items():
        (page.parent / "pictures" / f"growth-{name}.svg").write_text(svg)


def fragments(results: Json) -> dict[str, str]:
    """Return the text of each fragment whose parts were measured."""
    capacity, fleet = Capacity.from_results(results), Fleet.from_results(results)
    found = {
        "source": _source(results),
        "costs": _costs(results) if "servers" in results else "",
        "cases": _cases(results) if "servers" in results else "",
        "opcodes": _render_opcodes(results) if "opcodes" in results else "",
        "rates": _rates(results) if "rates" in results else "",
        "connections": _connections(results) if "connections" in results else "",
        "apiserver": _api_server(results) if "apiserver" in results else "",
        "acquires": _acquires(results) if "acquires" in results else "",
        "shares": _render_shares(results) if "shares" in results else "",
        "deployments": _render_deployments(results) if "deployments" in results else "",
        "scheduling": _render_scheduling(results) if "scheduling" in results else "",
        "loop": _loop(results) if "loop" in results else "",
        "policies": _render_policies(results) if "policies" in results else "",
        "starts": _starts(results) if "starts" in results else "",
        "idle": _render_idle(results) if "idle" in results else "",
        "memory": _render_memory(results) if "memory" in results else "",
        "capacity": capacity.text() if capacity else "",
        "fleet": fleet.text() if fleet else "",
    }
    return {name: text for name, text in found.items() if text}


def _source(results: Json) -> str:
    parts = [part for name, part in results.items() if name != "scale"]  # it has a page of its own
    measured = sorted({(part["date"], part["machine"]) for part in parts})
    return "\n".join(f"Measured on {date}: {machine}." for date, machine in measured)


def _costs(results: Json) -> str:
    lines = []
    for case in _COMPARED:
        rows = [row(results, "servers", case, server) for server in (OWN, OWN_MEMORY, *_PEERS)]
        lines.append([case, *(ratio(found, _SAME_POD) for found in rows[:2]), *map(_median, rows[2:])])
    return render_table(["calls", OWN, OWN_MEMORY, *_PEERS], lines)


def _cases(results: Json) -> str:
    sizes = [(f"{case}, {kb} KB", case, kb * 1000) for kb in (2, 65) for case in ("mutate", "validate")]
    lines = []
    for name, case, size in [*((case, case, USUAL["pod_bytes"]) for case in _OTHERS), *sizes]:
        rows = [row(results, "servers", case, server, pod_bytes=size) for server in (OWN, OWN_MEMORY, GO)]
        lines.append([name, *(ratio(found, _SAME_POD) for found in rows[:2]), _median(rows[2])])
    return render_table(["Pod", OWN, OWN_MEMORY, GO], lines)


def _render_opcodes(results: Json) -> str:
    lines = [
        [found["name"], *(f"{found[store]:,}" for store in (OWN, OWN_MEMORY))]
        for found in results["opcodes"]["figures"]
    ]
    return render_table(["opcodes of a review", OWN, OWN_MEMORY], lines)


def _api_server(results: Json) -> str:
    cells = []
    for figures in results["apiserver"]["figures"]["rows"]:
        way, clients = figures["way"], figures["clients"]
        cells += [
            (way, f"{clients} at once: Pods a second", f"{figures['pods_per_second']['median']:.0f}"),
            (way, f"{clients}: by none", ratio(figures, "rate_ratio")),
            (way, f"{clients}: p50, ms", f"{figures['p50_us']['median'] / 1e3:.1f}"),
        ]
    return pivot("calls", cells)


def _acquires(results: Json) -> str:
    cells = []
    for figures in results["acquires"]["figures"]:
        costs = "/".join(f"{figures[name]['median']:.0f}" for name in ("client_us", "script_us", "redis_us"))
        cells.append((figures["name"], f"{figures['case']}, {figures['redis']}", costs))
    return pivot("µs of client/script/Redis", cells)


def _render_shares(results: Json) -> str:
    figures = results["shares"]["figures"]
    opcodes = {review["store"]: review for review in figures["reviews"]}
    lines = []
    for call in figures["calls"]:
        review = opcodes[call["server"]]
        redis_us = f"{call['redis_us']['median']:.0f}" if "redis_us" in review else "-"
        counted = f"{review['opcodes']:,}/{review['opcodes_without']:,}"
        name = f"{call['server']}, {call['connections']} connections"
        lines.append([name, ratio(call, "times_without"), f"{call['cpu_us']['median']:.0f}", redis_us, counted])
    heads = ["times without shares", "CPU, µs", "Redis, µs", "opcodes, with/without"]
    return render_table(["mutating call", *heads], lines)


def _render_deployments(results: Json) -> str:
    lines = [
        [
            f"{figures['service'].replace('-', ' ')}",
            ratio(figures, "times_without"),
            *(f"{figures[name]['median']:.0f}" for name in ("servers", "controller", "Redis", "commands")),
            f"{figures['scripts']['median']:.1f}",
            "/".join(f"{figures[name]['median']:.0f}" for name in ("gets", "lists")),
        ]
        for figures in results["deployments"]["figures"]
    ]
    cpu = [f"{name}, µs a Pod" for name in ("servers", "controller", "Redis")]
    heads = ["servers, times without", *cpu, "Redis commands a Pod", "script calls a Pod", "GETs/LISTs in all"]
    return render_table(["a Deployment", *heads], lines)


def _render_scheduling(results: Json) -> str:
    lines = []
    for figures in results["scheduling"]["figures"]:
        rates, quantiles = figures["pods_per_second"], figures["quantiles_ms"]
        asked = f"{figures['percentage']} %" if figures["percentage"] else "10 %"
        lines.append(
            [
                f"{figures['nodes']:,} ({asked} asked)",
                *(f"{rate['median']:.0f}" for rate in rates.values()),
                ratio(figures, "all_rules_by_passes_all"),
                f"{figures['cpu_ms']['median']:.1f}",
                "/".join(f"{figures['opcodes'][way]:,.0f}" for way in ("all rules", "passes all")),
                "/".join(f"{quantiles[f'{verb} p50']:.1f}" for verb in ("filter", "prioritize")),
                f"{figures['idle_ms']:.0f}",
                f"{figures['rss_mib']}",
            ]
        )
    ways = results["scheduling"]["figures"][0]["pods_per_second"]
    heads = [
        *(f"Pods/s, {way}" for way in ways),
        "all rules by passes all",
        "CPU a Pod, ms",
        "opcodes a Pod, all rules/passes all",
    ]
    return render_table(["nodes", *heads, "p50 of filter/prioritize, ms", "without calls, ms/s", "RSS, MiB"], lines)


def _loop(results: Json) -> str:
    lines = [[figures["name"], f"{figures['wall_ms']['median']:.1f}"] for figures in results["loop"]["figures"]]
    return render_table(["beside", "longest turn, ms"], lines)


def _render_policies(results: Json) -> str:
    names = ("check_ms", "server_ms", "longest_turn_ms")
    lines = [
        [figures["name"], *(f"{figures[name]['median']:.{int(name == names[-1])}f}" for name in names)]
        for figures in results["policies"]["figures"]
    ]
    return render_table(["put into force", "CPU of the check, ms", "CPU of the server, ms", "longest turn, ms"], lines)


def _starts(results: Json) -> str:
    names = ("ready_ms", "server_ms", "children_ms", "rss_mib")
    lines = [
        [figures["name"], *(f"{figures[name]['median']:.0f}" for name in names)]
        for figures in results["starts"]["figures"]
        if "ready_ms" in figures and not figures["name"].startswith(BEFORE)
    ]
    return render_table(["store, policy", "ready, ms", "CPU, ms", "CPU of the policy check, ms", "RSS, MiB"], lines)


def _render_idle(results: Json) -> str:
    lines = [
        [
            figures["name"],
            *(f"{figures[name]['median']:.1f}" if name in figures else "-" for name in ("server_ms", "redis_ms")),
        ]
        for figures in results["idle"]["figures"]
    ]
    return render_table(["", "server, ms a second", "Redis, ms a second"], lines)


def _render_memory(results: Json) -> str:
    rows = results["memory"]["figures"]
    heads = [f"after {int(reviews):,} reviews" if int(reviews) else "ready" for reviews in rows[0]["rss_mib"]]
    lines = [[row["name"], *(f"{mib:.0f}" for mib in row["rss_mib"].values())] for row in rows]
    return render_table(["RSS, MiB", *heads], lines)


def _median(found: Json | None) -> str:
    return f"{found[_SAME_POD]['median']:.2f}" if found else "-"


def _rates(results: Json) -> str:
    lines = []
    for case in ("mutate", "validate"):
        for rate in RATES:
            rows = [row(results, "rates", case, server, rate=rate) for server in (OWN, OWN_MEMORY, GO)]
            cells = [
                f"{found['p50_us']['median'] / 1e3:.2f}/{found['p90_us']['median'] / 1e3:.2f}" if found else "-"
                for found in rows
            ]
            lines.append([f"{case}, {rate}/s", *cells])
    return render_table(["p50/p90, ms", OWN, OWN_MEMORY, GO], lines)


def _connections(results: Json) -> str:
    lines = []
    for server in (OWN, GO, AIOHTTP):
        new = row(results, "connections", "mutate", server, new_connections=True)
        kept = row(results, "connections", "mutate", server, connections=1)
        lines.append([server, *(f"{row['cpu_us']['median']:.0f}" if row else "-" for row in (new, kept))])
    return render_table(["CPU per mutating call, µs", "on a new connection", "on a kept connection"], lines)
