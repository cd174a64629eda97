"""A scrape shows the recorded events, under the documented names and labels only."""

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Exemplar, Timestamp

from tests.adapters.metrics import metrics, read_samples
from tests.core.reviewing import Gate, pod, policy_of
from tests.harness.records import (
    ADMITTED,
    ADVISED,
    AT_NS,
    AT_US,
    BREAKER_DENIED,
    CALLER,
    QUOTA_DENIED,
    changed,
    failure_of,
    look,
    override,
    policy,
    review,
    transition,
)
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.memory_store import MemoryStore
from webhook.adapters.metrics import CONTENT_TYPE, OPENMETRICS, Metrics, ProcessRole
from webhook.adapters.metrics.accumulators import STAGE_BOUNDS_SECONDS, Durations
from webhook.adapters.metrics.families import FAMILIES
from webhook.adapters.metrics.family import MetricKind
from webhook.adapters.metrics.stage_durations import StageDurations
from webhook.authentication.reasons import REASONS
from webhook.core.admission.decision import Finding, Half, Verdict, WouldWrite
from webhook.core.breaker import (
    EXPIRED,
    HELD,
    TRANSITIONS,
    BreakerOwner,
    BreakerView,
    State,
    Transition,
    TransitionCause,
)
from webhook.core.findings import Code
from webhook.core.kubernetes.quantity import Duration, Quantity
from webhook.core.overload import OverloadCause
from webhook.core.patch import add
from webhook.core.policy.model import Match, Service
from webhook.core.policy_fields import (
    Breaker,
    Mode,
    Placement,
    Quota,
    QuotaExceeded,
    Shares,
    Variant,
    WhenOpen,
    Window,
)
from webhook.core.policy_fields.rollout import RollbackRules
from webhook.core.quota import Acquire, CounterPlan, DeniedBy, GuaranteeUse, Holder, Receipt, ServiceSnapshot, Use
from webhook.core.reporting.queue_document import FailingPods, QueueDepth, WaitingGroups
from webhook.core.reporting.status_parts import Guarded
from webhook.core.rollout.counting import ShadowTotals
from webhook.core.rollout.state import Phase, Rejection, RolloutState, RolloutView
from webhook.core.rollout.symptoms import Figures, Share, read_symptoms
from webhook.core.scheduling.extender_api import CallResult
from webhook.errors import StoreFailure, StoreFault
from webhook.ports.traces import ReviewTrace, SpanReference

__all__ = ["metrics"]

CODE = Path(__file__).parents[2] / "webhook"
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"
STAGES = (("decode", 1_000_000), ("check", 2_000_000), ("charge", 42_000_000), ("answer", 43_000_000))
DIVIDED = Service(
    "divided",
    Match(namespaces=("shop",)),
    placement=Placement(shares=Shares((Variant("spot", 1), Variant("on-demand", 1)))),
)
WITH_VARIANTS = policy("payment-api", "ledger")
WITH_VARIANTS = replace(
    WITH_VARIANTS, policy=replace(WITH_VARIANTS.policy, services=(*WITH_VARIANTS.policy.services, DIVIDED))
)
WOULD_BE_DENIED = replace(
    ADMITTED,
    findings=(
        Finding(Code.PLACEMENT_UNFULFILLED, "placement", Mode.AUDIT, "zone"),
        Finding(Code.PLACEMENT_UNFULFILLED, "placement", Mode.AUDIT, "scheduler"),
        Finding(Code.QUOTA_EXCEEDED, "quota", Mode.WARN, "hard 50"),
    ),
)


def record_extender(metrics: Metrics) -> None:
    """Record what a scheduler extender records, which reviews nothing."""
    scheduling = metrics.scheduling
    scheduling.begin(lambda: {"prometheus": 3, "unknown": 1}, lambda: ["web"], lambda: 2)
    scheduling.on_wake_failed()
    scheduling.count_call("filter", CallResult.ANSWERED, 1_000_000)
    scheduling.count_refused("payment-api", "hot_cpu", 2)
    scheduling.open_source("prometheus")
    scheduling.set_source_read("prometheus", AT_NS / 1e9, 0.1)
    scheduling.count_source_failure("prometheus")
    scheduling.on_woken()


def series(metrics: Metrics, name: str) -> dict[str, float]:
    return {key: value for key, value in read_samples(metrics).items() if key.split("{")[0] == name}


def record_queue(metrics: Metrics) -> None:
    failing = (FailingPods("admission", 2, "pod shop/web: cannot release: HTTP 422: denied"),)
    depth = QueueDepth(
        "payment-api", "gold", 3, 41, "until 2026-12-01T04:00:00.000Z: INC-1", failing, WaitingGroups(2, 1)
    )
    metrics.queue.set_depths([depth, QueueDepth("", "", 1, 41)])
    metrics.failing_writes.set("controllers", fails=True)
    metrics.queue.count_release("payment-api", 12.0, 0.2)
    metrics.queue.count_expiry("payment-api", 900.0)
    metrics.queue.set_waiting({"payment-api": 3})
    metrics.variants.set_counts({("payment-api", "spot"): 7}, {("payment-api", "spot"): 1})
    metrics.variants.count_eviction("payment-api", "spot")
    metrics.slots.count_claim("payment-api")
    metrics.slots.count_list("payment-api", "exceeded")
    metrics.health.on_overload_changed({}, {OverloadCause.LATENCY: "P99 of reviews 1.2 s above 800 ms over 10 s"})


def record_leading(metrics: Metrics, state: RolloutState) -> None:
    """Report a candidate of which 9 of 100 Pods are Pending, as the leader does."""
    metrics.leading.begin()
    metrics.leading.set_state(state, "b" * 16, read_symptoms(RollbackRules(), Figures(pending=Share(9, 100))))


def record_rollout(metrics: Metrics) -> None:
    shadow = ShadowTotals()
    shadow.judged, shadow.left_out = 40, 2
    shadow.differences["web", "placement"] = 3
    state = RolloutState("a" * 16, governed=True, phase=Phase.SHADOW, candidate="b" * 16)
    metrics.rollout.watch_shadow(lambda: shadow)
    metrics.rollout.on_policy_parts_checked({"team-a": ["4:1: services: missing"]})
    metrics.rollout.on_rollout_changed(RolloutView(), RolloutView("a" * 16, "b" * 16, state))


def record_watches(metrics: Metrics) -> None:
    metrics.watches.count_failure("namespaces")
    metrics.watches.set_contact("namespaces", 1_800_000_003.5)
    metrics.watches.set_unread("namespaces", 2)


