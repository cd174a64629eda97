"""Metric families exported by Podgate: name, kind, labels, help. A test compares `docs/metrics.md` with this list."""

from webhook.adapters.metrics.family import Family, MetricKind
from webhook.adapters.metrics.family import build_counter as _counter
from webhook.adapters.metrics.family import build_gauge as _gauge

NAMESPACES_MAX = 1_000
CLIENTS_MAX = 200
REASONS_MAX = 100

SUCCESS, FAILURE = "success", "failure"
"""Results of loading a document, a file or keys."""

EVENT_RESULTS = ("written", "known", "dropped", "failed")
"""Results of sending a Kubernetes Event; `known`: another server has sent the same Event."""

LIST_REASONS = ("unknown", "exceeded")
"""Reasons for listing an owner's Pods: the store does not know it, or all slots that it has are taken."""

REFUND_CAUSES = ("NeverCreated", "NameTaken")
"""Causes of refunding a charged Pod."""

WAKE_RESULTS = ("created", "refused", "gone", "failed")
"""Results of waking a controller whose Pods had been denied."""

BOOKING_CAUSES = ("Away", "Loss")
"""Causes of charging a Pod to the store after its admission."""

PUSHED_RESULTS = ("ok", "error")
OVERFLOW = "overflow"
PUSHED_DROPS = ("disabled", "store", OVERFLOW)
"""Reasons for dropping a pushed outcome."""

OUTCOME_REFUSALS = ("noService", "notPushed", "notNamed")
"""Reasons for rejecting a pushed outcome: no such service, no pushed outcomes in its policy, reporter not listed."""


REVIEWS = _counter("reviews_total", "half service operation decision", "Answered reviews of Pods.")
DURATION = Family(
    "podgate_review_duration_seconds", MetricKind.HISTOGRAM, ("half",), "Time from a review's body to its answer."
)
STAGE_DURATION = Family(
    "podgate_stage_duration_seconds", MetricKind.HISTOGRAM, ("half", "stage"), "Time of one stage of a review."
)
CHARGE_DURATION = Family(
    "podgate_charge_duration_seconds", MetricKind.HISTOGRAM, (), "Time that a review waited for the store."
)
LAST_REVIEW = _gauge("last_review_timestamp_seconds", "", "When the last review began, 0 before the first.")
CALLS = _counter("calls_total", "client_id role", "Reviews by calling client.", CLIENTS_MAX)
IN_FLIGHT = _gauge("calls_in_flight", "", "Calls being answered now.")
REFUSED = _counter("refused_calls_total", "reason", "Calls rejected before any decision.", REASONS_MAX)

FINDINGS = _counter("findings_total", "service code mode", "Policy findings, by the mode that applied to them.")
WOULD_DENY = _counter("would_deny_total", "service concern", "Pods admitted in Warn or Audit that Enforce would deny.")
WOULD_REWRITE = _counter(
    "would_rewrite_total",
    "service concern",
    "Pods admitted in Warn or Audit that Enforce would rewrite.",
)
DEGRADED = _counter(
    "degraded_total", "service", "New Pods rewritten to the degraded placement because of an open breaker."
)
WOULD_DEGRADE = _counter("would_degrade_total", "service", "New Pods in Warn or Audit that Enforce would degrade.")
EXEMPT = _counter("exempt_total", "exemption", "New Pods not handled because of an exemption.", REASONS_MAX)
UNMATCHED = _counter("unmatched_total", "namespace", "New Pods that no service owns.", NAMESPACES_MAX)
WORKLOADS = _counter("workload_reviews_total", "service operation decision", "Answered reviews of Pod templates.")
WORKLOAD_WARNINGS = _counter("workload_warnings_total", "service code", "Warnings given about Pod templates.")

