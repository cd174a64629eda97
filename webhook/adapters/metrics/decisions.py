"""Counters of reviews. Rewrites are counted from the mutating call, everything else from the validating call."""

from collections.abc import Sequence

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import OTHER, Durations, Exemplar, Row, Totals
from webhook.adapters.metrics.families import Family
from webhook.adapters.metrics.stage_durations import StageDurations
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.breaker import State
from webhook.core.findings import Code
from webhook.core.policy_spec import Mode
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


class Decisions:
    """Accumulators updated by every review."""

    def __init__(self) -> None:
        self.durations = {half: Durations() for half in Half}
        self.stages = {half: StageDurations(_STAGES[half]) for half in Half}
        self.charges = Durations()
        self.stages[Half.VALIDATE].replace(_CHARGE, self.charges)
        self.last_review_ns = 0
        """When the last review began, in nanoseconds since the Unix epoch; 0 before the first."""
        self._reviews = Totals(families.REVIEWS)
        self._workloads = Totals(families.WORKLOADS)
        self._workload_warnings = Totals(families.WORKLOAD_WARNINGS)
        self._calls = Totals(families.CALLS)
        self._callers: dict[str, Caller] = {}
        """The newest credentials of each client."""
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

    def add(self, review: Review, service: str) -> None:
        """Count one review for `service`; "" if no service of the policy in force owns it."""
        self.last_review_ns = review.started_ns
        decision = review.decision
        operation = decision.operation if decision.operation in _OPERATIONS else OTHER
        if review.caller is not None:
            self._calls.add(review.caller.client_id, review.caller.role)
            if review.caller.client_id in self._callers or len(self._callers) < families.CLIENTS_MAX:
                self._callers[review.caller.client_id] = review.caller
        if decision.workload:
            self._advised(decision, service, operation)
            return
        self._reviews.add(decision.half, service, operation, decision.verdict)
        durations = self.durations[decision.half]
        durations.add(review.duration_ns)
        if review.trace is not None:
            span, at_seconds = review.trace.span, review.started_ns // 1_000_000 / 1000
            durations.keep(Exemplar(span.trace_id, span.span_id, review.duration_ns / 1e9, at_seconds))
        self.stages[decision.half].add(review.stages, review.ends_ns)
        if decision.dry_run:
            return
        if decision.half is Half.VALIDATE:
            self._judged(decision, service)
        elif decision.patch:  # empty if the call is repeated for the same Pod
            self._rewritten(decision, service)

    def histograms(self, *, with_stages: bool) -> Sequence[tuple[Family, Sequence[tuple[tuple[str, ...], Durations]]]]:
        """Return every histogram with its series. A process that reviews nothing needs no stages."""
        of_stage = [((half, stage), series) for half in Half for stage, series in self.stages[half].read()]
        return [
            (families.DURATION, [((half,), series) for half, series in self.durations.items()]),
            *([(families.STAGE_DURATION, of_stage)] if with_stages else []),
            (families.CHARGE_DURATION, [((), self.charges)]),
        ]

    def credentials(self) -> list[Row]:
        """Return when the token and the certificate expire that each client has used last."""
        callers = list(self._callers.values())
        ends = [((one.client_id, "token"), float(one.token_expires_at_seconds)) for one in callers]
        ends += [((one.client_id, "certificate"), float(one.certificate_expires_at_seconds)) for one in callers]
        return [(labels, at) for labels, at in ends if at]

    def _advised(self, decision: Decision, service: str, operation: str) -> None:
        """Count the review of a workload's Pod template, apart from reviews of Pods: it has no Pod yet."""
        self._workloads.add(service, operation, decision.verdict)
        for finding in () if decision.dry_run else decision.findings:
            self._workload_warnings.add(service, finding.code)
        if not decision.dry_run and any(write.mode is Mode.WARN for write in decision.would_write):
            self._workload_warnings.add(service, Code.WOULD_REWRITE)

    def _judged(self, decision: Decision, service: str) -> None:
        if decision.operation == "CREATE" and not decision.sub_resource:
            if decision.verdict is Verdict.UNMATCHED:
                self._unmatched.add(decision.namespace)
            elif decision.verdict is Verdict.EXEMPT:
                self._exempt.add(decision.exemption)
        if decision.findings:
            self._objected(decision, service)
        for write in decision.would_write:
            self._would_rewrite.add(service, write.concern)
        if decision.uncounted:
            self._uncounted.add(service)
        if decision.receipt is not None:
            self._charged(decision.receipt, service, resize=bool(decision.sub_resource))

    def _rewritten(self, decision: Decision, service: str) -> None:
        if decision.overload:
            self._overload_gated.add(service)
        if decision.degraded:
            self._degraded.add(service)
        elif decision.would_degrade:
            self._would_degrade.add(service)

    def _objected(self, decision: Decision, service: str) -> None:
        not_permitted = False
        for finding in decision.findings:
            self._findings.add(service, finding.code, finding.mode)
            not_permitted |= finding.mode is Mode.ENFORCE and finding.code in _BREAKER_CODES
        if not_permitted:
            self._not_permitted.add(service)
        if decision.allowed:
            for concern in {finding.concern for finding in decision.findings if not finding.is_advice}:
                self._would_deny.add(service, concern)

    def _charged(self, receipt: Receipt, service: str, *, resize: bool) -> None:
        if receipt.local and receipt.charged:
            self._local_admitted.add(service)
        if receipt.refused is DeniedBy.QUOTA:
            for use in receipt.over:
                self._quota_denied.add(service, use.resource, use.window, use.of)
        # A resize never asks the breaker. A breaker that degrades admits all Pods and does not say which ones probe.
        elif receipt.charged and not resize and service not in self.degrading and _is_probe(receipt):
            self._probes.add(service)


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
