"""The faults of a history as spans of time, by what they can do to the product."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

from tests.chaos.checkers.late_answers import LateAnswers, list_late_answers
from tests.chaos.history import BEGAN, EXITED, FOUND, SLOW_NODE, TAG, History
from tests.chaos.shards import find_shard

NO_FAULT = "none"
STORE_KINDS = frozenset({"redis", "sentinel"})
"""Kinds of parts whose faults can take the store away."""
SETTLE_SECONDS = 12.0
"""A replica that owes nothing waits so long for the others after an outage: 10 s, and what a round takes."""
NOTICE_SECONDS = 1.5
"""A tick each second notices what no call has noticed."""
_CALLED = frozenset({("server",), ("kube-apiserver",), ("kube-apiserver", "server")})
"""Kinds of the parts of faults by which calls of webhooks fail."""
LATE_ANSWERS = "late answers"
LATE_SECONDS = 2.0
"""The deadline of a call that is late, and its wait in the server."""
LONGEST_SECONDS = 5.0
"""The longest that a server waits for an answer of a Redis."""
RUNNING_SECONDS = 3.0
"""A server that runs has shown its status within this time."""
REJOIN_SECONDS = 5.0
"""By then a master that was away is one of the majority of its Cluster again, or another one has its place."""
_FOREVER = float("inf")


class FaultSpan(NamedTuple):
    """A fault that had an effect. It ends at `ended`, infinity if the history does not say when."""

    number: int
    kind: str
    parts: tuple[str, ...]
    began: float
    ended: float
    tags: frozenset[str] = frozenset()
    """What it is about, of a fault of single slots of a Cluster."""

    def __str__(self) -> str:
        return f"{self.kind} {'-'.join(self.parts)}".strip()

    @property
    def steps_clock(self) -> bool:
        return "clock" in self.kind

    @property
    def ends_process(self) -> bool:
        return any(word in self.kind for word in ("kill", "restart", "stop", "replace", "rollout"))

    @property
    def takes_away(self) -> bool:
        """Whether the other nodes of a Cluster lack a node that it hits. They compare wall clocks, too."""
        return self.ends_process or self.steps_clock or self.kind in {"pause", EXITED, "redis-old-snapshot"}


class Faults:
    """All faults of a history, in the order of their begin."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._parts = history.plan.parts
        self._shards: Mapping[str, int] = history.plan.details.get("shards", {})
        self.spans = sorted(_list_spans(history), key=lambda span: span.began)
        self._moved = frozenset(tag for span in self.spans for tag in span.tags)
        """Tags that may be on any node."""
        self._takes_majority = frozenset(self._list_majority_losses())

    @property
    def has_clock_steps(self) -> bool:
        """Whether a clock was stepped: then times of parts cannot be compared with each other."""
        return any(span.steps_clock for span in self.spans)

    def list_active(
        self, begin: float, end: float, *, after: float = 0, of: Callable[[FaultSpan], bool] | None = None
    ) -> list[FaultSpan]:
        """Return the faults that overlap a time, or ended at most `after` seconds before it."""
        return [
            span
            for span in self.spans
            if span.began <= end and begin <= span.ended + after and (of is None or of(span))
        ]

    def describe(self, begin: float, end: float) -> str:
        """Return the faults that were active, and else the newest that had ended."""
        active = self.list_active(begin, end)
        if active:
            return f"fault active: {', '.join(map(str, active))}"
        before = [span for span in self.spans if span.ended < begin]
        if not before:
            return "no fault"
        newest = max(before, key=lambda span: span.ended)
        return f"no fault ({newest} ended {begin - newest.ended:.1f} s before)"

    def is_of(self, span: FaultSpan, kinds: Iterable[str]) -> bool:
        """Return whether a fault is of a part of these kinds, or of a link of one."""
        return any(self._parts.get(part, part) in kinds for part in span.parts)

    def is_of_store(self, span: FaultSpan) -> bool:
        """Return whether a fault can take the store away from a server, or change what it has."""
        return span.kind == LATE_ANSWERS or span.kind.startswith("redis-") or self.is_of(span, STORE_KINDS)

    def loses_data(self, span: FaultSpan) -> bool:
        """Return whether the store may forget what it had acknowledged: also by a failover to a replica that lags."""
        if any(word in span.kind for word in ("flush", "failover", "snapshot", "empty")) and "script" not in span.kind:
            return True
        return self._is_replicated and self.is_of(span, STORE_KINDS)

    def is_of_calls(self, span: FaultSpan) -> bool:
        """Return whether a fault can let a call of the API server fail: of a server, an API server, or their link.

        A server answers without etcd, and with whatever token and rights it has at the API server.
        """
        kinds = tuple(self._parts.get(part, part) for part in span.parts)
        return kinds in _CALLED and "token" not in span.kind

    @cached_property
    def _is_replicated(self) -> bool:
        """Whether another Redis may replace one that fails: there are more of them than shards."""
        masters = len(set(self._shards.values())) or 1
        return sum(kind == "redis" for kind in self._parts.values()) > masters

    @cached_property
    def store_spans(self) -> Sequence[FaultSpan]:
        """The faults of the store, each until all servers had settled."""
        late = map(self._build_late_span, list_late_answers(self._history))
        spans = [span for span in (*self.spans, *late) if self.is_of_store(span)]
        return [span._replace(ended=self._find_settled(span)) for span in spans]

    def _find_settled(self, span: FaultSpan) -> float:
        """Return when no server was in a fallback any more, as far as their statuses tell."""
        if span.ended == _FOREVER:
            return span.ended
        latest = span.ended + SETTLE_SECONDS
        if self._is_replicated:
            return latest  # a failover takes seconds, in which both primaries are well
        servers = {part for part, kind in self._parts.items() if kind == "server"}
        settled: set[str] = set()
        for status in self._history.statuses:
            store = status.document.get("store")
            if status.part not in servers or not isinstance(store, dict) or status.at <= span.ended + NOTICE_SECONDS:
                continue
            if store.get("healthy") and not store.get("mode"):
                settled.add(status.part)
            else:
                settled.discard(status.part)
            if settled == servers:
                return min(status.at, latest)
        return latest

    def list_store_spans(self, begin: float, end: float, tags: Iterable[str] = ()) -> list[FaultSpan]:
        """Return the faults of the store that had an effect in a time, of a Cluster on the nodes of these tags."""
        return [
            span
            for span in self.store_spans
            if span.began - NOTICE_SECONDS <= end and begin <= span.ended and self.reaches(span, tags)
        ]

    def reaches(self, span: FaultSpan, tags: Iterable[str]) -> bool:
        """Return whether a fault is not one of other nodes alone: in a Cluster each is treated separately."""
        wanted, hit = frozenset(tags), self._list_hit(span)
        if not wanted or not hit or (span.number, span.began) in self._takes_majority:
            return True
        if span.tags:
            return not span.tags.isdisjoint(wanted)
        return not self._moved.isdisjoint(wanted) or not hit.isdisjoint(map(find_shard, wanted))

    def _list_hit(self, span: FaultSpan) -> set[int]:
        """Return the shards whose nodes a fault hits; none if it is no fault of single nodes."""
        return {self._shards[part] for part in span.parts if part in self._shards}

    def _list_majority_losses(self) -> Iterable[tuple[int, float]]:
        """Yield number and begin of faults by which two shards lack a master at once: the third one is down then."""
        away = [span for span in self.spans if span.takes_away and self._list_hit(span)]
        for one, other in combinations(away, 2):
            is_at_once = one.began <= other.ended + REJOIN_SECONDS and other.began <= one.ended + REJOIN_SECONDS
            if is_at_once and self._list_hit(one) != self._list_hit(other):
                yield from ((one.number, one.began), (other.number, other.began))

    def _build_late_span(self, late: LateAnswers) -> FaultSpan:
        """Return late answers as a fault, of nodes of a Cluster where only nodes were hit, and the server ran."""
        begin = late.noticed - LONGEST_SECONDS
        hit = self.list_active(begin, late.noticed, of=lambda span: self._delays_answers(span, late.part))
        nodes: list[str] = []
        is_of_nodes = all(self._list_hit(span) and not span.tags for span in hit)
        if hit and is_of_nodes and self._did_run(late.part, late.noticed):
            nodes = [part for span in hit for part in span.parts if part in self._shards]
            nodes += [parts[0] for parts, since, until in self._slow if since <= late.noticed and begin <= until]
        return FaultSpan(0, LATE_ANSWERS, (late.part, *nodes), late.noticed - LATE_SECONDS, late.ended)

    def _did_run(self, server: str, at: float) -> bool:
        """Return whether a server showed its status shortly before; else it may have been late itself."""
        return any(
            status.part == server and at - RUNNING_SECONDS <= status.at <= at for status in self._history.statuses
        )

    def _delays_answers(self, span: FaultSpan, server: str) -> bool:
        """Return whether a fault can let answers of the store to a server be late: of the store, or of the server."""
        callers = [part for part in span.parts if self._parts.get(part) in {"server", "controller"}]
        return span.parts == (server,) or (self.is_of_store(span) and callers in ([], [server]))

    @cached_property
    def _slow(self) -> Sequence[tuple[tuple[str, ...], float, float]]:
        return list_unplanned(self._history, SLOW_NODE)