QUOTA_USED = _gauge(
    "quota_used",
    "service resource window namespace team",
    "Amount charged within the trailing window, or of live Pods.",
)
QUOTA_LIMIT = _gauge("quota_limit", "service resource window namespace team", "The hard limit in force.")
QUOTA_DENIED = _counter(
    "quota_denied_total", "service resource window of", "Pods denied because this limit was reached."
)
STANDING_ENFORCED = _gauge("standing_enforced", "service", "1 while limits on live Pods are enforced, else 0.")
POOL_STANDING_ENFORCED = _gauge("pool_standing_enforced", "pool", "1 while a pool's live Pods are limited, else 0.")
POOL_USED = _gauge("pool_used", "pool resource window", "What its members use of a window, or of its live Pods.")
POOL_LIMIT = _gauge("pool_limit", "pool resource window", "The pool's hard limit in force.")
GUARANTEED_LIMIT = _gauge("guaranteed_limit", "service resource window", "What its pool guarantees to the service.")
GUARANTEED_USED = _gauge("guaranteed_used", "service resource window", "What the service uses in such a limit.")

UNCOUNTED = _counter(
    "uncounted_total", "service", "Pods admitted without being counted because the store did not respond."
)

STORE_UP = _gauge("store_up", "", "1 if the store responds, else 0.")
STORE_FAILURES = _counter("store_failures_total", "reason", "Store failures, each counted once until recovery.")
STORE_LOSSES = _counter("store_losses_total", "", "Times that the store may have lost acknowledged writes.")
STORE_FALLBACK = _gauge("store_fallback", "service rule", "1 while a service is in fallback, without the store.")
LOCAL_ADMITTED = _counter("local_admitted_total", "service", "Pods admitted by this replica's share of the limits.")
BOOKED = _counter("booked_total", "service cause", "Pods charged to the store after they were admitted.")
BOOKINGS_DROPPED = _counter("bookings_dropped_total", "", "Admitted Pods that will never be charged to the store.")
DENY_CACHE_HITS = _counter("deny_cache_hits_total", "service", "Pods denied by a cached denial.")

REFUNDS = _counter("quota_refunds_total", "service cause", "Charges refunded because the Pod was never created.")
REFUNDS_UNPROVEN = _counter(
    "refunds_unproven_total", "service", "Charges whose Pod creation cannot be verified; not refunded."
)
CHARGED_AFTERWARDS = _counter("charged_afterwards_total", "service", "Pods admitted uncounted and charged afterwards.")
UNJUDGED_PODS = _counter("unjudged_pods_total", "service", "New Pods that were admitted without a review.")
RAISED_AFTERWARDS = _counter("raised_afterwards_total", "service", "Pods resized uncounted and charged afterwards.")
LABELS_IGNORED = _counter("labels_ignored_total", "", "Pods whose label names a service that may not own them.")
STANDING_DRIFT = _gauge(
    "standing_drift",
    "service",
    "Live Pods that differed between the store and the cluster at the last comparison.",
)
POOL_STANDING_DRIFT = _gauge("pool_standing_drift", "pool", "Live Pods of a pool that differed at the last comparison.")
WATCHED_PODS = _gauge("watched_pods", "", "Existing Pods that belong to services.")
HELD_CONTROLLERS = _gauge("held_controllers", "service", "Controllers that lack Pods denied by quota or breaker.")
PODS_WOKEN = _counter("pods_woken_total", "result", "Waiting Pods that an extender asked the leader to wake.")
CONTROLLERS_WOKEN = _counter("controllers_woken_total", "service result", "Held controllers that were woken.")

