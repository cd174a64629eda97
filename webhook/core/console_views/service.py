"""One service of the console: its limits, its breaker with its history, who is refused, and who waits."""

from collections.abc import Sequence

from msgspec import Struct

from webhook.core.console_views.breaker_diagram import DIAGRAM, Diagram, list_diagram_cells
from webhook.core.console_views.cell import Cells, LiveCell
from webhook.core.console_views.countdown import build_countdown
from webhook.core.console_views.outcome_counts import OutcomeCount
from webhook.core.console_views.overview import BREAKER_WORDS, WAITING_UNKNOWN, list_breaker_cells, list_quota_cells
from webhook.core.console_views.queue import list_row_cells
from webhook.core.console_views.refusals import (
    WORKLOADS_MAX,
    BreakerChange,
    CodeCount,
    RefusedWorkload,
    ServiceRecords,
    count_codes,
    count_workloads,
    list_changes,
)
from webhook.core.console_views.sparkline import draw_points
from webhook.core.console_views.status_document import (
    LimitStatus,
    PoolRow,
    ServerPage,
    ServiceRow,
    VariantStatus,
)
from webhook.core.reporting.queue_document import QueueDocument, QueueRow

LIMITS_MAX = 50
PODS_MAX = 10
BREAKER_ADVICE = {
    "CLOSED": "New Pods are admitted while no trigger fires.",
    "OPEN": "New Pods are denied until it admits probes. Roll back what fails: its new Pods may probe early."
    " If the cause is over, reset the breaker.",
    "HALF_OPEN": "A few Pods are admitted as probes, others are denied."
    " If it stays so, no Pod is created, or no outcome arrives.",
    "FORCED_OPEN": "An override denies all new Pods until it ends.",
    "FORCED_CLOSED": "An override admits Pods, whatever the triggers say, until it ends.",
}


class ServiceView(Struct, frozen=True, rename="camel"):
    """One service, and what is known of its Pods."""

    time: str
    service: ServiceRow
    pool: PoolRow | None
    limits: tuple[LimitStatus, ...]
    """Of the service; the fullest if there are many."""
    limits_left_out: int
    denied: tuple[int, ...]
    """Denials in each of the last minutes."""
    codes: tuple[CodeCount, ...]
    workloads: tuple[RefusedWorkload, ...]
    workloads_left_out: int
    is_cut: bool
    """There were more denials than those that are counted by code and workload."""
    changes: tuple[BreakerChange, ...]
    outcomes: tuple[OutcomeCount, ...]
    waiting: int | None
    """None: no process that releases Pods was found."""
    paused: str
    pods: tuple[QueueRow, ...]
    """The first waiting Pods; one without a name is of a namespace that the viewer may not read."""
    problems: tuple[str, ...]

    @property
    def diagram(self) -> Diagram:
        return DIAGRAM

    @property
    def variants(self) -> tuple[VariantStatus, ...]:
        """The variants that have a breaker, as far as it is known."""
        shares = self.service.shares
        return () if shares is None else tuple(found for found in shares.variants if found.breaker is not None)

    @staticmethod
    def name_state(state: str) -> str:
        return BREAKER_WORDS.get(state, state)

    def list_order(self) -> Sequence[str]:
        return [
            *(f"{change.generation} {change.state}" for change in self.changes),
            *(code.code for code in self.codes),
            *(f"{found.namespace}/{found.kind}/{found.name}" for found in self.workloads),
            *(row.uid for row in self.pods),
            *self.problems,
            *(f"variant {variant.name}" for variant in self.variants),
        ]

    def list_cells(self) -> Cells:
        """Return the cells of the page."""
        breaker, override = self.service.breaker, self.service.override
        cells = {
            "time": LiveCell(self.time[11:19] + " UTC"),
            "denied": LiveCell(str(sum(self.denied))),
            "denied-line": LiveCell(
                attributes={"points": draw_points(self.denied), "data-state": None if sum(self.denied) else "flat"}
            ),
            "waiting": LiveCell(*WAITING_UNKNOWN)
            if self.waiting is None
            else LiveCell(str(self.waiting), {"title": None}),
            "override": build_countdown(override.until if override is not None else None, self.time),
            **list_breaker_cells(breaker),
        }
        if breaker is not None:
            cells |= list_diagram_cells(breaker, self.time)
            cells["advice"] = LiveCell(BREAKER_ADVICE.get(breaker.state, ""))
            cells["reason"] = LiveCell(breaker.reason or "none")
            cells["probes"] = LiveCell(describe_probes(self.service))
        for variant in self.variants:
            of_variant = list_breaker_cells(variant.breaker)
            cells |= {f"variant/{variant.name}/{key}": cell for key, cell in of_variant.items()}
        for index, limit in enumerate((*self.limits, *(self.pool.windows if self.pool is not None else ()))):
            cells |= {f"limit/{index}/{key}": cell for key, cell in _list_limit_cells(limit).items()}
        cells |= {f"code/{code.code}": LiveCell(str(code.count)) for code in self.codes}
        cells |= {f"workload/{index}": LiveCell(str(found.count)) for index, found in enumerate(self.workloads)}
        for row in self.pods:
            cells |= list_row_cells(row, self.time)
        return cells


def build_service(
    server: ServerPage,
    service: ServiceRow,
    denied: Sequence[int],
    records: ServiceRecords,
    queue: QueueDocument | None,
    outcomes: Sequence[OutcomeCount] = (),
    problems: Sequence[str] = (),
) -> ServiceView:
    """Return the page of a service; without `queue` nothing is known of its waiting Pods."""
    limits = service.windows
    if len(limits) > LIMITS_MAX:
        limits = tuple(sorted(limits, key=lambda limit: -(limit.percent or 0))[:LIMITS_MAX])
    workloads = count_workloads(records.denied.decisions)
    depth = next((line for line in queue.services if line.service == service.name), None) if queue is not None else None
    return ServiceView(
        time=server.time,
        service=service,
        pool=next((pool for pool in server.pools if service.name in pool.members), None),
        limits=limits,
        limits_left_out=len(service.windows) - len(limits),
        denied=tuple(denied),
        codes=count_codes(records.denied.decisions),
        workloads=workloads[:WORKLOADS_MAX],
        workloads_left_out=max(0, len(workloads) - WORKLOADS_MAX),
        is_cut=records.denied.next is not None,
        changes=list_changes(records.all_newest_first, service.breaker) if service.breaker is not None else (),
        outcomes=tuple(outcomes),
        waiting=queue.matching if queue is not None else None,
        paused=(depth.paused or "") if depth is not None else "",
        pods=queue.pods[:PODS_MAX] if queue is not None else (),
        problems=tuple(problems),
    )


def describe_probes(service: ServiceRow) -> str:
    """Return the probes of a breaker as text."""
    breaker = service.breaker
    if breaker is None:
        return ""
    probes = breaker.probes
    if breaker.state == "HALF_OPEN":
        return f"{probes.succeeded} of {probes.needed or '?'} succeeded, {probes.leased} without an outcome yet"
    if breaker.state == "OPEN" and probes.early:
        return f"{probes.early} may probe early"
    return "none now"


def _list_limit_cells(limit: LimitStatus) -> Cells:
    cells = list_quota_cells(limit)
    used, surge = "?" if limit.used is None else limit.used, f" +{limit.surge} surge" if limit.surge else ""
    text = f"{used} of {limit.hard}{surge}"
    state = "not enforced" if limit.enforced is False else "full" if limit.full else ""
    return {**cells, "quota": LiveCell(text), "state": LiveCell(state, {"hidden": None if state else ""})}
