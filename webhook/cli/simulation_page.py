"""Page of a simulation: a row for each scheduler, a row for each node, and the reasons why Pods waited."""

from collections.abc import Iterable, Sequence

from webhook.commands.pages.table import format_duration, format_table
from webhook.core.plain_text import escape_line
from webhook.replay.scheduling.simulated_shares import VariantOutcome
from webhook.replay.scheduling.simulation import NodeOutcome, SchedulerComparison, SchedulerOutcome

_HEADINGS = ("SCHEDULER", "PLACED", "WAITED", "MEDIAN WAIT", "LONGEST WAIT", "WAITING", "HIGHEST CPU", "HIGHEST MEMORY")
_NODES_SHOWN = 50


def format_simulation(found: SchedulerComparison, *, is_wide: bool) -> Iterable[str]:
    """Yield the lines of the page."""
    outcomes = {
        "default": found.default,
        "without assumed load": found.without_assumed_load,
        "extender": found.extender,
    }
    yield f"{found.pods} Pods, {format_duration(round(found.duration_seconds))} of virtual time"
    yield from format_table([_HEADINGS, *(_format_scheduler(name, outcome) for name, outcome in outcomes.items())])
    yield ""
    yield from _format_nodes(list(outcomes.values()), is_wide=is_wide)
    for name, outcome in outcomes.items():
        for reason, count in outcome.refused.items():
            yield f"{name}: {_format_pods(count)} waited: {escape_line(reason)}"
        yield from (_format_variant(name, variant) for variant in outcome.variants)
        if outcome.failed:
            pods = _format_pods(outcome.failed)
            yield f"{name}: {pods} failed: no single NUMA zone holds them (TopologyAffinityError)"
    for missing in found.not_modelled:
        yield f"warning: {escape_line(str(missing))}"


def _format_variant(scheduler: str, found: VariantOutcome) -> str:
    """Return a line about one variant, with what happened only if something did."""
    fell_back = f", {found.fell_back} more got another variant" if found.fell_back else ""
    times = f"{found.openings} time{'' if found.openings == 1 else 's'}"
    opened = f"; opened {times}, {found.evicted} evicted" if found.openings else ""
    pods = _format_pods(found.pods)
    return f"{scheduler}: {escape_line(f'{found.service}, variant {found.variant}')}: {pods}{fell_back}{opened}"


def _format_pods(count: int) -> str:
    return f"{count} Pod{'' if count == 1 else 's'}"


def _format_scheduler(name: str, outcome: SchedulerOutcome) -> tuple[str, ...]:
    return (
        name,
        str(outcome.placed),
        str(outcome.waited),
        format_duration(round(outcome.median_wait_seconds)),
        format_duration(round(outcome.longest_wait_seconds)),
        str(outcome.waiting),
        f"{max(node.cpu_peak for node in outcome.nodes):.2f}",
        f"{max(node.memory_peak for node in outcome.nodes):.2f}",
    )


def _format_nodes(outcomes: Sequence[SchedulerOutcome], *, is_wide: bool) -> Iterable[str]:
    """Yield the table of nodes: the Pods on each, and its CPU: before, at its peak, and at the end."""
    rows = list(zip(*(outcome.nodes for outcome in outcomes), strict=True))
    rows.sort(key=lambda row: (-max(max(outcome.cpu_peak, outcome.memory_peak) for outcome in row), row[0].name))
    memory = ("MEMORY", "MEMORY PEAK", "END") if is_wide else ()
    headings = ["NODE", "CPU"]
    for name in ("DEFAULT", "NO ASSUMED", "EXTENDER"):
        headings += [f"{name}: PODS", "CPU PEAK", "END", *memory[1:]]
    cells = [
        (escape_line(row[0].name), f"{row[0].cpu_before:.2f}", *_format_cells(row, is_wide=is_wide)) for row in rows
    ]
    yield from format_table([tuple(headings), *cells[:_NODES_SHOWN]])
    if len(cells) > _NODES_SHOWN:
        yield f"the hottest {_NODES_SHOWN} of {len(cells)}; -o json has all"


def _format_cells(row: Iterable[NodeOutcome], *, is_wide: bool) -> Iterable[str]:
    for outcome in row:
        yield from (str(outcome.pods), f"{outcome.cpu_peak:.2f}", f"{outcome.cpu_end:.2f}")
        if is_wide:
            yield from (f"{outcome.memory_peak:.2f}", f"{outcome.memory_end:.2f}")