def record_all(metrics: Metrics) -> None:
    """Record each kind of event at least once."""
    record_process(metrics)
    rewritten = replace(ADMITTED, half=Half.MUTATE, patch=(add("s", "spec", "schedulerName"),))
    metrics.on_reviewed(review(changed(rewritten, degraded="breaker OPEN", overload="the store is away"), 200_000))
    metrics.on_reviewed(review(changed(rewritten, would_degrade=True), 200_000))
    metrics.on_reviewed(review(stages=STAGES))
    metrics.on_reviewed(review())
    metrics.on_reviewed(review(QUOTA_DENIED, 2_000_000))
    metrics.on_reviewed(review(BREAKER_DENIED, 90_000))
    metrics.on_reviewed(review(WOULD_BE_DENIED))
    metrics.on_reviewed(review(replace(ADMITTED, would_write=(WouldWrite("resources", Mode.WARN, ("spec.x",)),))))
    metrics.on_reviewed(review(changed(ADMITTED, service=None, verdict=Verdict.UNMATCHED, namespace="tools")))
    metrics.on_reviewed(review(changed(ADMITTED, service=None, verdict=Verdict.EXEMPT, exemption="username")))
    metrics.on_reviewed(review(changed(ADMITTED, uncounted=True)))
    metrics.on_reviewed(review(ADVISED))
    probe = Receipt(AT_US, charged=True, breaker=look(state=State.HALF_OPEN).breaker)
    metrics.on_reviewed(review(changed(ADMITTED, receipt=probe)))
    metrics.on_refused("authentication_expired", "exp was 3 s ago")
    record_breakers(metrics)
    metrics.on_policy_failed(["3:1: services: missing"])
    metrics.on_policy_judged("alice", ["3:1: services: missing"], "policy")
    metrics.on_overrides_failed(["2:3: [0].until: missing"])
    for service in ("payment-api", "in-no-policy"):
        metrics.on_override_changed(service, None, override(service))
    record_files_and_keys(metrics)
    metrics.count_store_failure(failure_of("timeout: no answer within 50 ms"))
    metrics.set_store_up(up=False)
    metrics.count_store_loss()
    metrics.set_fallback("payment-api", "Local", on=True)
    metrics.on_reviewed(review(changed(ADMITTED, receipt=Receipt(AT_US, charged=True, local=True))))
    metrics.count_booked("payment-api", "Away", 3)
    metrics.count_dropped_booking()
    metrics.count_cached_denial("payment-api")
    metrics.ledger.count_refund("payment-api", "NeverCreated")
    metrics.ledger.count_unproven("payment-api")
    metrics.ledger.count_late_charge("payment-api")
    metrics.ledger.count_unjudged("payment-api")
    metrics.ledger.count_late_raise("payment-api")
    metrics.ledger.count_ignored_label()
    metrics.ledger.set_drift("payment-api", 4)
    metrics.ledger.set_pool_drift({"prod": 3})
    metrics.ledger.set_watched(12)
    record_queue(metrics)
    metrics.outcomes.on_outcomes_counted("payment-api", "Pushed", "error", 40)
    metrics.outcomes.on_outcomes_dropped("payment-api", "overflow", 3)
    metrics.outcomes.on_outcomes_refused("notNamed", 2)
    record_watches(metrics)
    metrics.count_event("written")
    metrics.set_replicas(3)
    record_certificates(metrics)
    metrics.update(
        {
            "divided/spot": look(state=State.OPEN, open_until_us=AT_US + 9_000_000),
            "payment-api": look(
                Use("1m", "pods", 37, 50),
                Use("1m", "cpu", 1500, 40_000),
                Use("standing", "pods", 9, 200, of=Holder.STANDING, surge=50),
                state=State.OPEN,
                open_until_us=AT_US + 151_500_000,
            ),
            "ledger": replace(
                look(Use("24h", "pods", 7, 10), namespace="red"),
                pool=(make_pool_use(300, GuaranteeUse(2000, 250, 0)),),
                is_pool_standing_known=True,
            ),
        },
        Guarded(1, 3),
        frozenset({"ledger"}),
    )


def record_process(metrics: Metrics) -> None:
    """Record what a scrape reads of the process."""
    metrics.watch_in_flight(lambda: 3)
    metrics.watch_record(lambda: {"written": 5, "dropped": 2})
    metrics.watch_decision_records(lambda: {"written": 50, "dropped": 3})
    metrics.watch_trace_parents(lambda: {"followed": 10, "limited": 1})
    metrics.health.update(ready=True, leads=False)


def record_certificates(metrics: Metrics) -> None:
    """Record certificates in use and renewed, CA bundles repaired and failed, and reduced mode."""
    metrics.set_reduced_mode(on=True)
    metrics.set_certificates({"serving": 1_800_600_000.0})
    metrics.kept_certificates.count_issued("podgate-tls")
    metrics.kept_certificates.count_mended("mutatingwebhookconfigurations/podgate")
    metrics.kept_certificates.count_trouble()
    metrics.kept_certificates.set_kept({"podgate-tls": 2e9})
    metrics.webhooks.begin()
    metrics.on_webhooks_outdated(["MutatingWebhookConfiguration/podgate: absent"])
    metrics.webhooks.count_written()
    metrics.webhooks.on_creation_failed()


def record_breakers(metrics: Metrics) -> None:
    """Record each event of a breaker."""
    metrics.on_transition(transition(State.CLOSED, State.OPEN, "errorRate: 97% of 40"))
    metrics.on_transition(transition(State.CLOSED, State.CLOSED, HELD + "97% of 40", cause=TransitionCause.ERROR_RATE))
    metrics.on_transition(transition(State.HALF_OPEN, State.HALF_OPEN, EXPIRED))
    metrics.on_transition(transition(State.CLOSED, State.OPEN, "no node", "divided/spot"))
    metrics.on_transition(transition(State.HALF_OPEN, State.HALF_OPEN, EXPIRED, "divided/spot"))
    metrics.ledger.count_excused("payment-api", 2)
    metrics.ledger.count_wake("payment-api", "created")
    metrics.ledger.count_pod_wake("annotated")
    metrics.ledger.set_held({"payment-api": 3})


def record_files_and_keys(metrics: Metrics) -> None:
    """Record successful and failed reads and fetches."""
    metrics.files.count_load("key set", 1_800_000_004.5, is_good=True)
    metrics.files.count_load("key set", 1_800_000_009.5, is_good=False)
    metrics.keys.count_fetch("url", 1_800_000_004.5)
    metrics.keys.count_failed_fetch("url")
    metrics.keys.watch(lambda: {"file": 2, "url": 0})


def make_pool_use(used: int, guarantee: GuaranteeUse | None = None) -> Use:
    return Use("1m", "cpu", used, 300_000, of=Holder.POOL, name="prod", guarantee=guarantee)


