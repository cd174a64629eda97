"""Overview of the console: services by trouble, page by page."""

from collections.abc import Mapping, Sequence
from enum import IntEnum

from msgspec import Struct

from webhook.core.console_views.cell import Cells, LiveCell, format_countdown
from webhook.core.console_views.recent_denials import MINUTES
from webhook.core.console_views.sparkline import draw_points
from webhook.core.console_views.status_document import BreakerStatus, LimitStatus, QueueLine, ServerPage, ServiceRow

ROWS = 50
_NEARLY_FULL_PERCENT = 80
_OPEN = frozenset({"OPEN", "FORCED_OPEN"})
WAITING_UNKNOWN = "?", {"title": "no process that releases Pods was found"}
_NO_COUNTS = (0,) * MINUTES


class Trouble(IntEnum):
    """What is wrong with a service, the worst first."""

    BREAKER_OPEN = 0
    BREAKER_PROBING = 1
    QUOTA_FULL = 2
    WAITING = 3
    DENIED = 4
    UNKNOWN = 5
    NEARLY_FULL = 6
    NONE = 7


TROUBLE_WORDS = {
    Trouble.BREAKER_OPEN: "Breaker open",
    Trouble.BREAKER_PROBING: "Probing",
    Trouble.QUOTA_FULL: "Quota full",
    Trouble.WAITING: "Pods waiting",
    Trouble.DENIED: "Pods denied",
    Trouble.UNKNOWN: "Not known yet",
    Trouble.NEARLY_FULL: "Nearly full",
    Trouble.NONE: "Fine",
}
BREAKER_WORDS = {
    "CLOSED": "Closed",
    "OPEN": "Open",
    "HALF_OPEN": "Half open",
    "FORCED_OPEN": "Held open",
    "FORCED_CLOSED": "Held closed",
}


class OverviewRow(Struct, frozen=True, rename="camel"):
    """One service."""

    name: str
    sla_class: str
    trouble: str
    """The name of a Trouble."""
    breaker: BreakerStatus | None
    fullest: LimitStatus | None
    """Its limit with the least room."""
    waiting: int | None
    """None: no process that releases Pods was found."""
    denied: tuple[int, ...]
    """Denials in each of the last minutes."""
    has_override: bool = False

    @property
    def denied_sum(self) -> int:
        return sum(self.denied)


class OverviewQuery(Struct, frozen=True):
    """Which services to show: those whose name has `text`, those in trouble only, and the number of the page."""

    text: str = ""
    only_trouble: bool = False
    page: int = 1


class Overview(Struct, frozen=True, rename="camel"):
    """One page of services, and the state of the server that knows them."""

    time: str
    query: OverviewQuery
    rows: tuple[OverviewRow, ...]
    matching: int
    pages: int
    in_trouble: int
    services: int
    problems: tuple[str, ...]
    """What is wrong with the server itself, or cannot be read."""

    def list_order(self) -> Sequence[str]:
        return [*(row.name for row in self.rows), *self.problems]

    def list_cells(self) -> Cells:
        """Return the cells of the page."""
        cells = {"time": LiveCell(self.time[11:19] + " UTC"), "in-trouble": LiveCell(str(self.in_trouble))}
        for row in self.rows:
            cells |= {f"{row.name}/{key}": cell for key, cell in _list_row_cells(row).items()}
        return cells


class JudgedServices(Struct, frozen=True):
    """All services, those in the worst trouble first: what the pages of an overview have in common."""

    server: ServerPage
    services: tuple[tuple[Trouble, ServiceRow], ...]
    denials: Mapping[str, Sequence[int]]
    """Of the services that have some."""
    waiting: Mapping[str, int] | None
    """None: no process that releases Pods was found."""
    in_trouble: int
    problems: tuple[str, ...] = ()

    def count_waiting(self, service: str) -> int | None:
        return None if self.waiting is None else self.waiting.get(service, 0)


def judge_services(
    server: ServerPage,
    denials: Mapping[str, Sequence[int]],
    queues: Sequence[QueueLine] | None,
    problems: Sequence[str] = (),
) -> JudgedServices:
    """Return the services by trouble. Without `queues` nothing is known of waiting Pods."""
    waiting = None if queues is None else {line.service: line.waiting for line in queues}
    denied = {name: sum(counts) for name, counts in denials.items()}
    judged = [
        (_judge(service, (waiting or {}).get(service.name, 0), denied.get(service.name, 0)), service)
        for service in server.services
    ]
    judged.sort(key=lambda pair: (pair[0], -denied.get(pair[1].name, 0), pair[1].name))
    in_trouble = sum(trouble < Trouble.NEARLY_FULL for trouble, _ in judged)
    return JudgedServices(server, tuple(judged), denials, waiting, in_trouble, (*_list_problems(server), *problems))


