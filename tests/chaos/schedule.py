"""The schedule of faults, drawn from the seed alone before the run."""

from collections.abc import Iterator, Mapping, Sequence
from random import Random

from tests.chaos.fault_kinds import ALL_ETCD, CLUSTER, KINDS, LINK, FaultKind
from tests.chaos.history import PlannedFault

FIRST_SECONDS = 3.0
"""Before the first fault, so that there is something to lose."""
_PAUSE_SECONDS = (0.5, 5.0)
_AT_ONCE_MAX = 3
_TRIES = 20
_REJOIN_SECONDS = 5.0
"""By then a member of etcd that was away is one of the majority again."""


def draw_schedule(
    seed: int, seconds: float, parts: Mapping[str, str], links: Sequence[str], kinds: Sequence[FaultKind] = KINDS
) -> list[PlannedFault]:
    """Draw faults that begin within so many seconds. At most three last at once, and of one target only one.

    `parts` are kinds by name, `links` are named PART>PART. Each family of faults gets its turn as often as the others.
    Of several members of etcd a majority stays.
    """
    random = Random(f"{seed} faults")  # noqa: S311  the same faults again
    schedule: list[PlannedFault] = []
    families = _deal(random, list_families(kinds))
    has_majority = sum(kind == "etcd" for kind in parts.values()) > 1
    after = FIRST_SECONDS
    while after < seconds:
        busy = [fault for fault in schedule if fault.until > after]
        if len(busy) < _AT_ONCE_MAX:
            family = next(families)
            chosen = [kind for kind in kinds if kind.family == family]
            for _ in range(_TRIES):
                fault = _draw_fault(random, chosen, after, parts, links)
                takes_majority = has_majority and any(_are_of_etcd(fault, other, after) for other in schedule)
                if not takes_majority and not any(_is_in_the_way(fault, other) for other in busy):
                    schedule.append(_number(fault, len(schedule) + 1))
                    break
        after += random.uniform(*_PAUSE_SECONDS)
    return schedule


def list_families(kinds: Sequence[FaultKind]) -> Sequence[str]:
    return tuple(dict.fromkeys(kind.family for kind in kinds))


def list_links(parts: Mapping[str, str]) -> list[str]:
    """Return the links between parts that a run can disturb."""
    clients = [name for name, kind in parts.items() if kind in {"server", "controller"}]
    return [
        *(f"{name}>redis" for name in clients),
        *(f"{name}>kube-apiserver" for name, kind in parts.items() if kind in {"server", "controller", "extender"}),
        *(f"kube-apiserver>{name}" for name, kind in parts.items() if kind == "server"),
        *(f"kube-scheduler>{name}" for name, kind in parts.items() if kind == "extender"),
    ]


def _deal(random: Random, families: Sequence[str]) -> Iterator[str]:
    """Yield the families in a new order each time, and never stop."""
    while True:
        yield from random.sample(families, len(families))


def _draw_fault(
    random: Random, kinds: Sequence[FaultKind], after: float, parts: Mapping[str, str], links: Sequence[str]
) -> PlannedFault:
    kind = random.choice([kind for kind in kinds if list_targets(kind, parts, links)])
    target = random.choice(list_targets(kind, parts, links))
    seconds = 0.0 if kind.seconds is None else random.uniform(*kind.seconds)
    return PlannedFault(
        number=0,
        kind=kind.name,
        parts=target,
        after=round(after, 2),
        until=round(after + seconds, 2),
        details=kind.draw(random),
    )


def list_targets(kind: FaultKind, parts: Mapping[str, str], links: Sequence[str]) -> list[tuple[str, ...]]:
    """Return what a kind of fault can hit: none if a run has no such part."""
    if LINK in kind.targets:
        return [tuple(link.split(">")) for link in links]
    if CLUSTER in kind.targets:
        return [(CLUSTER,)]
    if ALL_ETCD in kind.targets:
        return [("etcd",)]
    return [(name,) for name, of_kind in parts.items() if of_kind in kind.targets]


def _is_in_the_way(fault: PlannedFault, other: PlannedFault) -> bool:
    """Whether both hit the same target; a cluster has many objects, but each once."""
    same_kind = CLUSTER in fault.parts and fault.kind == other.kind
    snapshot = "redis-old-snapshot" in {fault.kind, other.kind} and _is_redis(fault) and _is_redis(other)
    return same_kind or snapshot or (CLUSTER not in fault.parts and fault.parts == other.parts)


def _are_of_etcd(fault: PlannedFault, other: PlannedFault, after: float) -> bool:
    """Whether both take a member of etcd away, the second one before the first one is back."""
    return all(each.parts[0].startswith("etcd") for each in (fault, other)) and other.until + _REJOIN_SECONDS > after


def _is_redis(fault: PlannedFault) -> bool:
    return fault.kind.startswith("redis") or fault.parts[0].startswith("redis")


def _number(fault: PlannedFault, number: int) -> PlannedFault:
    return PlannedFault(number, fault.kind, fault.parts, fault.after, fault.until, fault.details)
