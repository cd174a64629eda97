"""What a person reads about a run: its schedule, a line a fault, and counts of what happened."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.chaos.fault_kinds import EFFECTS
from tests.chaos.history import BEGAN, FAILED, UNKNOWN, History, PlannedFault


def format_schedule(schedule: Sequence[PlannedFault]) -> str:
    """Return a line for each planned fault."""
    return "\n".join(
        f"{fault.after:6.1f} s  {_format_duration(fault):>7}  {fault.kind:<20} {'>'.join(fault.parts):<26}"
        f" {_format_details(fault)}".rstrip()
        for fault in schedule
    )


def _format_duration(fault: PlannedFault) -> str:
    return f"{fault.until - fault.after:.1f} s" if fault.until > fault.after else "at once"


def _format_details(fault: PlannedFault) -> str:
    return " ".join(f"{name}={value}" for name, value in fault.details.items())


def explain_kinds(schedule: Sequence[PlannedFault]) -> str:
    """Return what each kind of these faults does."""
    return "\n".join(f"  {kind:<20} {EFFECTS[kind]}" for kind in sorted({fault.kind for fault in schedule}))


def summarize(history: History) -> str:
    return "\n".join(_list_lines(history))


def _list_lines(history: History) -> Iterator[str]:
    planned = [fault for fault in history.faults if fault.number]
    begun = Counter(fault.kind for fault in planned if fault.phase == BEGAN)
    failed = Counter(fault.kind for fault in planned if fault.phase == FAILED)
    yield f"seed {history.plan.seed}, {history.plan.seconds:g} s"
    yield f"faults: {_format_counts(begun)}" + (f"; not possible: {_format_counts(failed)}" if failed else "")
    exits = Counter(fault.parts[0] for fault in history.faults if fault.kind == "exited")
    if exits:
        yield f"parts that ended by themselves: {_format_counts(exits)}"
    yield f"acts: {_format_counts(Counter(act.outcome for act in history.acts))}"
    unknown = Counter(act.act for act in history.acts if act.outcome == UNKNOWN)
    if unknown:
        yield f"  without an answer: {_format_counts(unknown)}"
    yield f"reviews: {_format_counts(Counter(f'{review.half} {review.decision}' for review in history.reviews))}"
    yield f"writes of charges: {len(history.charges)}, of {len({write.uid for write in history.charges})} Pods"
    created = [
        event for event in history.audit if (event.resource, event.sub_resource, event.verb) == ("pods", "", "create")
    ]
    yield f"creations of Pods: {_format_counts(Counter(str(event.code) for event in created))}"
    yield f"moves of breakers: {len(history.transitions)}"
    end = history.end
    if end is None:
        yield "the run has no end"
        return
    touched = sum(act.act == "touch" for act in history.acts)
    rest = "at rest" if end.rested else "NOT at rest"
    yield f"{rest} after {end.waited_seconds:g} s, {len(end.pods)} Pods; touched {touched} times"
    yield from (f"  missing: {line}" for line in end.missing)


def _format_counts(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
