"""Metrics observer: counts reviews and events, and renders them for Prometheus through the OpenTelemetry SDK."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING

from webhook.adapters.metrics import families
from webhook.adapters.metrics.accumulators import Row, Totals
from webhook.adapters.metrics.cluster_objects import CertificateTotals, FailingWrites, WebhookConfigurationMetrics
from webhook.adapters.metrics.decisions import DecisionTotals
from webhook.adapters.metrics.families import FAILURE, SUCCESS
from webhook.adapters.metrics.family import Family
from webhook.adapters.metrics.label_sets import ProcessRole, ZeroLines, list_zeros
from webhook.adapters.metrics.ledger import PodLedgerHealth, QueueMetrics
from webhook.adapters.metrics.rollout import RolloutMetrics
from webhook.adapters.metrics.rollout_leader import RolloutLeaderMetrics
from webhook.adapters.metrics.scheduling import SchedulingMetrics
from webhook.adapters.metrics.service_gauges import ServiceGauges
from webhook.adapters.metrics.store import StoreMetrics
from webhook.adapters.metrics.variant_breakers import VariantBreakers
from webhook.adapters.metrics.variant_pods import SlotTotals, VariantPodMetrics
from webhook.adapters.metrics.watched_inputs import (
    FileTotals,
    KeyTotals,
    OutcomeTotals,
    OverrideGauges,
    ProcessHealth,
    Transitions,
    WatchHealth,
)
from webhook.core.breaker import Transition
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.policy_fields import WhenOpen
from webhook.core.quota import ServiceSnapshot
from webhook.core.reporting.status_parts import Guarded
from webhook.errors import StoreFailure
from webhook.ports import PartialObserver, Review
from webhook.support.process_memory import defer_collection, pause_collection

if TYPE_CHECKING:
    from webhook.adapters.metrics.reader import Exposition

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""Content types of the text that `render` returns. OpenMetrics has exemplars."""


