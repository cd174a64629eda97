"""Counters of reviews. Rewrites are counted from the mutating call, everything else from the validating call."""

from collections.abc import Callable, Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import OTHER, Count, Durations, Exemplar, Row, Totals
from webhook.adapters.metrics.family import SERIES_MAX, Family
from webhook.adapters.metrics.stage_durations import BATCH, StageDurations, Timed
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.breaker import State
from webhook.core.findings import Code
from webhook.core.policy_fields import Mode
from webhook.core.quota import DeniedBy, Receipt
from webhook.ports import Caller, Review

_OPERATIONS = frozenset({"CREATE", "UPDATE", "DELETE", "CONNECT"})
_BREAKER_CODES = frozenset({Code.BREAKER_OPEN, Code.BREAKER_PROBING})
_CHARGE = "charge"
"""The interceptor's stage that calls the store."""
_STAGES = {
    Half.MUTATE: ("decode", "policy", "exempt", "own", "rewrite", "answer"),
    Half.VALIDATE: ("decode", "policy", "exempt", "own", "breaker", "check", _CHARGE, "answer"),
}
"""The interceptor's stages of a Pod, whose series start at 0."""


class _Client:
    """A calling client: how often it has called, and its newest credentials."""

    __slots__ = ("caller", "calls")

    def __init__(self, caller: Caller, calls: Count) -> None:
        self.caller = caller
        self.calls = calls


class _Kind:
    """Reviews with the same labels: their counter, and the list that takes the times while `stages` are the same."""

    __slots__ = ("count_more", "pending", "reviews", "service", "stages")

    def __init__(self, service: str, reviews: Count, count_more: Callable[[Decision, str], None]) -> None:
        self.service = service
        self.reviews = reviews
        self.count_more = count_more
        self.stages: tuple[str, ...] | None = None
        self.pending: list[Timed] = []


