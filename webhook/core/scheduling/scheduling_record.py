"""Scheduling record: the newest decisions of the extender about one Pod, with their figures. Also its JSON form.

It names the Pod and nodes, and has nothing else of a Pod: no environment, image, label or annotation.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.policy_fields import Mode


class LoadOrigin(Struct, frozen=True, gc=False, rename="camel"):
    """Where the load of a node was from; `source` is "" without a load, `age_seconds` is that at the decision."""

    source: str = ""
    age_seconds: float | None = None


class ZoneFigures(Struct, frozen=True, gc=False, rename="camel"):
    """Quantities by resource: what no NUMA zone held, and what was free in each zone, the lowest first."""

    asked: Mapping[str, str]
    free: tuple[Mapping[str, str], ...]


class RefusedNode(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """`value` is what was compared with the limit of the rule, None for rules without one."""

    node: str
    value: float | None
    load: LoadOrigin
    zones: ZoneFigures | None = None
    """Only of the rule `numa`."""
    demand: float | None = None
    """What the Pod's own load would add to a value that is within the limit."""


class RuleRefusals(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """The nodes that one rule refused: their number, and a few of them. `reason` is its text in the Pod's Event."""

    rule: str
    reason: str
    count: int
    limit: float | None
    nodes: tuple[RefusedNode, ...]
    is_permanent: bool = False
    """These nodes, as they are, could never take the Pod. `zones` have what is free in them when nothing else runs."""


class FilterAttempt(Struct, frozen=True, gc=False, rename="camel"):
    """One `filter` call: numbers of nodes. In Audit and Warn refused nodes pass all the same."""

    at: datetime
    asked: int
    passed: int
    only: str = ""
    """The node that passed, if it was the only one: the scheduler then asks for no score."""
    refused: tuple[RuleRefusals, ...] = ()


class ScoredNode(Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """Terms of a node from 0 to 1, and its score from 0 to 10."""

    node: str
    score: int
    free_cpu: float
    free_memory: float
    latency: float
    near: float
    load: LoadOrigin
    risk: float | None = None
    """None without a weight."""


class ScoreAttempt(Struct, frozen=True, gc=False, rename="camel"):
    """One `prioritize` call: the number of nodes, the best of them, and the weights of the terms."""

    at: datetime
    asked: int
    best: tuple[ScoredNode, ...]
    weights: Mapping[str, float]


class PreemptAttempt(Struct, frozen=True, gc=False, rename="camel"):
    """One `preempt` call: how many candidates there were, and how many passed."""

    at: datetime
    asked: int
    passed: int


class SchedulingRecord(Struct, frozen=True, gc=False, rename="camel"):
    """One Pod. `attempts` counts `filter` calls; the parts are those of the newest calls."""

    uid: str
    namespace: str
    name: str
    service: str
    mode: Mode
    first_at: datetime
    at: datetime
    attempts: int = 0
    filter: FilterAttempt | None = None
    score: ScoreAttempt | None = None
    preempt: PreemptAttempt | None = None
    node: str = ""
    """The node that the Pod was bound to, as the watch shows it."""
    node_at: datetime | None = None

    @property
    def newest_score(self) -> ScoreAttempt | None:
        """The scores of the newest attempt; None if it had none."""
        if self.score is None or (self.filter is not None and self.score.at < self.filter.at):
            return None
        return self.score


_Attempt = TypeVar("_Attempt", FilterAttempt, ScoreAttempt, PreemptAttempt)


def merge_records(records: Iterable[SchedulingRecord]) -> dict[str, SchedulingRecord]:
    """Return one record for each Pod, by uid, from those of several replicas: the newest call of each kind counts."""
    found: dict[str, SchedulingRecord] = {}
    for record in records:
        known = found.get(record.uid)
        found[record.uid] = record if known is None else _merge_pair(known, record)
    return found


def _merge_pair(first: SchedulingRecord, other: SchedulingRecord) -> SchedulingRecord:
    older, newer = sorted((first, other), key=lambda record: record.at)
    bound = newer if newer.node else older
    return replace(
        newer,
        first_at=min(first.first_at, other.first_at),
        attempts=first.attempts + other.attempts,
        filter=_choose_newest(older.filter, newer.filter),
        score=_choose_newest(older.score, newer.score),
        preempt=_choose_newest(older.preempt, newer.preempt),
        node=bound.node,
        node_at=bound.node_at,
    )


def _choose_newest(older: _Attempt | None, newer: _Attempt | None) -> _Attempt | None:
    if older is None or newer is None:
        return newer or older
    return older if older.at > newer.at else newer
