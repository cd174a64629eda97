"""Impact of a candidate policy: requests under two policies in virtual time, and how their decisions differ."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from typing import Any

from msgspec import Struct

from webhook.commands.pages.table import format_table
from webhook.commands.simulator import Admission
from webhook.core.admission.decision import Decision, Verdict
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.placement.plan import SERVICE_LABEL
from webhook.errors import UserError
from webhook.replay.engine import Replay
from webhook.replay.events import OutcomeSeen, OutcomesSeen, PodAsks, PolicyChange, ReplayEvent, StatusAsked

_EXAMPLES_MAX = 3
_NONE = "(none)"
_OWN_KEYS = frozenset({HASH_ANNOTATION, SERVICE_LABEL})


class Difference(StrEnum):
    """What the candidate changes for a Pod."""

    DENIED = "denied"
    """It is no longer admitted: denied, or made to wait."""
    ADMITTED = "admitted"
    """It is admitted now."""
    OWNER = "owner"
    PLACEMENT = "placement"
    RESOURCES = "resources"
    CHARGE = "charge"
    FINDINGS = "findings"
    """Other codes, or other modes of them."""


class PodImpact(Struct, frozen=True):
    """One Pod whose decisions differ. `before` and `after` are verdicts, with the message of a denial."""

    pod: str
    differences: tuple[Difference, ...]
    before: str
    after: str


class ServiceImpact(Struct, frozen=True, rename="camel"):
    """Requests for Pods of one service: the owner by the former policy, else by the candidate; "" for none."""

    service: str
    requests: int
    denied_before: int
    denied_after: int
    differences: Mapping[Difference, int]
    examples: tuple[PodImpact, ...]
    """The first Pod of each new combination of differences."""

    @property
    def is_changed(self) -> bool:
        return bool(self.differences)


class ImpactReport(Struct, frozen=True, rename="camel"):
    """Requests for Pods under two policies, whose counters began empty. Times are of the first and last request."""

    before: str
    candidate: str
    requests: int
    left_out: Mapping[str, int]
    """Reasons for which requests were not judged, with their number."""
    services: tuple[ServiceImpact, ...]
    """The most changed one first."""
    since: str = ""
    until: str = ""

    @property
    def has_denials(self) -> bool:
        return any(service.differences.get(Difference.DENIED) for service in self.services)

    @property
    def has_changes(self) -> bool:
        return any(service.is_changed for service in self.services)

    def format_lines(self) -> Iterator[str]:
        """Yield the report for people."""
        span = f" from {self.since} to {self.until}" if self.since else ""
        yield f"{self.requests} requests for Pods{span}, under {self.before} and {self.candidate}"
        changed = [service for service in self.services if service.is_changed]
        if changed:
            kinds = [kind for kind in Difference if any(kind in service.differences for service in changed)]
            heading = ("SERVICE", "REQUESTS", "DENIED BEFORE", "DENIED AFTER", *(kind.upper() for kind in kinds))
            yield from format_table([heading, *(_format_row(service, kinds) for service in changed)])
            for service in changed:
                yield from _format_examples(service)
        same = [service.service or _NONE for service in self.services if not service.is_changed]
        if same:
            yield f"unchanged: {', '.join(same)}"
        yield from (f"left out: {count}: {reason}" for reason, count in self.left_out.items())


def _format_row(service: ServiceImpact, kinds: Iterable[Difference]) -> tuple[str, ...]:
    figures = (service.requests, service.denied_before, service.denied_after)
    counts = (service.differences.get(kind, 0) for kind in kinds)
    return (service.service or _NONE, *(str(figure) for figure in (*figures, *counts)))


def _format_examples(service: ServiceImpact) -> Iterator[str]:
    for pod in service.examples:
        yield f"{service.service or _NONE}: {pod.pod}: {', '.join(pod.differences)}"
        if pod.before != pod.after:
            yield f"  before: {pod.before}"
            yield f"  after:  {pod.after}"


class _Tally:
    """The figures of one service while requests are judged."""

    def __init__(self) -> None:
        self.requests = self.denied_before = self.denied_after = 0
        self.differences: Counter[Difference] = Counter()
        self.examples: dict[tuple[Difference, ...], PodImpact] = {}


class Impact:
    """Judges each request by both policies. Counters of both begin empty."""

    def __init__(self, before: Replay, after: Replay) -> None:
        self._before = before
        self._after = after
        self._tallies: dict[str, _Tally] = {}
        self.left_out: Counter[str] = Counter()
        """Reasons for which requests could not be judged by both policies."""

    async def add(self, event: ReplayEvent) -> None:
        """Apply one event to both policies, except changes of the policy and queries."""
        match event:
            case PolicyChange() | StatusAsked():
                return
            case PodAsks():
                try:
                    admissions = await self._before.admit(event), await self._after.admit(event)
                except UserError as error:
                    self.left_out[str(error)] += 1
                else:
                    self._compare(event, *admissions)
            case OutcomeSeen() | OutcomesSeen():
                for replay in (self._before, self._after):
                    with suppress(UserError):  # one of the policies may lack the service
                        await replay.play(event)
            case _:
                await self._before.play(event)
                await self._after.play(event)

    @property
    def requests(self) -> int:
        """Return how many requests both policies have judged."""
        return sum(tally.requests for tally in self._tallies.values())

    def list_services(self) -> list[ServiceImpact]:
        """Return the services with requests, the most changed one first."""
        found = [
            ServiceImpact(
                service,
                tally.requests,
                tally.denied_before,
                tally.denied_after,
                dict(sorted(tally.differences.items())),
                tuple(list(tally.examples.values())[:_EXAMPLES_MAX]),
            )
            for service, tally in self._tallies.items()
        ]
        return sorted(found, key=_rank)

    def _compare(self, event: PodAsks, before: Admission, after: Admission) -> None:
        former, new = before.validated, after.validated
        tally = self._tallies.setdefault(former.service or new.service or "", _Tally())
        tally.requests += 1
        tally.denied_before += not former.allowed
        tally.denied_after += not new.allowed
        differences = tuple(find_differences(before, after))
        tally.differences.update(differences)
        if differences and differences not in tally.examples:
            name = f"{event.namespace}/{former.pod}"
            tally.examples[differences] = PodImpact(name, differences, _describe(former), _describe(new))


def find_differences(before: Admission, after: Admission) -> list[Difference]:
    """Return how the decisions about one Pod differ, in the order of `Difference`."""
    former, new = before.validated, after.validated
    found = {
        Difference.DENIED: _is_admitted(former) and not _is_admitted(new),
        Difference.ADMITTED: _is_admitted(new) and not _is_admitted(former),
        Difference.OWNER: former.service != new.service,
        Difference.PLACEMENT: _select_placement(before.pod) != _select_placement(after.pod),
        Difference.RESOURCES: _select_resources(before.pod) != _select_resources(after.pod),
        Difference.CHARGE: _select_charge(former) != _select_charge(new),
        Difference.FINDINGS: _list_findings(former) != _list_findings(new),
    }
    return [difference for difference, is_found in found.items() if is_found]


def _is_admitted(decision: Decision) -> bool:
    """Whether the Pod may be scheduled now: a waiting one is created, and may not."""
    return decision.allowed and decision.verdict is not Verdict.QUEUE


def _select_placement(pod: Mapping[str, Any]) -> list[Any]:
    """Return the fields of a Pod that a placement may set."""
    metadata, spec = pod.get("metadata") or {}, pod.get("spec") or {}
    keys = [
        {key: value for key, value in (metadata.get(field) or {}).items() if key not in _OWN_KEYS}
        for field in ("labels", "annotations")
    ]
    without = {"containers", "initContainers", "resources", "schedulingGates"}
    return [*keys, {field: value for field, value in spec.items() if field not in without}]


def _select_resources(pod: Mapping[str, Any]) -> list[Any]:
    spec = pod.get("spec") or {}
    containers = [*(spec.get("initContainers") or []), *(spec.get("containers") or [])]
    return [spec.get("resources"), *(container.get("resources") for container in containers)]


def _select_charge(decision: Decision) -> Any:
    """Return the counters that the Pod is charged to, with the amounts; None without limits. `hard` is no part."""
    asked = decision.charge.asked
    if asked is None or not asked.plan.limits:
        return None
    plan = asked.plan
    pool = plan.pool.name if plan.pool else ""
    counters = {
        (holder, window.seconds, limit.counts): asked.cost.get(limit.counts, 0) for holder, window, limit in plan.limits
    }
    return plan.key, plan.fleet, pool, plan.scope_of(asked.namespace), counters


def _list_findings(decision: Decision) -> set[tuple[str, str]]:
    return {(finding.code, finding.mode) for finding in decision.findings}


def _describe(decision: Decision) -> str:
    return str(decision.verdict) if decision.allowed else f"{decision.verdict}: {decision.status.message}"


def _rank(impact: ServiceImpact) -> tuple[int, int, str]:
    return -impact.differences.get(Difference.DENIED, 0), -sum(impact.differences.values()), impact.service
