"""Rules of `breaker`: its triggers, and `outcomes`, their source."""

from collections.abc import Iterator

from webhook.core.document.yaml.parts import DocumentPart
from webhook.core.document.yaml.problems import Problem
from webhook.core.policy.model import Modes
from webhook.core.policy_fields import ErrorRate, Latency, Mode, OutcomeSource

_TRIGGERS = ("errorRate", "latency", "quotaExceeded")
_START_INTERVAL_US_MIN = 30_000_000  # Pods become Ready in seconds to minutes: in a shorter interval few of them start


def something_can_trip_it(service: DocumentPart) -> Iterator[Problem]:
    """`breaker`: at least one of `errorRate`, `latency` and `quotaExceeded`. Refuse a breaker without any of them."""
    breaker = service.get("breaker")
    if breaker is not None and not any(breaker.get(trigger) for trigger in _TRIGGERS):
        yield breaker.report_field("nothing can trip it", "add errorRate, latency or quotaExceeded, or remove breaker")


def outcomes_are_heard(service: DocumentPart) -> Iterator[Problem]:
    """`breaker.errorRate`, `latency`: only with `breaker.outcomes`. Refuse them without."""
    breaker = service.get("breaker")
    if breaker is None or breaker.get("outcomes") is not None:
        return
    for trigger in ("errorRate", "latency"):
        part = breaker.get(trigger)
        if part is not None:
            remedy = "add outcomes, whose source is Pushed or PodStart, or remove it"
            yield part.report_field("needs outcomes, and this breaker has none", remedy)


def a_source_has_its_own_fields(service: DocumentPart) -> Iterator[Problem]:
    """`breaker.outcomes`: `reporters` with `source: Pushed`, `startDeadline` only with `source: PodStart`.

    Refuse Pushed without reporters, and the field of the other source.
    """
    outcomes = service.get("breaker", "outcomes")
    source = outcomes.get("source") if outcomes else None
    if outcomes is None or source is None:
        return
    reporters, deadline = outcomes.get("reporters"), outcomes.get("startDeadline")
    if source.read(OutcomeSource) is OutcomeSource.PUSHED:
        if reporters is None or reporters.is_empty:
            reason = "no client may push outcomes"
            remedy = "list the client_ids that report, such as reporters: [edge-gateway]"
            yield (
                outcomes.report_missing("reporters", reason, remedy)
                if reporters is None
                else reporters.report(reason, remedy)
            )
        if deadline is not None:
            yield deadline.report_field("belongs to source: PodStart", "remove it, or write source: PodStart")
    elif reporters is not None and not reporters.is_empty:
        yield reporters.report_field("belongs to source: Pushed", "remove it, or write source: Pushed")


def pod_starts_need_time(service: DocumentPart) -> Iterator[Problem]:
    """`breaker.errorRate.interval`, `latency.interval`: warn about less than 30s with `source: PodStart`."""
    source = service.get("breaker", "outcomes", "source")
    if source is None or source.read(OutcomeSource) is not OutcomeSource.POD_START:
        return
    kinds: tuple[tuple[str, type[ErrorRate | Latency]], ...] = (("errorRate", ErrorRate), ("latency", Latency))
    for trigger, kind in kinds:
        part = service.get("breaker", trigger)
        if part is not None and part.read(kind).interval.us < _START_INTERVAL_US_MIN:
            interval = part.get("interval")
            reason = "shorter than 30s, and Pods start more slowly than that"
            remedy = "write an interval of 30s or more"
            yield (
                part.report_missing("interval", reason, remedy) if interval is None else interval.report(reason, remedy)
            )


def quota_events_can_happen(service: DocumentPart) -> Iterator[Problem]:
    """`breaker.quotaExceeded`: warn if the service has no limit of its own, or `modes.quota` is not Enforce."""
    trigger = service.get("breaker", "quotaExceeded")
    if trigger is None:
        return
    modes, own = service.get("modes"), (service.get("quota", "windows"), service.get("quota", "standing"))
    if not any(part is not None and not part.is_empty for part in own):
        reason = "never trips: the service has no limit of its own"
        yield trigger.report_field(reason, "add quota.windows or quota.standing, or remove it")
    elif modes is not None and modes.read(Modes).quota is not Mode.ENFORCE:
        reason = f"never trips: only enforced denials count, and modes.quota is {modes.read(Modes).quota}"
        yield trigger.report_field(reason, "write modes.quota: Enforce")