SLOT_CLAIMS = _counter("slot_claims_total", "service", "New Pods that got a slot of their owner by a claim.")
SLOT_LISTS = _counter("slot_lists_total", "service reason", "Lists of the Pods of an owner, to find its free slots.")
VARIANT_PODS = _gauge("variant_pods", "service variant", "Living Pods of a variant; only on the leader.")
VARIANT_FELL_BACK = _gauge("variant_fell_back_pods", "service variant", "Pods that got another; only on the leader.")
VARIANT_EVICTIONS = _counter("variant_evictions_total", "service variant", "Evictions of Pods, to get another variant.")
QUEUE_PODS = _gauge("queue_pods", "service", "Pods that wait for their release; only on the leader.")
QUEUE_FAILING = _gauge("queue_failing_pods", "service reason", "Waiting Pods whose release fails; only on the leader.")
QUEUE_GROUPS = _gauge("queue_groups", "service state", "Groups that wait for room or members; only on the leader.")
QUEUE_RELEASED = _counter("queue_released_total", "service", "Waiting Pods that were released.")
QUEUE_EXPIRED = _counter("queue_expired_total", "service", "Pods that waited for maxWait without being released.")
QUEUE_OLDEST = _gauge("queue_oldest_seconds", "service class", "Age of the oldest waiting Pod; only on the leader.")
QUEUE_PAUSED = _gauge("queue_paused", "service", "1 if an override pauses the queue; only on the leader.")
QUEUE_WAIT = Family(
    "podgate_queue_wait_seconds", MetricKind.HISTOGRAM, ("class",), "Time that Pods waited until released or expired."
)
QUEUE_LATENCY = Family(
    "podgate_queue_release_duration_seconds",
    MetricKind.HISTOGRAM,
    ("class",),
    "Time from the moment at which a waiting Pod may be released to the removal of its gate.",
)

EXTENDER_CALLS = _counter("extender_calls_total", "verb result", "Calls from kube-scheduler, by result.")
EXTENDER_DURATION = Family(
    "podgate_extender_duration_seconds", MetricKind.HISTOGRAM, ("verb",), "Time to answer a call from kube-scheduler."
)
EXTENDER_REFUSED_NODES = _counter(
    "extender_refused_nodes_total", "service reason", "Nodes that a rule refused; they pass without Enforce."
)
EXTENDER_NODES = _gauge(
    "extender_nodes", "source", "Nodes by the source of their load; `unknown` if no source has fresh data."
)
EXTENDER_WAKES = _counter("extender_wakes_total", "", "Wakes of kube-scheduler for a refused Pod that fits again.")
EXTENDER_RECORDS_EVICTED = _counter("extender_records_evicted_total", "", "Scheduling records evicted for other Pods.")
EXTENDER_WAKE_ERRORS = _counter("extender_wake_errors_total", "", "Failed attempts to wake kube-scheduler.")
EXTENDER_WAKES_UNANSWERED = _counter(
    "extender_wakes_unanswered_total", "", "Pods whose wake was asked for, and that no controller has annotated."
)
EXTENDER_WAITING_PODS = _gauge("extender_waiting_pods", "", "Pods that wait because the rules refused nodes to them.")
EXTENDER_SERVICES = _gauge("extender_services", "service", "1 for each service whose Pods the extender decides on.")
EXTENDER_SOURCE_ERRORS = _counter(
    "extender_source_errors_total", "source", "Refreshes for which a source of node load gave no answer."
)
EXTENDER_SOURCE_AGE = _gauge(
    "extender_source_timestamp_seconds", "source", "When a source of load was last read, 0 before the first time."
)
EXTENDER_REFRESH = _gauge("extender_refresh_seconds", "source", "Time of the last refresh from a source of load.")
OVERLOAD = _gauge("overload", "reason", "1 while this server is overloaded for this reason, else 0.")
OVERLOAD_GATED = _counter("overload_gated_total", "service", "New Pods gated because this server was overloaded.")

