"""List of the cross-field rules by scope. A rule yields problems, and none if a field that it reads is invalid.

The name of a rule states what holds; its docstring names the fields and the values that it accepts, refuses or warns
about.
"""

from collections.abc import Callable, Iterator

from webhook.core.document.rules import (
    allowed_fields,
    breaker,
    limits,
    load_times,
    match,
    node_affinity,
    node_fit,
    parts,
    pod_affinity,
    pod_metadata,
    pod_rules,
    pools,
    preferences,
    quota,
    ratios,
    resources,
    rollout,
    scheduling,
    services,
    tolerations,
    topology,
)
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem

Rule = Callable[[DocumentPart], Iterator[Problem]]

_DOCUMENT_RULES: tuple[Rule, ...] = (
    services.names_are_unique,
    services.nothing_is_listed_twice,
    services.classes_exist,
    pools.pools_exist,
    pools.pools_agree_with_their_members,
    services.no_service_is_exempt,
    services.no_service_exempts_its_pods,
    match.every_service_can_be_reached,
    match.daemon_sets_are_not_exempt,
    pod_metadata.labels_decide_no_owner,
    quota.windows_differ,
    quota.amounts_are_exact,
    scheduling.a_source_is_one,
    scheduling.load_has_a_source,
    rollout.a_step_has_one_measure,
    rollout.steps_only_grow,
    rollout.alerts_come_later,
    load_times.loads_stay_fresh,
    load_times.windows_can_be_queried,
    parts.parts_are_told_apart,
    parts.pools_of_parts_exist,
)
_SERVICE_RULES: tuple[Rule, ...] = (
    match.a_match_says_where,
    match.selectors_make_sense,
    topology.topology_names_one_label,
    topology.topology_can_be_fulfilled,
    node_affinity.node_terms_are_kubernetes,
    node_affinity.required_terms_are_few,
    node_affinity.no_required_term_is_empty,
    node_fit.some_node_can_fit,
    pod_affinity.pod_terms_are_kubernetes,
    pod_affinity.some_pod_can_be_near,
    pod_affinity.pods_cannot_be_near_and_away,
    pod_affinity.spreads_are_kubernetes,
    pod_metadata.sources_are_labels_of_others,
    pod_affinity.fields_of_if_absent_are_set,
    tolerations.tolerations_are_kubernetes,
    resources.ranges_ascend,
    resources.defaults_do_not_overcommit,
    resources.implied_limits_fit_the_pod,
    resources.amounts_can_be_written,
    ratios.ratios_are_possible,
    ratios.a_limit_has_one_default,
    ratios.defaults_are_in_ratio,
    ratios.classes_can_be_reached,
    quota.a_quota_limits_something,
    quota.surge_has_its_measure,
    quota.waiting_has_its_rules,
    breaker.something_can_trip_it,
    breaker.outcomes_are_heard,
    breaker.a_source_has_its_own_fields,
    pod_rules.rule_names_are_unique,
    pod_rules.expressions_are_valid,
)
_ADVICE_ON_THE_DOCUMENT: tuple[Rule, ...] = (
    pools.pools_have_members,
    pools.pools_can_bind,
    topology.conflicts_can_happen,
    quota.longer_windows_can_bind,
    resources.units_are_meant,
    limits.some_pods_are_admitted,
    load_times.loads_outlive_scrapes,
    scheduling.prometheus_has_tls,
    scheduling.pressures_are_measured,
    rollout.a_canary_can_be_taken_back,
    rollout.small_shares_reach_something,
)
_ADVICE_ON_A_SERVICE: tuple[Rule, ...] = (
    match.any_namespace_is_wide,
    match.patterns_do_not_overlap,
    node_fit.every_term_can_fit,
    preferences.preferences_can_count,
    preferences.preferences_differ,
    pod_affinity.pod_terms_have_an_effect,
    node_affinity.terms_say_something_new,
    tolerations.tolerations_need_no_gate,
    tolerations.tolerations_add_something,
    tolerations.classes_have_pods,
    allowed_fields.allowed_names_can_be_kept,
    allowed_fields.allowed_values_add_something,
    pod_metadata.overridden_labels_select_no_pods,
    resources.limits_are_meant,
    resources.totals_see_every_container,
    resources.clamping_has_a_range,
    resources.huge_pages_have_company,
    ratios.ratios_can_bind,
    ratios.classes_fit_the_defaults,
    quota.a_queue_is_used,
    quota.only_enforced_pods_wait,
    limits.limits_admit_the_least_pod,
    quota.deployments_outlast_the_wait,
    quota.retry_after_can_be_sent,
    quota.namespaces_share_one_breaker,
    breaker.pod_starts_need_time,
    breaker.quota_events_can_happen,
    scheduling.thresholds_are_meant,
    scheduling.pods_reach_the_extender,
    pod_rules.rules_can_judge,
)


def find_errors(document: DocumentPart) -> Iterator[Problem]:
    """Yield the problems that make the document invalid."""
    yield from _apply(document, _DOCUMENT_RULES, _SERVICE_RULES)


def find_advice(document: DocumentPart) -> Iterator[Problem]:
    """Yield warnings about values that are probably mistakes."""
    yield from _apply(document, _ADVICE_ON_THE_DOCUMENT, _ADVICE_ON_A_SERVICE)


def _apply(document: DocumentPart, of_all: tuple[Rule, ...], of_each: tuple[Rule, ...]) -> Iterator[Problem]:
    for rule in of_all:
        yield from stop_at_invalid(rule(document))
    for service in document.select("services", "*"):
        for rule in of_each:
            yield from stop_at_invalid(rule(service))