def test_scripted_sequence_has_the_expected_scrape(metrics: Metrics) -> None:
    record_all(metrics)
    pay = 'service="payment-api"'
    shown = {
        key: value
        for key, value in read_samples(metrics).items()
        if "duration_seconds" not in key and "wait_sec" not in key
    }
    assert shown == {
        f'podgate_reviews_total{{decision="Admit",half="mutate",operation="CREATE",{pay}}}': 2,
        f'podgate_reviews_total{{decision="Admit",half="validate",operation="CREATE",{pay}}}': 7,
        f'podgate_reviews_total{{decision="Deny",half="validate",operation="CREATE",{pay}}}': 2,
        'podgate_reviews_total{decision="Unmatched",half="validate",operation="CREATE",service=""}': 1,
        'podgate_reviews_total{decision="Exempt",half="validate",operation="CREATE",service=""}': 1,
        'podgate_calls_total{client_id="prod-eu-1",role="apiserver"}': 14,
        "podgate_calls_in_flight": 3,
        **{
            f'podgate_refused_calls_total{{reason="{reason}"}}': reason == "authentication_expired"
            for reason in REASONS
        },
        f'podgate_findings_total{{code="QuotaExceeded",mode="Enforce",{pay}}}': 1,
        f'podgate_findings_total{{code="BreakerOpen",mode="Enforce",{pay}}}': 1,
        f'podgate_findings_total{{code="PlacementUnfulfilled",mode="Audit",{pay}}}': 2,
        f'podgate_findings_total{{code="QuotaExceeded",mode="Warn",{pay}}}': 1,
        f'podgate_would_deny_total{{concern="placement",{pay}}}': 1,
        f'podgate_would_deny_total{{concern="quota",{pay}}}': 1,
        f'podgate_would_rewrite_total{{concern="resources",{pay}}}': 1,
        f"podgate_degraded_total{{{pay}}}": 1,
        f"podgate_would_degrade_total{{{pay}}}": 1,
        'podgate_exempt_total{exemption="username"}': 1,
        'podgate_unmatched_total{namespace="tools"}': 1,
        f'podgate_workload_reviews_total{{decision="Admit",operation="UPDATE",{pay}}}': 1,
        f'podgate_workload_warnings_total{{code="PlacementConflict",{pay}}}': 2,
        f'podgate_quota_used{{namespace="",resource="pods",{pay},team="",window="1m"}}': 37,
        f'podgate_quota_used{{namespace="",resource="cpu",{pay},team="",window="1m"}}': 1.5,
        f'podgate_quota_used{{namespace="",resource="pods",{pay},team="",window="standing"}}': 9,
        'podgate_quota_used{namespace="",resource="pods",service="ledger",team="red",window="24h"}': 7,
        f'podgate_quota_limit{{namespace="",resource="pods",{pay},team="",window="1m"}}': 50,
        f'podgate_quota_limit{{namespace="",resource="cpu",{pay},team="",window="1m"}}': 40,
        f'podgate_quota_limit{{namespace="",resource="pods",{pay},team="",window="standing"}}': 200,
        'podgate_quota_limit{namespace="",resource="pods",service="ledger",team="red",window="24h"}': 10,
        f"podgate_standing_enforced{{{pay}}}": 0,
        'podgate_pool_standing_enforced{pool="prod"}': 1,
        'podgate_pool_standing_drift{pool="prod"}': 3,
        f'podgate_quota_denied_total{{of="service",resource="pods",{pay},window="1m"}}': 1,
        f'podgate_quota_denied_total{{of="pool",resource="cpu",{pay},window="1m"}}': 1,
        'podgate_pool_used{pool="prod",resource="cpu",window="1m"}': 0.3,
        'podgate_pool_limit{pool="prod",resource="cpu",window="1m"}': 300,
        'podgate_guaranteed_limit{resource="cpu",service="ledger",window="1m"}': 2,
        'podgate_guaranteed_used{resource="cpu",service="ledger",window="1m"}': 0.25,
        f"podgate_uncounted_total{{{pay}}}": 1,
        "podgate_store_up": 0,
        **{f'podgate_store_failures_total{{reason="{word}"}}': word == "timeout" for word in StoreFault},
        "podgate_store_losses_total": 1,
        f'podgate_store_fallback{{rule="Local",{pay}}}': 1,
        f"podgate_local_admitted_total{{{pay}}}": 1,
        f'podgate_booked_total{{cause="Away",{pay}}}': 3,
        "podgate_bookings_dropped_total": 1,
        f"podgate_deny_cache_hits_total{{{pay}}}": 1,
        f"podgate_slot_claims_total{{{pay}}}": 1,
        f'podgate_slot_lists_total{{reason="exceeded",{pay}}}': 1,
        f'podgate_quota_refunds_total{{cause="NeverCreated",{pay}}}': 1,
        f"podgate_refunds_unproven_total{{{pay}}}": 1,
        f"podgate_charged_afterwards_total{{{pay}}}": 1,
        f"podgate_unjudged_pods_total{{{pay}}}": 1,
        f"podgate_raised_afterwards_total{{{pay}}}": 1,
        "podgate_labels_ignored_total": 1,
        f"podgate_standing_drift{{{pay}}}": 4,
        "podgate_watched_pods": 12,
        f"podgate_queue_released_total{{{pay}}}": 1,
        f"podgate_queue_expired_total{{{pay}}}": 1,
        f'podgate_queue_oldest_seconds{{class="gold",{pay}}}': 41,
        f"podgate_queue_paused{{{pay}}}": 1,
        f'podgate_variant_pods{{{pay},variant="spot"}}': 7,
        f'podgate_variant_fell_back_pods{{{pay},variant="spot"}}': 1,
        f'podgate_variant_evictions_total{{{pay},variant="spot"}}': 1,
        f"podgate_queue_pods{{{pay}}}": 3,
        f'podgate_queue_failing_pods{{reason="admission",{pay}}}': 2,
        f'podgate_queue_groups{{{pay},state="Complete"}}': 2,
        f'podgate_queue_groups{{{pay},state="Incomplete"}}': 1,
        f'podgate_breaker_state{{{pay},state="CLOSED"}}': 0,
        f'podgate_breaker_state{{{pay},state="OPEN"}}': 1,
        f'podgate_breaker_state{{{pay},state="HALF_OPEN"}}': 0,
        f'podgate_breaker_state{{{pay},state="FORCED_OPEN"}}': 0,
        f'podgate_breaker_state{{{pay},state="FORCED_CLOSED"}}': 0,
        f'podgate_breaker_transitions_total{{from="CLOSED",reason="errorRate",{pay},to="OPEN"}}': 1,
        f"podgate_breaker_tripped_timestamp_seconds{{{pay}}}": AT_US / 1e6,
        f"podgate_breaker_open_remaining_seconds{{{pay}}}": 151.5,
        f"podgate_breaker_not_permitted_total{{{pay}}}": 1,
        f"podgate_breaker_probes_leased_total{{{pay}}}": 1,
        f"podgate_breaker_probes_expired_total{{{pay}}}": 1,
        f"podgate_breaker_excused_total{{{pay}}}": 2,
        f'podgate_controllers_woken_total{{result="created",{pay}}}': 1,
        f"podgate_held_controllers{{{pay}}}": 3,
        f"podgate_breaker_trips_held_total{{{pay}}}": 1,
        "podgate_breaker_guard_open": 1,
        "podgate_breaker_guard_max": 3,
        f'podgate_outcomes_total{{result="error",{pay},source="Pushed"}}': 40,
        f'podgate_outcomes_dropped_total{{reason="overflow",{pay}}}': 3,
        'podgate_outcomes_refused_total{reason="noService"}': 0,
        'podgate_outcomes_refused_total{reason="notPushed"}': 0,
        'podgate_outcomes_refused_total{reason="notNamed"}': 2,
        'podgate_policy_info{hash="0123456789abcdef"}': 1,
        'podgate_policy_reloads_total{result="success"}': 1,
        'podgate_policy_reloads_total{result="failure"}': 1,
        'podgate_policy_reviews_total{result="success"}': 0,
        'podgate_policy_reviews_total{result="failure"}': 1,
        "podgate_policy_last_reload_successful": 0,
        f"podgate_override_until_timestamp_seconds{{{pay}}}": 1_796_097_600,
        "podgate_overrides_last_reload_successful": 0,
        'podgate_kubernetes_watch_failures_total{resource="namespaces"}': 1,
        'podgate_objects_unread{resource="namespaces"}': 2,
        'podgate_kubernetes_watch_contact_timestamp_seconds{resource="namespaces"}': 1_800_000_003.5,
        'podgate_events_total{result="written"}': 1,
        'podgate_events_total{result="known"}': 0,
        'podgate_events_total{result="dropped"}': 0,
        'podgate_events_total{result="failed"}': 0,
        "podgate_replicas": 3,
        'podgate_file_reloads_total{file="key set",result="success"}': 1,
        'podgate_file_reloads_total{file="key set",result="failure"}': 1,
        'podgate_file_last_reload_successful{file="key set"}': 0,
        'podgate_file_last_reload_timestamp_seconds{file="key set"}': 1_800_000_004.5,
        'podgate_key_fetches_total{result="failure",source="url"}': 1,
        'podgate_key_fetches_total{result="success",source="url"}': 1,
        'podgate_keys_fetched_timestamp_seconds{source="url"}': 1_800_000_004.5,
        'podgate_keys{source="file"}': 2,
        'podgate_keys{source="url"}': 0,
        'podgate_recorded_events_total{result="written"}': 5,
        'podgate_recorded_events_total{result="dropped"}': 2,
        'podgate_decision_records_total{result="written"}': 50,
        'podgate_decision_records_total{result="dropped"}': 3,
        'podgate_trace_parents_total{result="followed"}': 10,
        'podgate_trace_parents_total{result="limited"}': 1,
        'podgate_overload{reason="latency"}': 1,
        'podgate_overload{reason="failures"}': 0,
        'podgate_overload{reason="store"}': 0,
        'podgate_overload_gated_total{service="payment-api"}': 1,
        "podgate_reduced_mode": 1,
        'podgate_certificate_expiry_timestamp_seconds{certificate="serving"}': 1_800_600_000,
        'podgate_credential_expiry_timestamp_seconds{client_id="prod-eu-1",credential="token"}': 1_800_003_600,
        'podgate_credential_expiry_timestamp_seconds{client_id="prod-eu-1",credential="certificate"}': 1_801_000_000,
        'podgate_certificate_renewals_total{secret="podgate-tls"}': 1,
        'podgate_ca_bundle_mended_total{place="mutatingwebhookconfigurations/podgate"}': 1,
        "podgate_certificate_troubles_total": 1,
        'podgate_kept_certificate_expiry_timestamp_seconds{secret="podgate-tls"}': 2e9,
        "podgate_last_review_timestamp_seconds": AT_NS / 1e9,
        "podgate_webhooks_stale": 1,
        "podgate_webhook_configurations_written_total": 1,
        "podgate_webhook_configuration_failures_total": 1,
        'podgate_pods_woken_total{result="annotated"}': 1,
        'podgate_writes_failing{object="controllers"}': 1,
        "podgate_ready": 1,
        "podgate_leader": 0,
        'podgate_build_info{version="0.1.0"}': 1,
    }