class DecisionTotals:
    """Accumulators updated by every review. `label_of` returns the label of a service; "" for one that is gone."""

    def __init__(self, label_of: Callable[[str | None], str]) -> None:
        self._label_of = label_of
        self.stages = {half: StageDurations(_STAGES[half]) for half in Half}
        self.charges = Durations()
        self.stages[Half.VALIDATE].replace(_CHARGE, self.charges)
        self.last_review_ns = 0
        """When the last review began, in nanoseconds since the Unix epoch; 0 before the first."""
        self._reviews = Totals(families.REVIEWS)
        self._kinds: dict[tuple[Half, str | None, str, Verdict], _Kind] = {}
        self._workloads = Totals(families.WORKLOADS)
        self._workload_warnings = Totals(families.WORKLOAD_WARNINGS)
        self._calls = Totals(families.CALLS)
        self._clients: dict[str, _Client] = {}
        self._findings = Totals(families.FINDINGS)
        self._would_deny = Totals(families.WOULD_DENY)
        self._would_rewrite = Totals(families.WOULD_REWRITE)
        self._degraded = Totals(families.DEGRADED)
        self._would_degrade = Totals(families.WOULD_DEGRADE)
        self._overload_gated = Totals(families.OVERLOAD_GATED)
        self._exempt = Totals(families.EXEMPT)
        self._unmatched = Totals(families.UNMATCHED)
        self._quota_denied = Totals(families.QUOTA_DENIED)
        self._uncounted = Totals(families.UNCOUNTED)
        self._local_admitted = Totals(families.LOCAL_ADMITTED)
        self._not_permitted = Totals(families.BREAKER_NOT_PERMITTED)
        self._probes = Totals(families.BREAKER_PROBES)
        self.degrading: frozenset[str] = frozenset()
        self.totals = tuple(value for value in vars(self).values() if isinstance(value, Totals))

    def add(self, review: Review) -> None:
        """Count one review."""
        self.last_review_ns = review.started_ns
        decision, caller = review.decision, review.caller
        if caller is not None:
            client = self._clients.get(caller.client_id)
            if client is None or client.caller.role != caller.role:
                client = self._add_client(caller)
            client.caller = caller
            client.calls.value += 1
        if decision.workload:
            self._count_advice(decision)
            return
        half = decision.half
        key = half, decision.service, decision.call.operation, decision.verdict
        kind = self._kinds.get(key) or self._add_kind(key)
        kind.reviews.value += 1
        if kind.stages is not review.stages:
            kind.stages, kind.pending = review.stages, self.stages[half].pending(review.stages)
        pending = kind.pending
        pending.append((review.duration_ns, review.ends_ns))
        if len(pending) >= BATCH:
            self.stages[half].count(review.stages)
        if review.trace is not None:
            span, at_seconds = review.trace.span, review.started_ns // 1_000_000 / 1000
            exemplar = Exemplar(span.trace_id, span.span_id, review.duration_ns / 1e9, at_seconds)
            self.stages[half].reviews.keep(exemplar)
        if not decision.call.dry_run:
            kind.count_more(decision, kind.service)

    def forget_services(self) -> None:
        """Look up all labels again: the policy has changed, and the series of removed services are gone."""
        self._kinds.clear()

    def _add_client(self, caller: Caller) -> _Client:
        client = _Client(caller, self._calls.find_count((caller.client_id, caller.role)))
        if caller.client_id in self._clients or len(self._clients) < families.CLIENTS_MAX:
            self._clients[caller.client_id] = client
        return client

    def _add_kind(self, key: tuple[Half, str | None, str, Verdict]) -> _Kind:
        half, name, operation, verdict = key
        service = self._label_of(name)
        reviews = self._reviews.find_count((half, service, _operation_label(operation), verdict))
        kind = _Kind(service, reviews, self._count_judgment if half is Half.VALIDATE else self._count_rewrite)
        if len(self._kinds) >= SERIES_MAX:
            self._kinds.clear()
        self._kinds[key] = kind
        return kind

    def histograms(self, *, with_stages: bool) -> Sequence[tuple[Family, Sequence[tuple[tuple[str, ...], Durations]]]]:
        """Return every histogram with its series. A process that reviews nothing needs no stages."""
        of_stage = [((half, stage), series) for half in Half for stage, series in self.stages[half].read()]
        return [
            (families.DURATION, [((half,), series.reviews) for half, series in self.stages.items()]),
            *([(families.STAGE_DURATION, of_stage)] if with_stages else []),
            (families.CHARGE_DURATION, [((), self.charges)]),
        ]

    def credentials(self) -> list[Row]:
        """Return when the token and the certificate expire that each client has used last."""
        callers = [client.caller for client in list(self._clients.values())]
        ends = [((caller.client_id, "token"), float(caller.token_expires_at_seconds)) for caller in callers]
        ends += [
            ((caller.client_id, "certificate"), float(caller.certificate_expires_at_seconds)) for caller in callers
        ]
        return [(labels, at) for labels, at in ends if at]

    def _count_advice(self, decision: Decision) -> None:
        """Count the review of a workload's Pod template, apart from reviews of Pods: it has no Pod yet."""
        service = self._label_of(decision.service)
        self._workloads.add(service, _operation_label(decision.call.operation), decision.verdict)
        for finding in () if decision.call.dry_run else decision.findings:
            self._workload_warnings.add(service, finding.code)
        if not decision.call.dry_run and any(write.mode is Mode.WARN for write in decision.would_write):
            self._workload_warnings.add(service, Code.WOULD_REWRITE)

    def _count_judgment(self, decision: Decision, service: str) -> None:
        receipt = decision.charge.receipt
        if receipt is not None and not (decision.findings or decision.would_write) and _is_plain(receipt):
            return  # the usual case
        if decision.call.operation == "CREATE" and not decision.call.sub_resource:
            if decision.verdict is Verdict.UNMATCHED:
                self._unmatched.add(decision.call.namespace)
            elif decision.verdict is Verdict.EXEMPT:
                self._exempt.add(decision.deviation.exemption)
        if decision.findings:
            self._count_findings(decision, service)
        for write in decision.would_write:
            self._would_rewrite.add(service, write.concern)
        if decision.charge.uncounted:
            self._uncounted.add(service)
        if receipt is not None:
            self._count_charge(receipt, service, resize=bool(decision.call.sub_resource))

    def _count_rewrite(self, decision: Decision, service: str) -> None:
        if not decision.patch:  # the call is repeated for the same Pod
            return
        if decision.deviation.overload:
            self._overload_gated.add(service)
        if decision.deviation.degraded:
            self._degraded.add(service)
        elif decision.deviation.would_degrade:
            self._would_degrade.add(service)

    def _count_findings(self, decision: Decision, service: str) -> None:
        not_permitted = False
        for finding in decision.findings:
            self._findings.add(service, finding.code, finding.mode)
            not_permitted |= finding.mode is Mode.ENFORCE and finding.code in _BREAKER_CODES
        if not_permitted:
            self._not_permitted.add(service)
        if decision.allowed:
            for concern in {finding.concern for finding in decision.findings if not finding.is_advice}:
                self._would_deny.add(service, concern)

    def _count_charge(self, receipt: Receipt, service: str, *, resize: bool) -> None:
        if receipt.local and receipt.charged:
            self._local_admitted.add(service)
        if receipt.refused is DeniedBy.QUOTA:
            for use in receipt.over:
                self._quota_denied.add(service, use.resource, use.window, use.of)
        # A resize never asks the breaker. A breaker that degrades admits all Pods and does not say which ones probe.
        elif receipt.charged and not resize and service not in self.degrading and _is_probe(receipt):
            self._probes.add(service)


def _operation_label(operation: str) -> str:
    return operation if operation in _OPERATIONS else OTHER


def _is_plain(receipt: Receipt) -> bool:
    """Return whether there is nothing to count: no denial, no probe, and the store has answered."""
    view = receipt.breaker
    return (
        receipt.refused is None
        and not receipt.local
        and not receipt.transitions
        and (view is None or view.state is State.CLOSED)
    )


def _is_probe(receipt: Receipt) -> bool:
    """Return whether this charge leased a probe: the breaker was not closed, and did not object."""
    if receipt.repeated or receipt.breaker is None or DeniedBy.BREAKER in receipt.would_refuse:
        return False
    if receipt.breaker.state is State.CLOSED and not receipt.transitions:
        return False
    # Without outcomes a charged probe succeeds at once, and the last one closes the breaker in the same answer.
    return receipt.breaker.state.is_tripped or any(
        change.old.is_tripped and change.new is State.CLOSED for change in receipt.transitions
    )