def _list_spans(history: History) -> Iterable[FaultSpan]:
    """Yield what the nemesis did, and what happened by itself: that has number 0."""
    began = {fault.number: fault for fault in history.faults if fault.phase == BEGAN and fault.number}
    ends = {fault.number: fault for fault in history.faults if fault.phase != BEGAN}
    lasting = {planned.number for planned in history.plan.schedule if planned.until > planned.after}
    for number, fault in began.items():
        end = ends.get(number)
        ended = end.at if end else _FOREVER if number in lasting else fault.at
        found = (str(end.details[FOUND]),) if end and FOUND in end.details else ()
        tags = frozenset({str(fault.details[TAG])} if TAG in fault.details else ())
        yield FaultSpan(number, fault.kind, (*fault.parts, *found), fault.at, ended, tags)
    for fault in history.faults:
        if not fault.number and fault.kind == EXITED:
            yield FaultSpan(0, fault.kind, fault.parts, fault.at - NOTICE_SECONDS, fault.at)


def list_unplanned(history: History, kind: str) -> list[tuple[tuple[str, ...], float, float]]:
    """Return the parts, begin and end of each fault of a kind that the harness has noticed."""
    found: list[tuple[tuple[str, ...], float, float]] = []
    began: dict[tuple[str, ...], float] = {}
    for fault in history.faults:
        if fault.kind == kind and fault.phase == BEGAN:
            began[fault.parts] = fault.at
        elif fault.kind == kind and fault.parts in began:
            found.append((fault.parts, began.pop(fault.parts), fault.at))
    return [*found, *((parts, at, _FOREVER) for parts, at in began.items())]