def test_durations_fall_into_buckets_of_seconds(metrics: Metrics) -> None:
    for duration_ns in (90_000, 100_000, 100_001, 11_000_000_000):
        metrics.on_reviewed(review(duration_ns=duration_ns))
    shown = series(metrics, "podgate_review_duration_seconds_bucket")
    assert shown['podgate_review_duration_seconds_bucket{half="validate",le="0.0001"}'] == 2
    assert shown['podgate_review_duration_seconds_bucket{half="validate",le="0.00025"}'] == 3
    assert shown['podgate_review_duration_seconds_bucket{half="validate",le="10.0"}'] == 3
    assert shown['podgate_review_duration_seconds_bucket{half="validate",le="+Inf"}'] == 4
    both = read_samples(metrics)
    assert both['podgate_review_duration_seconds_count{half="validate"}'] == 4
    assert both['podgate_review_duration_seconds_count{half="mutate"}'] == 0
    assert both['podgate_review_duration_seconds_sum{half="validate"}'] == pytest.approx(11.000290001)


def test_scrape_has_exactly_the_documented_names_labels_and_kinds(metrics: Metrics) -> None:
    metrics.on_policy_loaded(WITH_VARIANTS)
    record_all(metrics)
    record_extender(metrics)
    record_rollout(metrics)
    record_leading(metrics, RolloutState("a" * 16))
    text = metrics.render().decode()
    assert "otel" not in text
    assert "target_info" not in text
    scraped = {}
    for family in text_string_to_metric_families(text):
        if family.name.startswith("process_"):
            continue
        name = family.name + ("_total" if family.type == "counter" else "")
        labels = {frozenset(sample.labels) - {"le"} for sample in family.samples}
        assert len(labels) == 1, name
        scraped[name] = (family.type, *labels, family.documentation)
    assert scraped == {family.name: (family.kind.value, frozenset(family.labels), family.help) for family in FAMILIES}


