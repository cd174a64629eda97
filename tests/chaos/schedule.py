"""The schedule of faults, drawn from the seed alone before the run."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from tests.chaos.fault_kinds import CLUSTER, FAMILIES, KINDS, LINK, FaultKind
from tests.chaos.history import PlannedFault

FIRST_SECONDS = 3.0
"""Before the first fault, so that there is something to lose."""
_PAUSE_SECONDS = (0.5, 5.0)
_AT_ONCE_MAX = 3
_TRIES = 20


def draw_schedule(seed: int, seconds: float, parts: Mapping[str, str], links: Sequence[str]) -> list[PlannedFault]:
    """Draw faults that begin within so many seconds. At most three last at once, and of one target only one.

    `parts` are kinds by name, `links` are named PART>PART. Each family of faults gets its turn as often as the others.
    """
    random = Random(f"{seed} faults")  # noqa: S311  the same faults again
    schedule: list[PlannedFault] = []
    families = _deal(random)
    after = FIRST_SECONDS
    while after < seconds:
        busy = [fault for fault in schedule if fault.until > after]
        if len(busy) < _AT_ONCE_MAX:
            family = next(families)
            for _ in range(_TRIES):
                fault = _draw_fault(random, family, after, parts, links)
                if not any(_is_in_the_way(fault, other) for other in busy):
                    schedule.append(_number(fault, len(schedule) + 1))
                    break
        after += random.uniform(*_PAUSE_SECONDS)
    return schedule


def list_links(parts: Mapping[str, str]) -> list[str]:
    """Return the links between parts that a run can disturb."""
    clients = [name for name, kind in parts.items() if kind in {"server", "controller"}]
    return [
        *(f"{name}>redis" for name in clients),
        *(f"{name}>kube-apiserver" for name, kind in parts.items() if kind in {"server", "controller", "extender"}),
        *(f"kube-apiserver>{name}" for name, kind in parts.items() if kind == "server"),
        *(f"kube-scheduler>{name}" for name, kind in parts.items() if kind == "extender"),
    ]


def _deal(random: Random) -> Iterator[str]:
    """Yield the families in a new order each time, and never stop."""
    while True:
        yield from random.sample(FAMILIES, len(FAMILIES))


def _draw_fault(
    random: Random, family: str, after: float, parts: Mapping[str, str], links: Sequence[str]
) -> PlannedFault:
    kind = random.choice([kind for kind in KINDS if kind.family == family and _list_targets(kind, parts, links)])
    target = random.choice(_list_targets(kind, parts, links))
    seconds = 0.0 if kind.seconds is None else random.uniform(*kind.seconds)
    return PlannedFault(
        number=0,
        kind=kind.name,
        parts=target,
        after=round(after, 2),
        until=round(after + seconds, 2),
        details=kind.draw(random),
    )


def _list_targets(kind: FaultKind, parts: Mapping[str, str], links: Sequence[str]) -> list[tuple[str, ...]]:
    if LINK in kind.targets:
        return [tuple(link.split(">")) for link in links]
    if CLUSTER in kind.targets:
        return [(CLUSTER,)]
    return [(name,) for name, of_kind in parts.items() if of_kind in kind.targets]


def _is_in_the_way(fault: PlannedFault, other: PlannedFault) -> bool:
    """Whether both hit the same target; a cluster has many objects, but each once."""
    same_kind = CLUSTER in fault.parts and fault.kind == other.kind
    snapshot = "redis-old-snapshot" in {fault.kind, other.kind} and _is_redis(fault) and _is_redis(other)
    return same_kind or snapshot or (CLUSTER not in fault.parts and fault.parts == other.parts)


def _is_redis(fault: PlannedFault) -> bool:
    return fault.kind.startswith("redis") or fault.parts[0].startswith("redis")


def _number(fault: PlannedFault, number: int) -> PlannedFault:
    return PlannedFault(number, fault.kind, fault.parts, fault.after, fault.until, fault.details)