class Metrics(PartialObserver):
    """An Observer. Not shared between threads, except that `render` may run in another one.

    Series that a process with `duties` can count for the policy's services are exported from 0 on.
    """

    def __init__(
        self, version: str, duties: ProcessRole = ProcessRole.NONE, refusal_reasons: Iterable[str] = ()
    ) -> None:
        self._duties = duties
        self._policy: Policy | None = None
        self._policy_at_zero: Policy | None = None
        self._decisions = DecisionTotals(self._find_label)
        self._refused = Totals(families.REFUSED, *((reason,) for reason in refusal_reasons))
        self._transitions, self._variant_breakers = Transitions(), VariantBreakers()
        self._reloads = Totals(families.POLICY_RELOADS, (SUCCESS,), (FAILURE,))
        self._policy_reviews = Totals(families.POLICY_REVIEWS, (SUCCESS,), (FAILURE,))
        self._store = StoreMetrics()
        self.files, self.keys = FileTotals(), KeyTotals()
        self.ledger = PodLedgerHealth()
        self.queue, self.variants, self.slots = QueueMetrics(), VariantPodMetrics(), SlotTotals()
        self.scheduling, self.outcomes = SchedulingMetrics(), OutcomeTotals()
        self.kept_certificates, self.failing_writes = CertificateTotals(), FailingWrites()
        self.health = ProcessHealth({} if ProcessRole.REVIEWS in duties else None)
        self.webhooks = WebhookConfigurationMetrics()
        self.rollout = RolloutMetrics(self._decisions.forget_services, self._variant_breakers.set_added)
        self.leading = RolloutLeaderMetrics()
        self.watches = WatchHealth()
        self._events = Totals(families.EVENTS, *((result,) for result in families.EVENT_RESULTS))
        usage = (self._refused, *self._transitions.totals, self._reloads, self._policy_reviews)
        troubles = (
            *self.files.totals,
            *self.keys.totals,
            *self.watches.totals,
            self._events,
            *self._store.totals,
            *self.ledger.totals,
            *(*self.queue.totals, *self.variants.totals, *self.slots.totals),
            *self.scheduling.totals,
            *self.outcomes.totals,
            *self.kept_certificates.totals,
            *(*self.webhooks.totals, *self.leading.totals, *self._variant_breakers.totals),
        )
        self._totals = (*self._decisions.totals, *usage, *troubles)
        self._standing = ServiceGauges()
        self._services: frozenset[str] | None = None
        self._policy_hash: str | None = None
        self._last_good = False
        self._overrides = OverrideGauges()
        self._replicas = 1
        self._is_reduced: bool | None = None  # set only in a server
        self._expiry_seconds: Mapping[str, float] = {}
        self._recorded: Callable[[], Mapping[str, int]] = dict
        self._decision_records: Callable[[], Mapping[str, int]] = dict
        self._trace_parents: Callable[[], Mapping[str, int]] = dict
        self._version = version
        self._in_flight: Callable[[], int] | None = None
        self._exposition: Exposition | None = None
        self._rendering = Lock()

    def on_reviewed(self, review: Review) -> None:
        self._decisions.add(review)

    @property
    def last_review_us(self) -> int:
        """When the last review began, in microseconds since the Unix epoch; 0 before the first."""
        return self._decisions.last_review_ns // 1000

    def _find_label(self, service: str | None) -> str:
        """Return the label; "" for a service that is gone: a late review must not bring its series back."""
        known = self._services
        if service is None or (known is not None and service not in known and service not in self.rollout.added):
            return ""
        return service

    def on_transition(self, transition: Transition) -> None:
        if transition.owner.variant:
            self._variant_breakers.add(transition)
        elif self._find_label(transition.service):
            self._transitions.add(transition)
            self._standing.record_transition(transition)

    def on_refused(self, reason: str, detail: str) -> None:  # noqa: ARG002  the detail is for the log
        self._refused.add(reason)

    def on_policy_loaded(self, loaded: LoadedPolicy) -> None:
        self._services = frozenset(service.name for service in loaded.policy.services)
        self._decisions.degrading = frozenset(
            service.name
            for service in loaded.policy.services
            if service.breaker is not None and service.breaker.when_open is WhenOpen.DEGRADE
        )
        for totals in self._totals:
            totals.keep(self._services)
        self._decisions.forget_services()
        self._variant_breakers.set_policy(loaded.policy)
        for gauges in (self._standing, self._store, self.ledger, self.queue, self.variants, self.outcomes):
            gauges.keep(self._services)
        self._policy, self._policy_hash, self._last_good = loaded.policy, loaded.hash, True
        self._reloads.add(SUCCESS)

    def on_policy_failed(self, errors: Sequence[str]) -> None:  # noqa: ARG002  the errors are for the log
        self._last_good = False
        self._reloads.add(FAILURE)

    def on_policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:  # noqa: ARG002  the user is for the log
        self._policy_reviews.add(FAILURE if errors else SUCCESS)

    def on_overrides_loaded(self, live: Sequence[Override]) -> None:  # noqa: ARG002  on_override_changed reports each one
        self._overrides.is_good = True

    def on_overrides_failed(self, errors: Sequence[str]) -> None:  # noqa: ARG002  the errors are for the log
        self._overrides.is_good = False

    def on_override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        self._overrides.apply_change(service, former, now)

    def on_webhooks_outdated(self, outdated: Sequence[str]) -> None:
        self.webhooks.set_outdated(outdated)

    def count_store_failure(self, failure: StoreFailure) -> None:
        self._store.on_creation_failed(failure)

    def set_store_up(self, *, up: bool) -> None:
        """Set whether the store responds."""
        self._store.set_up(up=up)

    def count_store_loss(self) -> None:
        """Count a possible loss of writes that the store had acknowledged."""
        self._store.count_loss()

    def set_fallback(self, service: str, rule: str, *, on: bool) -> None:
        """Set whether a service is in fallback, by `rule` and without the store."""
        if self._find_label(service):
            self._store.set_fallback(service, rule, on=on)

    def count_booked(self, service: str, cause: str, count: int) -> None:
        """Count Pods charged to the store after they were admitted."""
        self._store.count_booked(self._find_label(service), cause, count)

    def count_dropped_booking(self) -> None:
        self._store.count_dropped()

    def count_cached_denial(self, service: str) -> None:
        self._store.count_cached(self._find_label(service))

    def count_event(self, result: str) -> None:
        """Count a Kubernetes Event by its result, one of `families.EVENT_RESULTS`."""
        self._events.add(result)

    def set_replicas(self, replicas: int) -> None:
        """Set the number of servers among which the limits are divided."""
        self._replicas = replicas

    def update(
        self,
        snapshots: Mapping[str, ServiceSnapshot],
        guarded: Guarded | None = None,
        by_team: frozenset[str] = frozenset(),
    ) -> None:
        """Set the state of the services, by name, as just read from the store; called before `render`.

        `by_team`: the services whose teams count apart.
        """
        found = {name: snapshot for name, snapshot in snapshots.items() if self._find_label(name)}
        self._standing.update(found, guarded, by_team)
        self._variant_breakers.update(snapshots)

    def set_certificates(self, expiry_seconds: Mapping[str, float]) -> None:
        """Set when each certificate in use expires, in seconds since the Unix epoch, by a name such as `serving`."""
        self._expiry_seconds = dict(expiry_seconds)

    def set_reduced_mode(self, *, on: bool) -> None:
        """Set whether callers are admitted without authentication (reduced mode)."""
        self._is_reduced = on

    def watch_in_flight(self, count: Callable[[], int]) -> None:
        """Export `count()` as the number of calls being answered; called once."""
        self._in_flight = count

    def watch_record(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Export `counts()`, by result, as the events for the file of --record."""
        self._recorded = counts

    def watch_decision_records(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Export `counts()`, by result, as the decision records for the store that replicas share."""
        self._decision_records = counts

    def watch_trace_parents(self, counts: Callable[[], Mapping[str, int]]) -> None:
        """Export `counts()`, by result, as the reviews whose caller requested a trace."""
        self._trace_parents = counts

    def render(self, content_type: str = CONTENT_TYPE) -> bytes:
        """Return all metrics as text of a content type."""
        with self._rendering:
            return self._render_locked(content_type)

    def _render_locked(self, content_type: str) -> bytes:
        if self._exposition is None:
            # The first scrape, in its thread, loads the SDK, so that a start need not wait for it. A garbage collection
            # in between would stop the event loop.
            with defer_collection():
                from webhook.adapters.metrics.reader import Exposition  # noqa: PLC0415  as above

            self._exposition = Exposition(
                self._version,
                self._in_flight,
                self._rows,
                lambda: [
                    *self._decisions.histograms(with_stages=self._duties is not ProcessRole.RECONCILES),
                    *self.scheduling.histograms(),
                    *self.queue.histograms(),
                ],
            )
        with pause_collection():  # a garbage collection in between would stop the event loop
            policy = self._policy  # rendered here: its swap must not delay reviews
            if policy is not None and policy is not self._policy_at_zero:
                self._exposition.start_at_zero(ZeroLines(list_zeros(policy, self._duties)))
                self._policy_at_zero = policy
            return self._exposition.render() if content_type == CONTENT_TYPE else self._exposition.render_openmetrics()

    def _rows(self) -> Iterable[tuple[Family, Iterable[Row]]]:
        """Return the series of each family, except of the instruments and the histograms."""
        reviews = ProcessRole.REVIEWS in self._duties or self.last_review_us
        hashes = [((self._policy_hash,), 1.0)] if self._policy_hash else []
        expiry = [((name,), at) for name, at in self._expiry_seconds.items()]
        return [
            *((totals.family, totals.rows()) for totals in self._totals),
            *(*self._standing.rows(), *self._variant_breakers.rows()),
            *self._store.rows(),
            *(*self.ledger.rows(), *self.queue.rows(), *self.variants.rows()),
            *self.scheduling.rows(),
            (families.LAST_REVIEW, [((), self._decisions.last_review_ns / 1e9)] if reviews else []),
            *self.health.rows(),
            (families.POLICY_INFO, hashes),
            (families.POLICY_LAST_GOOD, [((), float(self._last_good))]),
            *(*self._overrides.rows(self._find_label), *self.rollout.rows(), *self.leading.rows()),
            *self.watches.rows(),
            (families.CERTIFICATE_EXPIRY, expiry),
            (families.CREDENTIAL_EXPIRY, self._decisions.credentials()),
            *self.kept_certificates.rows(),
            *(*self.webhooks.rows(), *self.failing_writes.rows()),
            (families.REDUCED_MODE, [((), float(on))] if (on := self._is_reduced) is not None else []),
            *self.files.rows(),
            *self.keys.rows(),
            (families.REPLICAS, [((), float(self._replicas))]),
            (families.RECORDED, [((result,), float(count)) for result, count in self._recorded().items()]),
            (families.DECISION_RECORDS, [((name,), float(count)) for name, count in self._decision_records().items()]),
            (families.TRACE_PARENTS, [((result,), float(count)) for result, count in self._trace_parents().items()]),
        ]