BREAKER_STATE = _gauge("breaker_state", "service state", "1 for the state that the breaker is in, 0 for the others.")
BREAKER_TRANSITIONS = _counter("breaker_transitions_total", "service from to reason", "Changes of a breaker's state.")
BREAKER_TRIPPED = _gauge("breaker_tripped_timestamp_seconds", "service", "When the breaker last opened.")
BREAKER_REMAINING = _gauge(
    "breaker_open_remaining_seconds",
    "service",
    "Time until probes, or all Pods, are admitted; 0 unless the breaker is open.",
)
BREAKER_NOT_PERMITTED = _counter("breaker_not_permitted_total", "service", "Pods denied by an open breaker.")
BREAKER_PROBES = _counter("breaker_probes_leased_total", "service", "Pods admitted as probes.")
BREAKER_EXPIRED = _counter("breaker_probes_expired_total", "service", "Probes without an outcome before probeTimeout.")
BREAKER_EXCUSED = _counter(
    "breaker_excused_total",
    "service",
    "Controllers that lost Pods to a disruption; their quota denials are not breaker events.",
)
BREAKER_HELD = _counter("breaker_trips_held_total", "service", "Trips suppressed by breakerGuard.")
VARIANT_STATE = _gauge("variant_breaker_state", "service variant state", "1 for the state that it is in, else 0.")
VARIANT_TRANSITIONS = _counter(
    "variant_breaker_transitions_total", "service variant from to reason", "Changes of a variant's breaker."
)
VARIANT_REMAINING = _gauge(
    "variant_breaker_open_remaining_seconds",
    "service variant",
    "Time until Pods probe the variant; 0 unless it is open.",
)
VARIANT_EXPIRED = _counter("variant_breaker_probes_expired_total", "service variant", "Probes that said nothing.")
GUARD_OPEN = _gauge("breaker_guard_open", "", "Open breakers among those that breakerGuard counts.")
WRITES_FAILING = _gauge("writes_failing", "object", "1 while the leader's writes of this object fail, else 0.")
GUARD_MAX = _gauge("breaker_guard_max", "", "Largest number of open breakers that breakerGuard allows.")

OUTCOMES = _counter("outcomes_total", "service source result", "Outcomes recorded by breakers.")
OUTCOMES_DROPPED = _counter(
    "outcomes_dropped_total", "service reason", "Outcomes dropped before they reached a breaker."
)
OUTCOMES_REFUSED = _counter(
    "outcomes_refused_total", "reason", "Outcomes rejected because the reporter may not push them."
)

POLICY_INFO = _gauge("policy_info", "hash", "1 for the policy in force.")
POLICY_RELOADS = _counter("policy_reloads_total", "result", "Loads of a new policy document.")
POLICY_REVIEWS = _counter("policy_reviews_total", "result", "Policies and overrides validated on admission.")
POLICY_LAST_GOOD = _gauge("policy_last_reload_successful", "", "1 if the newest document is in force, else 0.")

ROLLOUT_POLICY = _gauge("rollout_policy_info", "hash role", "1 for each policy of a rollout.")
ROLLOUT_PHASE = _gauge("rollout_phase", "phase", "1 for the phase of the rollout, else 0.")
ROLLOUT_STEP = _gauge("rollout_step", "", "Index of the canary's step, from 0.")
ROLLOUT_PINNED = _gauge("rollout_pinned", "", "1 if the policy in force is pinned, else 0.")
ROLLOUT_FOLLOWED = _gauge("rollout_followed", "", "1 if this process does what the rollout's state says, else 0.")
ROLLOUT_DEGRADED = _gauge("rollout_degraded", "", "1 while what is wished was taken back, or another one is pinned.")
ROLLOUT_SYMPTOM = _gauge("rollout_symptom_ratio", "symptom", "Share of the candidate's Pods with a symptom.")
ROLLOUT_THRESHOLD = _gauge("rollout_threshold_ratio", "symptom", "Share above which a symptom counts.")
ROLLOUT_CHANGES = _counter("rollout_changes_total", "reason", "Changes of rollouts, by the reason of their Event.")
SHADOW_REVIEWS = _counter("shadow_reviews_total", "result", "New Pods in the sample of the candidate's shadow.")
SHADOW_DIFFERENCES = _counter(
    "shadow_differences_total", "service difference", "New Pods that the candidate would treat otherwise."
)
POLICY_PART_REFUSED = _gauge("policy_part_refused", "part", "1 for each part whose newest text is not in force.")