def test_page_documents_exactly_the_exported_metrics() -> None:
    found = re.findall(r"^\| `(podgate_\w+)(?:\{([\w,]+)\})?` \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    documented = {name: tuple(labels.split(",")) if labels else () for name, labels in found}
    assert len(documented) == len(found), "a metric is documented twice"
    assert documented == {family.name: family.labels for family in FAMILIES}


def test_waits_and_releases_are_counted_by_class(metrics: Metrics) -> None:
    record_queue(metrics)
    shown = read_samples(metrics)
    assert shown['podgate_queue_wait_seconds_sum{class="gold"}'] == 912
    assert shown['podgate_queue_wait_seconds_bucket{class="gold",le="15.0"}'] == 1
    assert shown['podgate_queue_wait_seconds_bucket{class="gold",le="900.0"}'] == 2
    assert shown['podgate_queue_release_duration_seconds_sum{class="gold"}'] == 0.2
    assert shown['podgate_queue_failing_pods{reason="admission",service="payment-api"}'] == 2
    metrics.queue.set_depths(())
    gone = ("podgate_queue_oldest", "podgate_queue_paused", "podgate_queue_failing", "podgate_queue_groups")
    assert not [key for key in read_samples(metrics) if key.startswith(gone)]


def test_page_says_how_the_name_of_a_metric_tells_its_kind() -> None:
    rule = r"end in `(\w+)` are (\w+)s, those in `(\w+)` and `(\w+)` (\w+)s, the others (\w+)s\."
    (total, of_total, duration, wait, of_duration, of_others) = re.findall(rule, " ".join(PAGE.read_text().split()))[0]
    endings = {total: of_total, duration: of_duration, wait: of_duration}
    for family in FAMILIES:
        kind = next((kind for ending, kind in endings.items() if family.name.endswith(ending)), of_others)
        assert family.kind.value == kind, family.name


def test_page_documents_exactly_the_exported_process_metrics(metrics: Metrics) -> None:
    exported = set(re.findall(r"^(process_\w+) ", metrics.render().decode(), re.MULTILINE))
    assert exported == set(re.findall(r"`(process_\w+)`", PAGE.read_text()))


def test_reviews_of_pods_and_templates_set_the_time_of_the_last_one(metrics: Metrics) -> None:
    name = "podgate_last_review_timestamp_seconds"
    assert series(Metrics("1", ProcessRole.REVIEWS), name) == {name: 0}
    assert not series(Metrics("1", ProcessRole.RECONCILES), name), "a controller reviews nothing"
    for decision in (ADMITTED, changed(ADVISED, dry_run=True)):
        metrics.on_reviewed(review(decision))
        assert series(metrics, name) == {name: AT_NS / 1e9}
    assert metrics.last_review_us == AT_NS // 1000


def test_charge_duration_is_that_of_the_stage_that_calls_the_store(metrics: Metrics) -> None:
    metrics.on_reviewed(review(stages=STAGES))
    metrics.on_reviewed(review(stages=(*STAGES[:1], ("breaker", 1_000_005), ("answer", 1_000_009))))
    shown = read_samples(metrics)
    assert shown["podgate_charge_duration_seconds_count"] == 1
    assert shown["podgate_charge_duration_seconds_sum"] == 0.04
    assert shown['podgate_charge_duration_seconds_bucket{le="0.025"}'] == 0
    assert shown['podgate_charge_duration_seconds_bucket{le="0.05"}'] == 1


def test_stages_of_both_halves_are_counted_from_zero_by_their_own_durations() -> None:
    metrics = Metrics("1", ProcessRole.REVIEWS)
    name = "podgate_stage_duration_seconds_count"
    found = series(metrics, name)
    assert set(found.values()) == {0}
    metrics.on_reviewed(review(stages=STAGES))
    shown, labels = read_samples(metrics), 'half="validate",stage="check"'
    assert {key for key in found if shown[key]} == {f'{name}{{half="validate",stage="{stage}"}}' for stage, _ in STAGES}
    assert shown[f"podgate_stage_duration_seconds_sum{{{labels}}}"] == 0.001
    assert shown[f'podgate_stage_duration_seconds_bucket{{{labels[:15]},le="0.001",{labels[16:]}}}'] == 1
    assert shown[f'podgate_stage_duration_seconds_bucket{{{labels[:15]},le="0.0005",{labels[16:]}}}'] == 0
    assert not series(Metrics("1", ProcessRole.RECONCILES), name), "a controller reviews nothing"


def test_stages_of_many_reviews_are_counted_as_each_alone() -> None:
    series, expected = StageDurations(["decode"]), Durations(STAGE_BOUNDS_SECONDS)
    bounds_ns = [round(bound * 1e9) for bound in STAGE_BOUNDS_SECONDS]
    for end_ns in (ns for bound in bounds_ns for ns in [bound - 1, bound, bound + 1] * 20):
        series.pending(("decode", "answer")).append((end_ns + 7, (end_ns, end_ns + 5)))
        expected.add(end_ns)
    found = dict(series.read())
    assert found["decode"].read() == expected.read()
    assert found["answer"].read()[1] == pytest.approx(600 * 5e-9)


async def test_every_stage_of_the_interceptor_starts_at_zero() -> None:
    metrics, name = Metrics("1", ProcessRole.REVIEWS), "podgate_stage_duration_seconds_count"
    known = series(metrics, name)
    service = "- {name: web, match: {namespaces: [shop]}, quota: {windows: [{window: 1m, hard: {pods: 1}}]}}"
    gate = Gate(policy_of(service), observers=[metrics])
    await gate.mutate(object=pod())
    await gate.validate(object=gate.build_owned_pod("uid-1"))
    assert series(metrics, name) == dict.fromkeys(known, 1)


@pytest.mark.parametrize("has_policy", [True, False], ids=["all-reported", "none"])
def test_openmetrics_has_the_same_samples_as_the_text_format(metrics: Metrics, has_policy: bool) -> None:  # noqa: FBT001  a parameter of the test
    if has_policy:
        record_all(metrics)

    def found(families: Iterable[Metric]) -> set[tuple[str, frozenset[tuple[str, str]], float]]:
        return {
            (sample.name, frozenset(sample.labels.items()), sample.value)
            for family in families
            for sample in family.samples
            if not family.name.startswith("process_")
        }

    text = metrics.render(OPENMETRICS).decode()
    assert text.endswith("# EOF\n")
    assert found(read_openmetrics(text)) == found(text_string_to_metric_families(metrics.render().decode()))


TRACE = ReviewTrace(SpanReference("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"))


def test_exemplars_are_the_newest_traced_reviews_of_buckets_in_openmetrics_only(metrics: Metrics) -> None:
    before = metrics.render()
    metrics.on_reviewed(review(duration_ns=300_000))
    traced = (
        (250_000, "1" * 32),
        (240_000, "2" * 32),
        (11_000_000_000, "3" * 32),
    )
    for duration_ns, trace_id in traced:
        metrics.on_reviewed(
            review(duration_ns=duration_ns, trace=replace(TRACE, span=replace(TRACE.span, trace_id=trace_id)))
        )
    exemplars = {
        (sample.labels["half"], sample.labels["le"]): sample.exemplar
        for family in read_openmetrics(metrics.render(OPENMETRICS).decode())
        for sample in family.samples
        if sample.exemplar is not None
    }
    ids = {"span_id": "b7ad6b7169203331"}
    assert exemplars == {
        ("validate", "0.00025"): Exemplar({"trace_id": "2" * 32, **ids}, 0.00024, Timestamp(*divmod(AT_NS, 10**9))),
        ("validate", "+Inf"): Exemplar({"trace_id": "3" * 32, **ids}, 11.0, Timestamp(*divmod(AT_NS, 10**9))),
    }
    assert b" # {" not in before + metrics.render()


def test_bound_of_the_latency_objective_is_a_bucket(metrics: Metrics) -> None:
    metrics.on_reviewed(review(duration_ns=800_000_000))
    metrics.on_reviewed(review(duration_ns=800_000_001))
    assert read_samples(metrics)['podgate_review_duration_seconds_bucket{half="validate",le="0.8"}'] == 1


def test_refusal_counters_of_every_reason_start_at_zero(metrics: Metrics) -> None:
    shown = series(metrics, "podgate_refused_calls_total")
    assert shown == {f'podgate_refused_calls_total{{reason="{reason}"}}': 0 for reason in REASONS}


def test_code_uses_exactly_the_listed_refusal_reasons() -> None:
    pattern = re.compile(
        r'HTTPStatus\.\w+, "(\w+)"'  # the end of a call
        r'|\b_?(?:observer\.|on_)refused\(\s*"(\w+)"'  # what is reported of a call or a connection
        r'|\bstart_timer\([^"]*"(\w+)"'
        r'|\b_make_room\([^"]*"(\w+)"'
        r'|"(handshake_\w+)"'
    )
    # Adapters reject no calls; `podgate check` reads the counters there.
    files = [file for file in CODE.rglob("*.py") if file.name != "reasons.py" and "adapters" not in file.parts]
    code = "\n".join(file.read_text() for file in files)
    found = {word for words in pattern.findall(code) for word in words if word}
    assert found == {reason for reason in REASONS if not reason.startswith("authentication_")}


def test_counters_end_in_total_and_gauges_do_not() -> None:
    for family in FAMILIES:
        assert family.name.endswith("_total") == (family.kind is MetricKind.COUNTER), family.name


def test_content_type_is_that_of_the_text_format() -> None:
    assert CONTENT_TYPE == "text/plain; version=0.0.4; charset=utf-8"


@pytest.mark.parametrize("state", State)
def test_breaker_is_in_one_state_at_a_time(metrics: Metrics, state: State) -> None:
    metrics.update({"payment-api": look(state=state)})
    shown = series(metrics, "podgate_breaker_state")
    assert len(shown) == len(State)
    assert sum(shown.values()) == 1
    assert shown[f'podgate_breaker_state{{service="payment-api",state="{state}"}}'] == 1


LABELS = {
    **{cause: cause.value for cause in TransitionCause if cause is not TransitionCause.PROBE_EXPIRED},
    TransitionCause.FORCED_OPEN: "forced",
    TransitionCause.FORCED_CLOSED: "forced",
}
"""The documented values of the label `reason`, by cause."""


@pytest.mark.parametrize(("old", "cause"), TRANSITIONS)
def test_transition_label_is_its_cause_whatever_its_text(metrics: Metrics, old: State, cause: TransitionCause) -> None:
    new = TRANSITIONS[old, cause]
    metrics.on_transition(transition(old, new, "latency: because\nof {free} text", cause=cause))
    key = f'podgate_breaker_transitions_total{{from="{old}",reason="{LABELS[cause]}",service="payment-api",to="{new}"}}'
    assert series(metrics, "podgate_breaker_transitions_total") == {key: 1}


def test_transition_label_has_the_documented_values() -> None:
    assert set(LABELS.values()) == {
        *("errorRate", "latency", "quotaExceeded", "openForPassed", "probesSucceeded", "probeFailed"),
        *("unschedulable", "forced", "released", "reset"),
    }


def test_series_of_a_removed_service_end_for_good(metrics: Metrics) -> None:
    record_all(metrics)
    metrics.on_policy_loaded(policy("ledger", policy_hash="fedcba9876543210"))
    assert 'service="payment-api"' not in metrics.render().decode()
    assert series(metrics, "podgate_policy_info") == {'podgate_policy_info{hash="fedcba9876543210"}': 1}
    metrics.on_reviewed(review(QUOTA_DENIED))  # a review during the swap
    metrics.on_transition(transition(State.CLOSED, State.OPEN))
    metrics.outcomes.on_outcomes_counted("payment-api", "Pushed", "ok", 3)
    metrics.outcomes.on_outcomes_dropped("payment-api", "store")
    metrics.update({"payment-api": look(state=State.OPEN)})
    assert 'service="payment-api"' not in metrics.render().decode()
    assert 'podgate_quota_denied_total{of="service",resource="pods",service="",window="1m"}' in read_samples(metrics)


def test_kept_service_keeps_its_counts(metrics: Metrics) -> None:
    metrics.on_reviewed(review())
    metrics.on_policy_loaded(policy("payment-api"))
    assert list(series(metrics, "podgate_reviews_total").values()) == [1]


def test_standing_enforced_is_shown_for_pools_with_live_pod_limits(metrics: Metrics) -> None:
    live = replace(look(), pool=(replace(make_pool_use(3), window="standing"),))
    for late, is_known in enumerate((True, False)):
        at_us = AT_US + late
        metrics.update({"web": look(), "payment-api": replace(live, at_us=at_us, is_pool_standing_known=is_known)})
        assert list(series(metrics, "podgate_pool_standing_enforced").values()) == [is_known]
    metrics.ledger.set_pool_drift({"prod": 2})
    assert list(series(metrics, "podgate_pool_standing_drift").values()) == [2]
    metrics.ledger.set_watched(None)
    assert not series(metrics, "podgate_pool_standing_drift")


def test_service_without_a_snapshot_has_no_gauges(metrics: Metrics) -> None:
    metrics.update({"payment-api": look(Use("1m", "pods", 1, 50), state=State.CLOSED)})
    metrics.update({})
    assert not series(metrics, "podgate_quota_used")
    assert not series(metrics, "podgate_breaker_state")


def test_standing_enforced_is_shown_for_services_with_live_pod_limits(metrics: Metrics) -> None:
    live = look(Use("standing", "pods", 1, 50, of=Holder.STANDING))
    for is_known in (True, False):
        snapshots = {"payment-api": replace(live, is_standing_known=is_known), "ledger": look(Use("1m", "pods", 1, 50))}
        metrics.update(snapshots)
        [(labels, value)] = series(metrics, "podgate_standing_enforced").items()
        assert ("payment-api" in labels, value) == (True, is_known)
    metrics.update({"ledger": replace(look(), is_standing_known=True)})
    assert list(series(metrics, "podgate_standing_enforced").values()) == [1], "no namespace has a live Pod yet"


def test_pool_series_show_the_latest_member_snapshot(metrics: Metrics) -> None:
    seen = {
        name: ServiceSnapshot(AT_US + late, pool=(make_pool_use(used),))
        for name, late, used in (("ledger", 1, 9), ("payment-api", 0, 8))
    }
    metrics.update(seen)
    assert series(metrics, "podgate_pool_used") == {'podgate_pool_used{pool="prod",resource="cpu",window="1m"}': 0.009}
    metrics.on_policy_loaded(policy("web"))
    assert not series(metrics, "podgate_pool_used")


def test_namespaces_beyond_a_thousand_are_summed_and_known_ones_kept(metrics: Metrics) -> None:
    def snapshots(names: list[str]) -> dict[str, ServiceSnapshot]:
        return {"ledger": ServiceSnapshot(AT_US, {name: (Use("1m", "pods", 2, 10),) for name in names})}

    def key(namespace: str) -> str:
        return f'podgate_quota_used{{namespace="{namespace}",resource="pods",service="ledger",window="1m"}}'

    first = [f"ns-{number:04}" for number in range(1003)]
    metrics.update(snapshots(first))
    shown = series(metrics, "podgate_quota_used")
    assert len(shown) == 1001
    assert shown[key("other")] == 6
    metrics.update(snapshots(["a-newcomer", *first]))
    shown = series(metrics, "podgate_quota_used")
    assert len(shown) == 1001
    assert key("ns-0999") in shown
    assert shown[key("other")] == 8


def test_thousands_of_label_sets_over_time_never_overflow(metrics: Metrics) -> None:
    for number in range(0, 6000, 500):
        uses = {f"ns-{number + offset}": (Use("1m", "pods", 1, 10),) for offset in range(500)}
        metrics.update({"ledger": ServiceSnapshot(AT_US, uses)})
        assert len(series(metrics, "podgate_quota_used")) == 500
    assert "overflow" not in metrics.render().decode()


def test_caller_labels_are_bounded(metrics: Metrics) -> None:
    for number in range(500):
        metrics.on_reviewed(replace(review(), caller=replace(CALLER, client_id=f"client-{number}")))
        metrics.on_refused(f"reason-{number}", "")
        metrics.on_reviewed(review(changed(ADMITTED, operation=f"OPERATION-{number}")))
    calls = series(metrics, "podgate_calls_total")
    assert len(calls) == 201
    assert sum(calls.values()) == 1000
    assert len(series(metrics, "podgate_refused_calls_total")) == 101
    assert len(series(metrics, "podgate_credential_expiry_timestamp_seconds")) == 2 * 200
    assert len(series(metrics, "podgate_reviews_total")) == 2  # CREATE and other


def test_client_has_its_newest_credentials_and_is_counted_by_role(metrics: Metrics) -> None:
    renewed = replace(CALLER, token_expires_at_seconds=CALLER.token_expires_at_seconds + 60)
    for caller in (replace(CALLER, role="reporter"), CALLER, CALLER, renewed):
        metrics.on_reviewed(replace(review(), caller=caller))
    expiry = series(metrics, "podgate_credential_expiry_timestamp_seconds")
    assert renewed.token_expires_at_seconds in expiry.values()
    assert list(series(metrics, "podgate_calls_total").values()) == [1, 3]


def test_charged_pod_that_enforce_would_rewrite_is_counted(metrics: Metrics) -> None:
    would = replace(ADMITTED, would_write=(WouldWrite("resources", Mode.WARN, ("spec.x",)),))
    metrics.on_reviewed(review(changed(would, receipt=Receipt(AT_US, charged=True))))
    assert list(series(metrics, "podgate_would_rewrite_total").values()) == [1]


def test_mutating_review_is_not_counted_as_would_deny(metrics: Metrics) -> None:
    metrics.on_reviewed(review(replace(WOULD_BE_DENIED, half=Half.MUTATE)))
    assert not series(metrics, "podgate_would_deny_total")


def test_advice_is_not_counted_as_would_deny(metrics: Metrics) -> None:
    advice = tuple(replace(found, is_advice=True) for found in WOULD_BE_DENIED.findings)
    metrics.on_reviewed(review(replace(WOULD_BE_DENIED, findings=advice)))
    assert series(metrics, "podgate_findings_total")
    assert not series(metrics, "podgate_would_deny_total")


@pytest.mark.parametrize(("mode", "noted"), [(Mode.WARN, 1), (Mode.AUDIT, 0)])
def test_workload_warning_is_counted_in_warn_mode_only(metrics: Metrics, mode: Mode, noted: int) -> None:
    written = (WouldWrite("placement", mode, ("spec.affinity",)),)
    metrics.on_reviewed(review(replace(ADVISED, findings=(), would_write=written)))
    assert sum(series(metrics, "podgate_workload_warnings_total").values()) == noted
    assert not series(metrics, "podgate_would_rewrite_total")


@pytest.mark.parametrize("verdict", [Verdict.ADMIT, Verdict.UNMATCHED, Verdict.EXEMPT])
def test_template_review_changes_workload_metrics_only(metrics: Metrics, verdict: Verdict) -> None:
    before = read_samples(metrics)
    metrics.on_reviewed(review(changed(ADVISED, operation="CREATE", verdict=verdict, exemption="username")))
    names = {key.split("{")[0] for key, value in read_samples(metrics).items() if before.get(key) != value}
    assert names == {
        *("podgate_last_review_timestamp_seconds", "podgate_calls_total"),
        "podgate_credential_expiry_timestamp_seconds",
        *("podgate_workload_reviews_total", "podgate_workload_warnings_total"),
    }


def test_template_dry_run_is_a_review_without_warnings(metrics: Metrics) -> None:
    written = (WouldWrite("placement", Mode.WARN, ("spec.affinity",)),)
    metrics.on_reviewed(review(changed(ADVISED, dry_run=True, would_write=written)))
    assert list(series(metrics, "podgate_workload_reviews_total").values()) == [1]
    assert not series(metrics, "podgate_workload_warnings_total")


@pytest.mark.parametrize(
    ("receipt", "leased"),
    [
        (Receipt(AT_US, charged=True, breaker=look(state=State.CLOSED).breaker), 0),
        (Receipt(AT_US, charged=True, repeated=True, breaker=look(state=State.HALF_OPEN).breaker), 0),
        (Receipt(AT_US, breaker=look(state=State.HALF_OPEN).breaker), 0),
        (
            Receipt(AT_US, charged=True, would_refuse=(DeniedBy.BREAKER,), breaker=look(state=State.HALF_OPEN).breaker),
            0,
        ),
        (
            Receipt(
                AT_US,
                charged=True,
                breaker=look(state=State.CLOSED).breaker,
                transitions=(transition(State.HALF_OPEN, State.CLOSED),),
            ),
            1,
        ),
        (Receipt(AT_US, charged=True, breaker=look(state=State.OPEN).breaker), 1),
        (Receipt(AT_US, charged=True, would_refuse=(DeniedBy.BREAKER,), breaker=look(state=State.OPEN).breaker), 0),
        (Receipt(AT_US, charged=True, breaker=look(state=State.FORCED_CLOSED).breaker), 0),
    ],
)
def test_probe_is_counted_when_it_is_leased(metrics: Metrics, receipt: Receipt, leased: int) -> None:
    metrics.on_reviewed(review(changed(ADMITTED, receipt=receipt)))
    assert sum(series(metrics, "podgate_breaker_probes_leased_total").values()) == leased


def test_breaker_that_admits_all_marks_no_probe(metrics: Metrics) -> None:
    [payment, *others] = policy("payment-api", "ledger").policy.services
    degrades = replace(payment, breaker=Breaker(quota_exceeded=QuotaExceeded(), when_open=WhenOpen.DEGRADE))
    metrics.on_policy_loaded(replace(policy(), policy=replace(policy().policy, services=(degrades, *others))))
    receipt = Receipt(AT_US, charged=True, breaker=look(state=State.OPEN).breaker)
    metrics.on_reviewed(review(changed(ADMITTED, receipt=receipt)))
    assert not series(metrics, "podgate_breaker_probes_leased_total")


def test_expired_probes_and_held_trips_are_no_transitions(metrics: Metrics) -> None:
    for state in (State.OPEN, State.HALF_OPEN):
        metrics.on_transition(transition(state, state, EXPIRED))
    metrics.on_transition(transition(State.CLOSED, State.CLOSED, HELD + "mean > 2s", cause=TransitionCause.LATENCY))
    assert not series(metrics, "podgate_breaker_transitions_total")
    assert not series(metrics, "podgate_breaker_tripped_timestamp_seconds")
    assert sum(series(metrics, "podgate_breaker_probes_expired_total").values()) == 2
    assert sum(series(metrics, "podgate_breaker_trips_held_total").values()) == 1


def test_tripped_timestamp_is_known_after_a_restart_and_a_manual_open(metrics: Metrics) -> None:
    opened = "podgate_breaker_tripped_timestamp_seconds"
    metrics.update({"payment-api": look(state=State.CLOSED, tripped_at_us=AT_US - 90_000_000)})
    assert list(series(metrics, opened).values()) == [AT_US / 1e6 - 90]
    metrics.update({"payment-api": look(state=State.FORCED_OPEN)})
    assert list(series(metrics, opened).values()) == [AT_US / 1e6 - 29]


def test_store_failures_are_counted_by_reason(metrics: Metrics) -> None:
    for fault in StoreFault:
        metrics.count_store_failure(StoreFailure("because", fault))
    metrics.count_store_failure(StoreFailure("because\nof {free} text: no class"))
    shown = series(metrics, "podgate_store_failures_total")
    assert shown == {f'podgate_store_failures_total{{reason="{word}"}}': 1 + (word == "other") for word in StoreFault}


def test_ended_fallback_is_shown_as_zero(metrics: Metrics) -> None:
    metrics.set_fallback("ledger", "Deny", on=True)
    metrics.set_fallback("ledger", "Deny", on=False)
    metrics.set_fallback("stranger", "Deny", on=True)
    assert series(metrics, "podgate_store_fallback") == {
        'podgate_store_fallback{rule="Deny",service="ledger"}': 0,
    }


def test_server_without_a_policy_shows_no_successful_reload() -> None:
    shown = read_samples(Metrics("0.1.0", refusal_reasons=REASONS))
    assert shown["podgate_policy_last_reload_successful"] == 0
    assert shown['podgate_policy_reloads_total{result="failure"}'] == 0
    assert not any(key.startswith("podgate_policy_info") for key in shown)


def test_ended_override_has_no_series(metrics: Metrics) -> None:
    began = override("payment-api")
    metrics.on_overrides_loaded([began])
    metrics.on_override_changed("payment-api", None, began)
    assert series(metrics, "podgate_override_until_timestamp_seconds")
    later = replace(began, until="2099-01-01T00:00:00Z", reason="INC-2")
    metrics.on_override_changed("payment-api", None, later)
    metrics.on_override_changed("payment-api", began, None)
    assert list(series(metrics, "podgate_override_until_timestamp_seconds").values()) == [later.until_us / 1_000_000]
    metrics.on_override_changed("payment-api", later, None)
    assert not series(metrics, "podgate_override_until_timestamp_seconds")
    assert read_samples(metrics)["podgate_overrides_last_reload_successful"] == 1


def test_override_series_are_absent_without_a_source(metrics: Metrics) -> None:
    assert not series(metrics, "podgate_overrides_last_reload_successful")


def test_two_servers_in_one_process_do_not_share_counts(metrics: Metrics) -> None:
    metrics.on_reviewed(review())
    assert not series(Metrics("0.1.0", refusal_reasons=REASONS), "podgate_reviews_total")


async def test_memory_store_receipts_count_each_probe_once(metrics: Metrics) -> None:
    service = Service(
        "payment-api",
        Match(namespaces=("payments",)),
        quota=Quota(windows=(Window(Duration.parse("1s"), {"pods": Quantity.parse("1")}),)),
        breaker=Breaker(quota_exceeded=QuotaExceeded(count=1), open_for=Duration.parse("10s")),
    )
    plan, clock = CounterPlan.from_service(service), VirtualClock()
    store = MemoryStore(clock)

    async def ask(uid: str, at_seconds: int) -> None:
        clock.set(at_seconds * 1_000_000)
        receipt = await store.acquire(Acquire(plan, "payments", uid, {"pods": 1}, event_source=uid))
        metrics.on_reviewed(review(changed(ADMITTED, receipt=receipt)))
        for change in receipt.transitions:
            metrics.on_transition(change)

    await ask("first", 1)
    await ask("over", 1)  # trips
    await ask("refused", 5)
    await ask("probe-1", 12)
    await ask("probe-1", 12)  # repeated
    await ask("probe-2", 14)
    await ask("probe-3", 16)  # closes
    await ask("afterwards", 18)
    assert series(metrics, "podgate_breaker_probes_leased_total") == {
        'podgate_breaker_probes_leased_total{service="payment-api"}': 3
    }
    reasons = re.findall(r'from="(\w+)",reason="(\w+)"', metrics.render().decode())
    assert sorted(reasons) == [
        ("CLOSED", "quotaExceeded"),
        ("HALF_OPEN", "probesSucceeded"),
        ("OPEN", "openForPassed"),
    ]
    assert series(metrics, "podgate_quota_denied_total") == {
        'podgate_quota_denied_total{of="service",resource="pods",service="payment-api",window="1s"}': 1
    }
    metrics.update({"payment-api": await store.snapshot(plan)})
    assert read_samples(metrics)['podgate_breaker_state{service="payment-api",state="CLOSED"}'] == 1
    assert read_samples(metrics)['podgate_quota_used{resource="pods",service="payment-api",window="1s"}'] == 1


def test_former_leader_exports_no_pods_and_a_removed_service_no_drift(metrics: Metrics) -> None:
    metrics.ledger.set_watched(12)
    metrics.ledger.set_drift("payment-api", 4)
    metrics.ledger.set_pool_drift({"prod": 3})
    metrics.ledger.set_drift("ledger", 0)
    metrics.on_policy_loaded(policy("ledger"))
    assert series(metrics, "podgate_standing_drift") == {'podgate_standing_drift{service="ledger"}': 0}
    metrics.ledger.set_watched(None)
    assert series(metrics, "podgate_standing_drift") == series(metrics, "podgate_watched_pods") == {}


def test_key_metrics_are_shown_by_source_with_fetch_results(metrics: Metrics) -> None:
    metrics.keys.count_fetch("url", 1_800_000_004.5)
    assert series(metrics, "podgate_key_fetches_total") == {
        'podgate_key_fetches_total{result="failure",source="url"}': 0.0,
        'podgate_key_fetches_total{result="success",source="url"}': 1.0,
    }
    metrics.keys.count_failed_fetch("url")
    metrics.keys.watch(lambda: {"file": 2, "url": 0})
    shown = read_samples(metrics)
    assert shown['podgate_key_fetches_total{result="failure",source="url"}'] == 1.0
    assert shown['podgate_keys_fetched_timestamp_seconds{source="url"}'] == 1_800_000_004.5
    assert (shown['podgate_keys{source="file"}'], shown['podgate_keys{source="url"}']) == (2.0, 0.0)


def test_outdated_webhook_configurations_are_shown_by_the_process_that_compares_them() -> None:
    metrics, name = Metrics("1"), "podgate_webhooks_stale"
    assert series(metrics, name) == {}
    metrics.webhooks.begin()
    assert series(metrics, "podgate_webhook_configurations_written_total") == {
        "podgate_webhook_configurations_written_total": 0
    }
    for outdated in (["a", "b"], []):
        metrics.on_webhooks_outdated(outdated)
        assert series(metrics, name) == {name: len(outdated)}
    metrics.webhooks.end()
    assert series(metrics, name) == {}


def test_failing_writes_are_shown_until_they_succeed_or_another_process_leads(metrics: Metrics) -> None:
    name = 'podgate_writes_failing{object="controllers"}'
    metrics.failing_writes.set("controllers", fails=True)
    assert read_samples(metrics)[name] == 1
    metrics.failing_writes.set("controllers", fails=False)
    assert read_samples(metrics)[name] == 0
    metrics.failing_writes.end()
    assert name not in read_samples(metrics)


def test_symptoms_are_shown_beside_their_thresholds_while_this_process_leads(metrics: Metrics) -> None:
    rejected = RolloutState("a" * 16).reject(Rejection("b" * 16, "too many Pending Pods"))
    record_leading(metrics, rejected)
    shown = read_samples(metrics)
    assert shown['podgate_rollout_symptom_ratio{symptom="pending"}'] == 0.09
    assert shown['podgate_rollout_threshold_ratio{symptom="pending"}'] == 0.08
    assert 'podgate_rollout_symptom_ratio{symptom="denied"}' not in shown
    assert shown["podgate_rollout_degraded"] == 1
    assert shown['podgate_rollout_changes_total{reason="PolicyPromoted"}'] == 0
    metrics.leading.end()
    assert "podgate_rollout_degraded" not in read_samples(metrics)


def test_a_rollout_is_shown_while_there_is_one(metrics: Metrics) -> None:
    assert not any("rollout" in key or "shadow" in key for key in read_samples(metrics))
    record_rollout(metrics)
    shown = read_samples(metrics)
    assert shown[f'podgate_rollout_policy_info{{hash="{"b" * 16}",role="candidate"}}'] == 1
    assert [shown[f'podgate_rollout_phase{{phase="{phase}"}}'] for phase in Phase] == [0, 1, 0]
    assert shown["podgate_rollout_followed"] == 1
    assert shown['podgate_shadow_reviews_total{result="leftOut"}'] == 2
    assert shown['podgate_shadow_differences_total{difference="placement",service="web"}'] == 3
    metrics.on_policy_loaded(policy_of("- {name: web, match: {anyNamespace: true}}"))
    metrics.on_reviewed(review(changed(ADMITTED, service="new")))
    metrics.rollout.on_rollout_changed(RolloutView(), RolloutView("a" * 16, "b" * 16, added=frozenset({"new"})))
    metrics.on_reviewed(review(changed(ADMITTED, service="new")))
    counted = {key: value for key, value in read_samples(metrics).items() if key.startswith("podgate_reviews_total{")}
    assert [value for key, value in counted.items() if 'service="new"' in key] == [1]
    metrics.rollout.on_rollout_changed(RolloutView(), RolloutView())
    assert not any("rollout" in key or "shadow" in key for key in read_samples(metrics))


def test_a_variant_of_the_candidate_alone_is_exported_while_there_is_one(metrics: Metrics) -> None:
    opened = Transition("web/arm", State.CLOSED, State.OPEN, 5, "", 1, TransitionCause.UNSCHEDULABLE)
    snapshots = {"web/arm": ServiceSnapshot(5, breaker=BreakerView(State.OPEN, 1, 5, 6_000_005))}

    def read() -> dict[str, float]:
        metrics.on_transition(opened)
        metrics.update(snapshots)
        return {key: value for key, value in read_samples(metrics).items() if 'variant="arm"' in key and value}

    metrics.on_policy_loaded(policy_of("- {name: web, match: {anyNamespace: true}}"))
    assert read() == {}
    added = frozenset({BreakerOwner("web", "arm")})
    metrics.rollout.on_rollout_changed(RolloutView(), RolloutView("a" * 16, "b" * 16, added_variants=added))
    assert set(map(_find_name, read())) == {
        "podgate_variant_breaker_open_remaining_seconds",
        "podgate_variant_breaker_state",
        "podgate_variant_breaker_transitions_total",
    }
    metrics.rollout.on_rollout_changed(RolloutView(), RolloutView())
    assert read() == {}


def _find_name(series: str) -> str:
    return series.partition("{")[0]
