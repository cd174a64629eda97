"""List of the cross-field rules by scope. A rule yields problems, and none if a field that it reads is invalid.

The name of a rule states what holds; its docstring names the fields and the values that it accepts, refuses or warns
about.
"""

from collections.abc import Callable, Iterator, Mapping

from webhook.core.document.rules import (
    allowed_fields,
    breaker,
    groups,
    guarantees,
    init_containers,
    limits,
    load_times,
    match,
    no_limits,
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
    schedules,
    scheduling,
    services,
    shares,
    tolerations,
    topology,
    workloads,
)
from webhook.core.document.yaml.parts import DocumentPart, stop_at_invalid
from webhook.core.document.yaml.problems import Problem

Rule = Callable[[DocumentPart], Iterator[Problem]]
WHOLE = ""
StanzaRules = Mapping[str, tuple[Rule, ...]]
"""Rules on a service by the one stanza that they read; those that read more are under WHOLE."""

DOCUMENT_RULES: tuple[Rule, ...] = (
    services.names_are_unique,
    services.nothing_is_listed_twice,
    services.classes_exist,
    pools.pools_exist,
    pools.pools_limit_something,
    pools.pools_agree_with_their_members,
    guarantees.guarantees_fit_their_pool,
    services.no_service_is_exempt,
    services.no_service_exempts_its_pods,
    match.every_service_can_be_reached,
    match.daemon_sets_are_not_exempt,
    pod_metadata.labels_decide_no_owner,
    quota.windows_differ,
    quota.amounts_are_exact,
    scheduling.a_source_is_one,
    scheduling.credentials_are_one,
    scheduling.credentials_have_tls,
    scheduling.load_has_a_source,
    rollout.a_step_has_one_measure,
    rollout.steps_only_grow,
    rollout.alerts_come_later,
    load_times.loads_stay_fresh,
    load_times.windows_can_be_queried,
    parts.parts_are_told_apart,
    parts.pools_of_parts_exist,
    workloads.kinds_are_not_kubernetes,
    workloads.kinds_differ,
)
SERVICE_RULES: StanzaRules = {
    WHOLE: (
        groups.groups_can_wait,
        schedules.schedules_do_not_overlap,
        schedules.a_schedule_changes_limits_of_its_quota,
        schedules.a_schedule_has_one_effect,
        schedules.a_schedule_lasts,
        schedules.schedule_names_are_unique,
        match.selectors_make_sense,
        pod_affinity.pod_terms_are_kubernetes,
        pod_affinity.some_pod_can_be_near,
        pod_affinity.pods_cannot_be_near_and_away,
        quota.a_quota_limits_something,
    ),
    "match": (
        match.a_match_says_where,
        shares.no_pod_is_selected_by_its_variant,
    ),
    "placement": (
        shares.variant_names_are_unique,
        shares.some_variant_has_a_weight,
        shares.the_base_is_a_variant,
        shares.variants_differ,
        shares.a_node_can_be_waited_for,
        topology.topology_names_one_label,
        topology.topology_can_be_fulfilled,
        node_affinity.node_terms_are_kubernetes,
        node_affinity.required_terms_are_few,
        node_affinity.no_required_term_is_empty,
        node_fit.some_node_can_fit,
        node_fit.some_node_can_fit_each_variant,
        pod_affinity.spreads_are_kubernetes,
        pod_metadata.sources_are_labels_of_others,
        pod_affinity.fields_of_if_absent_are_set,
        tolerations.tolerations_are_kubernetes,
    ),
    "resources": (
        resources.ranges_ascend,
        resources.defaults_do_not_overcommit,
        resources.implied_limits_fit_the_pod,
        resources.amounts_can_be_written,
        ratios.ratios_are_possible,
        ratios.a_limit_has_one_default,
        ratios.defaults_are_in_ratio,
        ratios.classes_can_be_reached,
        no_limits.no_limit_is_set,
        no_limits.guaranteed_pods_have_limits,
        init_containers.init_ranges_ascend,
        init_containers.init_defaults_are_in_ratio,
        init_containers.init_amounts_can_be_written,
    ),
    "quota": (
        quota.surge_has_its_measure,
        quota.waiting_has_its_rules,
    ),
    "breaker": (
        breaker.something_can_trip_it,
        breaker.outcomes_are_heard,
        breaker.a_source_has_its_own_fields,
    ),
    "rules": (
        pod_rules.rule_names_are_unique,
        pod_rules.expressions_are_valid,
    ),
}
ADVICE_ON_THE_DOCUMENT: tuple[Rule, ...] = (
    pools.pools_have_members,
    pools.pools_can_bind,
    guarantees.guarantees_are_kept,
    topology.conflicts_can_happen,
    quota.longer_windows_can_bind,
    resources.units_are_meant,
    limits.some_pods_are_admitted,
    limits.limits_admit_the_least_pod,
    load_times.loads_outlive_scrapes,
    scheduling.prometheus_has_tls,
    scheduling.credentials_are_mounted,
    scheduling.pressures_are_measured,
    scheduling.risk_is_measured,
    rollout.a_canary_can_be_taken_back,
    rollout.small_shares_reach_something,
    workloads.kinds_are_not_known,
)
ADVICE_ON_A_SERVICE: StanzaRules = {
    WHOLE: (
        groups.groups_fit_the_queue,
        groups.members_of_jobs_are_kept,
        groups.groups_are_placed_together,
        shares.only_enforced_placement_divides,
        scheduling.own_demand_counts,
        scheduling.something_is_decided,
        match.patterns_do_not_overlap,
        pod_affinity.pod_terms_have_an_effect,
        tolerations.classes_have_pods,
        no_limits.counted_limits_are_there,
        quota.a_queue_is_used,
        quota.only_enforced_pods_wait,
        quota.namespaces_share_one_breaker,
        breaker.quota_events_can_happen,
        scheduling.pods_reach_the_extender,
    ),
    "match": (match.any_namespace_is_wide,),
    "placement": (
        shares.each_variant_gets_pods,
        shares.no_pod_keeps_another_variants_nodes,
        shares.spreads_follow_the_variants,
        node_fit.every_term_can_fit,
        preferences.preferences_can_count,
        preferences.preferences_differ,
        node_affinity.terms_say_something_new,
        tolerations.tolerations_need_no_gate,
        tolerations.tolerations_add_something,
        allowed_fields.allowed_names_can_be_kept,
        allowed_fields.allowed_values_add_something,
        pod_metadata.overridden_labels_select_no_pods,
    ),
    "resources": (
        resources.limits_are_meant,
        resources.totals_see_every_container,
        resources.clamping_has_a_range,
        resources.huge_pages_have_company,
        ratios.ratios_can_bind,
        ratios.classes_fit_the_defaults,
        init_containers.init_amounts_have_containers,
    ),
    "quota": (
        quota.deployments_outlast_the_wait,
        quota.retry_after_can_be_sent,
    ),
    "breaker": (breaker.pod_starts_need_time,),
    "scheduling": (scheduling.thresholds_are_meant,),
    "rules": (pod_rules.rules_can_judge,),
}


def find_errors(document: DocumentPart) -> Iterator[Problem]:
    """Yield the problems that make the document invalid."""
    yield from _apply(document, DOCUMENT_RULES, SERVICE_RULES)


def find_advice(document: DocumentPart) -> Iterator[Problem]:
    """Yield warnings about values that are probably mistakes."""
    yield from _apply(document, ADVICE_ON_THE_DOCUMENT, ADVICE_ON_A_SERVICE)


def _apply(document: DocumentPart, of_all: tuple[Rule, ...], of_each: StanzaRules) -> Iterator[Problem]:
    for rule in of_all:
        yield from stop_at_invalid(rule(document))
    judged: set[int] = set()
    for service in document.select("services", "*"):
        for rule in of_each[WHOLE]:
            yield from stop_at_invalid(rule(service))
        for stanza, part in service.fields().items():
            if stanza in of_each and id(part.node) not in judged:  # services share the stanzas of `defaults`
                judged.add(id(part.node))
                alone = service.narrow(stanza)
                for rule in of_each[stanza]:
                    yield from stop_at_invalid(rule(alone))