OVERRIDE_UNTIL = _gauge("override_until_timestamp_seconds", "service", "When the service's last live override ends.")
OVERRIDES_LAST_GOOD = _gauge(
    "overrides_last_reload_successful", "", "1 if the newest document of overrides is in force, else 0."
)

KUBERNETES_FAILURES = _counter(
    "kubernetes_watch_failures_total", "resource", "API server failures, each counted once until recovery.", REASONS_MAX
)
KUBERNETES_CONTACT = _gauge(
    "kubernetes_watch_contact_timestamp_seconds", "resource", "When the API server last sent data."
)
OBJECTS_UNREAD = _gauge("objects_unread", "resource", "Objects, or values of a source, that cannot be read now.")
FILE_RELOADS = _counter("file_reloads_total", "file result", "Loads of watched files, at the start and after changes.")
FILE_LOADED = _gauge("file_last_reload_timestamp_seconds", "file", "When valid files were last loaded.")
FILE_GOOD = _gauge(
    "file_last_reload_successful", "file", "0 while the current content of a watched file is rejected, else 1."
)
KEY_FETCHES = _counter("key_fetches_total", "source result", "Fetches of token verification keys.")
KEYS_FETCHED = _gauge("keys_fetched_timestamp_seconds", "source", "When keys were last fetched successfully.")
KEYS = _gauge("keys", "source", "Token verification keys.")
EVENTS = _counter("events_total", "result", "Kubernetes Events about denials and documents, by result.")
REPLICAS = _gauge("replicas", "", "Servers among which the limits are divided while the store is unavailable.")
RECORDED = _counter("recorded_events_total", "result", "Events for the --record file, by result.")
DECISION_RECORDS = _counter("decision_records_total", "result", "Decision records for Redis, by result.")
TRACE_PARENTS = _counter("trace_parents_total", "result", "Reviews whose caller requested a trace, by result.")
REDUCED_MODE = _gauge("reduced_mode", "", "1 if callers are not authenticated (reduced mode), else 0.")
CERTIFICATE_EXPIRY = _gauge("certificate_expiry_timestamp_seconds", "certificate", "When a certificate expires.")
CREDENTIAL_EXPIRY = _gauge(
    "credential_expiry_timestamp_seconds", "client_id credential", "When a caller's credential expires."
)
CERTIFICATES_MADE = _counter("certificate_renewals_total", "secret", "CAs and certificates issued in the cluster.")
TRUST_MENDED = _counter("ca_bundle_mended_total", "place", "CA bundles restored after a foreign change.")
CERTIFICATE_TROUBLES = _counter(
    "certificate_troubles_total", "", "Certificate maintenance failures, each counted once until recovery."
)
KEPT_EXPIRY = _gauge("kept_certificate_expiry_timestamp_seconds", "secret", "When the certificate in a Secret expires.")
READY = _gauge("ready", "", "1 if the process is ready, else 0.")
LEADER = _gauge("leader", "", "1 if the process holds the Lease, else 0.")
WEBHOOKS_STALE = _gauge(
    "webhooks_stale", "", "Webhook configurations that differ from the policy in force; only on the leader."
)
WEBHOOKS_WRITTEN = _counter("webhook_configurations_written_total", "", "Webhook configurations that were written.")
WEBHOOKS_FAILED = _counter(
    "webhook_configuration_failures_total", "", "Webhook configuration failures, each counted once until recovery."
)
BUILD_INFO = _gauge("build_info", "version", "1 for the running version.")

