"""Queue of the console: waiting Pods by class and place, with the cause, the expected moment and the expiry."""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from webhook.core.console_views.cell import Cells, LiveCell
from webhook.core.console_views.countdown import build_countdown
from webhook.core.reporting.queue_document import QueueDepth, QueueDocument, QueueRow, WaitCause, format_duration

ROWS = 50
BY_PLACE, BY_WAIT = "place", "wait"
CAUSE_WORDS: Mapping[str, str] = {
    WaitCause.PAUSED: "Paused",
    WaitCause.BREAKER_OPEN: "Breaker open",
    WaitCause.QUOTA_EXCEEDED: "Quota full",
    WaitCause.LIVE_PODS: "Live Pods at limit",
    WaitCause.STORE_UNAVAILABLE: "Store unavailable",
    WaitCause.BEHIND: "Behind others",
    WaitCause.GROUP_INCOMPLETE: "Group incomplete",
    WaitCause.RELEASE_FAILS: "Release fails",
}
"""Another cause, of a newer process, is shown as it is."""


class QueueQuery(Struct, frozen=True):
    """Which Pods to show, by class and place or by how long they wait, and the number of the page."""

    service: str = ""
    namespace: str = ""
    sla_class: str = ""
    sort: str = BY_PLACE
    page: int = 1

    @property
    def is_filtered(self) -> bool:
        return bool(self.service or self.namespace or self.sla_class)


class ClassDepth(Struct, frozen=True, rename="camel"):
    """Waiting Pods of one class."""

    name: str
    waiting: int
    oldest_seconds: int


class QueueView(Struct, frozen=True, rename="camel"):
    """One page of waiting Pods."""

    time: str
    query: QueueQuery
    classes: tuple[ClassDepth, ...] = ()
    """The highest first; none without the right to see services."""
    paused: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    """Pods that cannot be released."""
    pods: tuple[QueueRow, ...] = ()
    """A Pod without a name is of a namespace that the viewer may not read."""
    waiting: int = 0
    matching: int = 0
    is_cut: bool = False
    """The leader has not named all Pods: more may match."""
    pages: int = 1
    problem: str = ""
    """Why the queue is not known."""
    remedy: str = ""

    def list_order(self) -> Sequence[str]:
        return [*(_make_key(row) for row in self.pods), *self.paused, *self.failing, self.problem]

    def list_cells(self) -> Cells:
        """Return the cells of the page."""
        cells = {"time": LiveCell(self.time[11:19] + " UTC"), "waiting": LiveCell(str(self.waiting))}
        for depth in self.classes:
            cells[f"class/{depth.name}/waiting"] = LiveCell(str(depth.waiting))
            cells[f"class/{depth.name}/oldest"] = LiveCell(format_duration(depth.oldest_seconds))
        for row in self.pods:
            cells |= list_row_cells(row, self.time)
        return cells


def list_row_cells(row: QueueRow, time: str) -> Cells:
    """Return the cells of a waiting Pod, by its uid."""
    key, late = _make_key(row), row.early_end
    turn = row.expected_at or row.not_before
    cause = LiveCell(CAUSE_WORDS.get(row.cause, row.cause), {"data-state": row.cause})
    return {
        f"{key}/place": LiveCell(str(row.class_place)),
        f"{key}/age": LiveCell(format_duration(row.waiting_seconds)),
        f"{key}/cause": cause,
        f"{key}/why": LiveCell(row.why),
        f"{key}/expected": build_countdown(turn, time, "now" if turn else "unknown"),
        f"{key}/expires": build_countdown(row.expires_at, time, "now" if row.expires_at else "never"),
        f"{key}/late": LiveCell("before its turn" if late else "", {"hidden": None if late else ""}),
    }


def build_queue(document: QueueDocument, query: QueueQuery, *, with_services: bool = True) -> QueueView:
    """Return the page that the query names; `document` is of the leader, already of the query's service."""
    ranks = rank_classes(document.services)
    pods = [
        row
        for row in document.pods
        if query.sla_class in {"", row.sla_class} and query.namespace in {"", row.namespace}
    ]
    if query.sort == BY_WAIT:
        pods.sort(key=lambda row: (row.since, row.class_place, row.queue))
    else:
        pods.sort(key=lambda row: (ranks.get(row.sla_class, len(ranks)), row.class_place, row.queue, row.place))
    pages = max(1, -(-len(pods) // ROWS))
    page = min(max(1, query.page), pages)
    return QueueView(
        time=document.time,
        query=replace(query, page=page),
        classes=_sum_classes(document.services) if with_services else (),
        paused=_list_paused(document.services) if with_services else (),
        failing=_list_failing(document.services) if with_services else (),
        pods=tuple(pods[(page - 1) * ROWS : page * ROWS]),
        waiting=document.waiting if with_services else len(pods),
        matching=len(pods),
        is_cut=document.matching > len(document.pods),
        pages=pages,
    )


def rank_classes(depths: Sequence[QueueDepth]) -> Mapping[str, int]:
    """Return the rank of each class: the document has services by class, the highest first."""
    return {name: rank for rank, name in enumerate(dict.fromkeys(depth.sla_class for depth in depths))}


def hide_pod(row: QueueRow) -> QueueRow:
    """Return a waiting Pod without what names it, and without texts that may."""
    why = "" if row.cause == WaitCause.RELEASE_FAILS else row.why
    return replace(row, namespace="", name="", owner="", uid="", why=why)


def _make_key(row: QueueRow) -> str:
    return row.uid or f"{row.queue}/{row.place}"


def _sum_classes(depths: Sequence[QueueDepth]) -> tuple[ClassDepth, ...]:
    """Return the depth of each class that has waiting Pods."""
    found: dict[str, ClassDepth] = {}
    for depth in depths:
        if depth.waiting:
            sums = found.get(depth.sla_class, ClassDepth(depth.sla_class, 0, 0))
            oldest = max(sums.oldest_seconds, depth.oldest_seconds)
            found[depth.sla_class] = ClassDepth(depth.sla_class, sums.waiting + depth.waiting, oldest)
    return tuple(found.values())


def _list_paused(depths: Sequence[QueueDepth]) -> tuple[str, ...]:
    return tuple(f"{depth.service} is paused {depth.paused}" for depth in depths if depth.paused)


def _list_failing(depths: Sequence[QueueDepth]) -> tuple[str, ...]:
    """Return what fails of each service, without the names of Pods."""
    return tuple(
        f"{failing.pods} {'Pod' if failing.pods == 1 else 'Pods'} of {depth.service or 'no service'}"
        f" cannot be released: {failing.reason}"
        for depth in depths
        for failing in depth.failing
    )
