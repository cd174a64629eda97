"""Impact of a candidate policy: requests under two policies in virtual time, and how their decisions differ."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from msgspec import Struct

from webhook.commands.pages.table import format_table
from webhook.commands.simulator import Admission
from webhook.core.admission.decision import Decision
from webhook.core.rollout.differences import Difference, JudgedPod, find_differences
from webhook.errors import UserError
from webhook.replay.engine import Replay
from webhook.replay.events import OutcomeSeen, OutcomesSeen, PodAsks, PolicyChange, ReplayEvent, StatusAsked

_EXAMPLES_MAX = 3
_NONE = "(none)"


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


class Comparison(Struct, frozen=True):
    """A report, and what could not be read for it."""

    report: ImpactReport
    warnings: tuple[str, ...] = ()


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
        differences = tuple(find_differences(JudgedPod(former, before.pod), JudgedPod(new, after.pod)))
        tally.differences.update(differences)
        if differences and differences not in tally.examples:
            name = f"{event.namespace}/{former.pod}"
            tally.examples[differences] = PodImpact(name, differences, _describe(former), _describe(new))


def _describe(decision: Decision) -> str:
    return str(decision.verdict) if decision.allowed else f"{decision.verdict}: {decision.status.message}"


def _rank(impact: ServiceImpact) -> tuple[int, int, str]:
    return -impact.differences.get(Difference.DENIED, 0), -sum(impact.differences.values()), impact.service