FAMILIES = (
    *(REVIEWS, DURATION, STAGE_DURATION, CHARGE_DURATION, LAST_REVIEW, CALLS, IN_FLIGHT, REFUSED),
    *(FINDINGS, WOULD_DENY, WOULD_REWRITE, DEGRADED, WOULD_DEGRADE, EXEMPT, UNMATCHED, WORKLOADS, WORKLOAD_WARNINGS),
    *(QUOTA_USED, QUOTA_LIMIT, QUOTA_DENIED, STANDING_ENFORCED, POOL_USED, POOL_LIMIT),
    *(GUARANTEED_LIMIT, GUARANTEED_USED, UNJUDGED_PODS, UNCOUNTED, POOL_STANDING_ENFORCED, POOL_STANDING_DRIFT),
    *(STORE_UP, STORE_FAILURES, STORE_LOSSES, STORE_FALLBACK),
    *(LOCAL_ADMITTED, BOOKED, BOOKINGS_DROPPED, DENY_CACHE_HITS),
    *(REFUNDS, REFUNDS_UNPROVEN, CHARGED_AFTERWARDS, RAISED_AFTERWARDS, LABELS_IGNORED, STANDING_DRIFT, WATCHED_PODS),
    *(SLOT_CLAIMS, SLOT_LISTS, VARIANT_PODS, VARIANT_FELL_BACK, VARIANT_EVICTIONS),
    *(QUEUE_PODS, QUEUE_FAILING, QUEUE_GROUPS, QUEUE_OLDEST, QUEUE_PAUSED, QUEUE_RELEASED, QUEUE_EXPIRED),
    *(QUEUE_WAIT, QUEUE_LATENCY),
    *(EXTENDER_CALLS, EXTENDER_DURATION, EXTENDER_REFUSED_NODES, EXTENDER_NODES),
    *(EXTENDER_WAKES, EXTENDER_WAKE_ERRORS, EXTENDER_WAKES_UNANSWERED, EXTENDER_WAITING_PODS),
    *(EXTENDER_SERVICES, EXTENDER_RECORDS_EVICTED, OVERLOAD, OVERLOAD_GATED),
    *(EXTENDER_SOURCE_ERRORS, EXTENDER_SOURCE_AGE, EXTENDER_REFRESH),
    *(BREAKER_STATE, BREAKER_TRANSITIONS, BREAKER_TRIPPED, BREAKER_REMAINING, BREAKER_NOT_PERMITTED, BREAKER_PROBES),
    *(BREAKER_EXPIRED, BREAKER_EXCUSED, BREAKER_HELD, GUARD_OPEN, GUARD_MAX, HELD_CONTROLLERS, CONTROLLERS_WOKEN),
    *(VARIANT_STATE, VARIANT_TRANSITIONS, VARIANT_REMAINING, VARIANT_EXPIRED, PODS_WOKEN),
    *(OUTCOMES, OUTCOMES_DROPPED, OUTCOMES_REFUSED),
    *(POLICY_INFO, POLICY_RELOADS, POLICY_REVIEWS, POLICY_LAST_GOOD, OVERRIDE_UNTIL, OVERRIDES_LAST_GOOD),
    *(ROLLOUT_POLICY, ROLLOUT_PHASE, ROLLOUT_STEP, ROLLOUT_PINNED, ROLLOUT_FOLLOWED),
    *(ROLLOUT_DEGRADED, ROLLOUT_SYMPTOM, ROLLOUT_THRESHOLD, ROLLOUT_CHANGES, SHADOW_REVIEWS, SHADOW_DIFFERENCES),
    *(KUBERNETES_FAILURES, KUBERNETES_CONTACT, OBJECTS_UNREAD, POLICY_PART_REFUSED),
    *(EVENTS, REPLICAS, READY, LEADER, BUILD_INFO, KEY_FETCHES, KEYS_FETCHED, KEYS),
    *(FILE_RELOADS, FILE_LOADED, FILE_GOOD, RECORDED, DECISION_RECORDS, TRACE_PARENTS, REDUCED_MODE),
    *(CERTIFICATE_EXPIRY, CREDENTIAL_EXPIRY, WEBHOOKS_STALE, WEBHOOKS_WRITTEN, WEBHOOKS_FAILED, WRITES_FAILING),
    *(CERTIFICATES_MADE, TRUST_MENDED, CERTIFICATE_TROUBLES, KEPT_EXPIRY),
)