def build_overview(judged: JudgedServices, query: OverviewQuery) -> Overview:
    """Return the page that the query names, the last one if there are not so many."""
    text = query.text.lower()
    shown = judged.services[: judged.in_trouble] if query.only_trouble else judged.services
    if text:
        shown = tuple(pair for pair in shown if text in pair[1].name.lower())
    pages = max(1, -(-len(shown) // ROWS))
    page = min(max(1, query.page), pages)
    rows = tuple(
        OverviewRow(
            service.name,
            service.sla_class,
            trouble.name,
            service.breaker,
            find_fullest(service),
            judged.count_waiting(service.name),
            tuple(judged.denials.get(service.name, _NO_COUNTS)),
            service.override is not None,
        )
        for trouble, service in shown[(page - 1) * ROWS : page * ROWS]
    )
    return Overview(
        time=judged.server.time,
        query=OverviewQuery(query.text, query.only_trouble, page),
        rows=rows,
        matching=len(shown),
        pages=pages,
        in_trouble=judged.in_trouble,
        services=len(judged.services),
        problems=judged.problems,
    )


def find_fullest(service: ServiceRow) -> LimitStatus | None:
    """Return the limit with the least room, the first of equal ones; None without limits."""
    return max(service.windows, key=lambda limit: -1 if limit.percent is None else limit.percent, default=None)


def _judge(service: ServiceRow, waiting: int, denied: int) -> Trouble:
    breaker, fullest = service.breaker, find_fullest(service)
    percent = fullest.percent if fullest is not None else None
    causes = (
        (Trouble.BREAKER_OPEN, breaker is not None and breaker.state in _OPEN),
        (Trouble.BREAKER_PROBING, breaker is not None and breaker.state == "HALF_OPEN"),
        (Trouble.QUOTA_FULL, any(limit.full for limit in service.windows)),
        (Trouble.WAITING, waiting > 0),
        (Trouble.DENIED, denied > 0),
        (Trouble.UNKNOWN, not service.known),
        (Trouble.NEARLY_FULL, percent is not None and percent >= _NEARLY_FULL_PERCENT),
    )
    return next((trouble for trouble, holds in causes if holds), Trouble.NONE)


def _list_problems(server: ServerPage) -> list[str]:
    found = [f"not ready: {reason}" for reason in server.not_ready]
    if not server.store.healthy:
        mode = f" ({server.store.mode})" if server.store.mode else ""
        found.append(f"the store does not answer{mode}: {server.store.error}")
    return found + [f"policy rejected: {error}" for error in server.policy.errors]


def _list_row_cells(row: OverviewRow) -> Cells:
    trouble = Trouble[row.trouble]
    return {
        "trouble": LiveCell(TROUBLE_WORDS[trouble], {"data-state": row.trouble}),
        **list_breaker_cells(row.breaker),
        **list_quota_cells(row.fullest),
        "waiting": LiveCell(*WAITING_UNKNOWN) if row.waiting is None else LiveCell(str(row.waiting), {"title": None}),
        "denied": LiveCell(str(row.denied_sum)),
        "denied-line": LiveCell(
            attributes={"points": draw_points(row.denied), "data-state": None if row.denied_sum else "flat"}
        ),
    }


def list_breaker_cells(breaker: BreakerStatus | None) -> Cells:
    """Return the breaker's state, and its countdown, which the page continues by itself."""
    if breaker is None:
        return {"breaker": LiveCell("None"), "countdown": LiveCell("", {"data-until": None})}
    state = LiveCell(
        BREAKER_WORDS.get(breaker.state, breaker.state), {"data-state": breaker.state, "title": breaker.reason}
    )
    if breaker.open_until is None or not breaker.open_remaining_seconds:
        return {"breaker": state, "countdown": LiveCell("", {"data-until": None})}
    left = format_countdown(breaker.open_remaining_seconds)
    return {"breaker": state, "countdown": LiveCell(left, {"data-until": breaker.open_until})}


def list_quota_cells(limit: LimitStatus | None) -> Cells:
    """Return the use of a limit as text and as a gauge, and the countdown to room."""
    if limit is None:
        gauge = LiveCell(attributes={"width": "0"})
        return {"quota": LiveCell("None"), "gauge": gauge, "room": LiveCell("", {"data-until": None})}
    text = f"{'?' if limit.used is None else limit.used} of {limit.hard} {limit.resource} in {limit.window}"
    percent = limit.percent or 0
    level = "full" if limit.full else "high" if percent >= _NEARLY_FULL_PERCENT else "low"
    room = format_countdown(limit.next_free_seconds) if limit.next_free and limit.next_free_seconds else ""
    return {
        "quota": LiveCell(text),
        "gauge": LiveCell(attributes={"width": str(min(100, percent)), "data-state": level}),
        "room": LiveCell(room, {"data-until": limit.next_free if room else None}),
    }
