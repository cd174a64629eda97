"""Counters start at 0 before the first event, for Prometheus' increase()."""

import json
import re
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from tests.adapters.metrics import read_samples
from tests.core.reviewing import Gate, policy_of
from tests.harness.server_process import Files, pod, run_server
from webhook.adapters.metrics import CONTENT_TYPE, OPENMETRICS, Metrics, ProcessRole, families
from webhook.adapters.metrics.label_sets import list_zeros
from webhook.commands.simulator import Ask
from webhook.controller import reports
from webhook.core.breaker import State, Transition, TransitionCause
from webhook.core.policy.model import LoadedPolicy
from webhook.fallback.backlog import BookingCause
from webhook.outcomes.aggregator import DISABLED, OVERFLOW, STORE

SERVICES = """\
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement: {nodeSelector: {disk: ssd}}
  resources: {container: {max: {cpu: 1}}}
  quota: {windows: [{window: 1m, hard: {pods: 1}}]}
  breaker: {outcomes: {source: Pushed, reporters: [gw]}, errorRate: {}, quotaExceeded: {count: 2, countBy: Request}}
- name: tried
  match: {namespaces: [shop]}
  modes: {placement: Warn}
  placement: {nodeSelector: {disk: ssd}}
"""
EVERYTHING = ProcessRole.REVIEWS | ProcessRole.SHARES_STORE | ProcessRole.RECONCILES | ProcessRole.SCHEDULES
COUNTED = re.compile(r"podgate_\w+_total")
BY_SERVICE = [
    family
    for family in families.FAMILIES
    if "service" in family.labels
    and family.name.endswith("_total")
    and family is not families.SHADOW_DIFFERENCES  # of one candidate: there are no series without it
]


def counters(metrics: Metrics) -> dict[str, float]:
    """Return the counters of services."""
    found = read_samples(metrics)
    return {key: value for key, value in found.items() if COUNTED.match(key) and 'service="' in key}


async def test_first_event_of_a_service_is_an_increase() -> None:
    metrics = Metrics("1", ProcessRole.REVIEWS)
    gate = Gate(policy_of(SERVICES, "breakerGuard: {maxOpenPercent: 1}"), observers=[metrics])
    metrics.on_policy_loaded(gate.loaded)
    before = counters(metrics)
    assert before
    assert not any(before.values())
    one_core = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}
    good = {"nodeSelector": {"disk": "ssd"}, "containers": [{"name": "c", "resources": one_core}]}
    await gate.mutate()
    await gate.validate(object=gate.build_owned_pod("named", nodeSelector={"disk": "ssd"}, nodeName="n"))
    for number in range(5):
        await gate.validate(object=gate.build_owned_pod(f"u{number}", **good))
    await gate.validate(object=gate.build_owned_pod("hdd", nodeSelector={"disk": "hdd"}))
    tried = gate.build_owned_pod("trial", "tried")
    tried["metadata"]["labels"].pop("app")
    await gate.validate(object=tried)
    await gate.validate(
        resource={"group": "apps", "version": "v1", "resource": "deployments"},
        object={"metadata": {"name": "trial"}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}},
    )
    await gate.validate(
        object={**gate.build_owned_pod("naked"), "metadata": {"uid": "naked", "labels": {"app": "web"}}}
    )
    after = counters(metrics)
    grown = {key for key, value in after.items() if value}
    assert {key.partition("{")[0] for key in grown} >= {
        "podgate_reviews_total",
        "podgate_findings_total",
        "podgate_quota_denied_total",
        "podgate_breaker_transitions_total",
        "podgate_breaker_not_permitted_total",
        "podgate_would_rewrite_total",
        "podgate_workload_warnings_total",
    }
    assert any('code="NodeNameSet"' in key for key in grown)
    assert grown <= before.keys()


def test_counters_of_documented_alerts_start_at_zero() -> None:
    metrics = Metrics("1", EVERYTHING)
    metrics.on_policy_loaded(policy_of(SERVICES, "breakerGuard: {}"))
    shown = counters(metrics)
    for key in (
        'podgate_breaker_trips_held_total{service="web"}',
        'podgate_outcomes_dropped_total{reason="store",service="web"}',
        'podgate_outcomes_dropped_total{reason="overflow",service="web"}',
        'podgate_breaker_transitions_total{from="CLOSED",reason="errorRate",service="web",to="OPEN"}',
        'podgate_quota_denied_total{of="service",resource="pods",service="web",window="1m"}',
        'podgate_quota_refunds_total{cause="NeverCreated",service="web"}',
        'podgate_booked_total{cause="Away",service="web"}',
    ):
        assert shown[key] == 0
    metrics.on_transition(Transition("web", State.CLOSED, State.OPEN, 1, "96 %", 1, TransitionCause.ERROR_RATE))
    key = 'podgate_breaker_transitions_total{from="CLOSED",reason="errorRate",service="web",to="OPEN"}'
    assert counters(metrics)[key] == 1


def test_series_exist_only_for_possible_events() -> None:
    loaded = policy_of(SERVICES)
    of_tried = {
        family
        for family, of in list_zeros(loaded.policy, ProcessRole.REVIEWS).items()
        if any("tried" in series for series in of)
    }
    assert of_tried == {
        families.REVIEWS,
        families.FINDINGS,
        families.WOULD_DENY,
        families.WOULD_REWRITE,
        families.WORKLOADS,
        families.WORKLOAD_WARNINGS,
    }
    assert families.BREAKER_HELD not in list_zeros(loaded.policy, EVERYTHING), "there is no guard"
    assert families.REFUNDS not in list_zeros(loaded.policy, ProcessRole.REVIEWS | ProcessRole.SHARES_STORE), (
        "the controller's"
    )
    assert families.QUOTA_DENIED not in list_zeros(loaded.policy, ProcessRole.RECONCILES), "only servers count it"
    for family, of in list_zeros(loaded.policy, EVERYTHING).items():
        assert all(len(labels) == len(family.labels) for labels in of), family.name


def test_series_of_a_service_begin_and_end_at_the_swap() -> None:
    metrics = Metrics("1", EVERYTHING)
    metrics.on_policy_loaded(policy_of(SERVICES))
    assert any('service="tried"' in key for key in counters(metrics))
    metrics.on_policy_loaded(policy_of(SERVICES.replace("name: tried", "name: new")))
    shown = counters(metrics)
    assert any('service="new"' in key for key in shown)
    assert not any('service="tried"' in key for key in shown)


def many(count: int) -> LoadedPolicy:
    """Return a policy with seven codes of findings for each service."""
    return policy_of(
        "".join(f"- {{name: s{n}, match: {{namespaces: [n{n}]}}, placement: {{}}}}\n" for n in range(count))
    )


def test_thousands_of_services_start_at_zero() -> None:
    metrics = Metrics("1", ProcessRole.REVIEWS)
    metrics.on_policy_loaded(many(3_000))
    shown = counters(metrics)
    assert sum(key.startswith("podgate_findings_total") for key in shown) == 3_000 * 6
    assert sum(key.startswith("podgate_reviews_total") for key in shown) == 9_000 + 4


def test_beyond_the_series_limit_only_recorded_events_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = many(20)
    bounded = replace(families.FINDINGS, series_max=20 * 6 - 1)
    monkeypatch.setattr(families, "FINDINGS", bounded)
    found = list_zeros(loaded.policy, ProcessRole.REVIEWS)
    assert bounded not in found
    assert families.REVIEWS in found


@pytest.mark.parametrize(
    ("content_type", "parser", "library"),
    [
        (CONTENT_TYPE, text_string_to_metric_families, generate_latest),
        (OPENMETRICS, openmetrics_families, openmetrics.generate_latest),
    ],
    ids=["Prometheus", "OpenMetrics"],
)
def test_text_is_what_the_library_renders(content_type: str, parser: Any, library: Any) -> None:
    """Each family is one group, and a series has one line, whether it is recorded or not."""
    metrics = Metrics("1", EVERYTHING)
    metrics.on_policy_loaded(policy_of(SERVICES, "breakerGuard: {}"))
    metrics.on_transition(Transition("web", State.CLOSED, State.OPEN, 1, "96 %", 1, TransitionCause.ERROR_RATE))
    text = metrics.render(content_type).decode()
    lines = text.splitlines()
    names = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
    assert len(names) == len(set(names))
    series = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(series) == len(set(series))
    assert any("podgate_breaker_trips_held_total" in line for line in lines)
    parsed = SimpleNamespace(collect=lambda: parser(text))
    assert {*library(parsed).decode().splitlines()} == {*lines}


def test_label_values_match_those_of_the_counting_code() -> None:
    assert families.REFUND_CAUSES == (reports.NEVER_CREATED, reports.NAME_TAKEN)
    assert families.OVERFLOW == reports.OVERFLOW == OVERFLOW
    assert families.PUSHED_DROPS == (DISABLED, STORE, OVERFLOW)
    assert tuple(BookingCause) == families.BOOKING_CAUSES


@pytest.mark.parametrize("family", BY_SERVICE, ids=lambda family: family.name)
def test_every_service_counter_starts_at_zero(family: families.Family) -> None:
    """The policy has a service for each cause."""
    pods = "quota: {windows: [{window: 1m, hard: {pods: 1}}], whenStoreUnavailable: Allow}"
    queued = pods.replace("whenStore", "whenExceeded: Queue, queue: {onOverload: Gate}, whenStore")
    variants = "[{name: spot, weight: 1, nodeSelector: {capacity: spot}}, {name: on-demand, weight: 1}]"
    degrades = "breaker: {quotaExceeded: {}, whenOpen: Degrade}"
    more = f"""\
- {{name: allows, match: {{namespaces: [a]}}, {pods}}}
- {{name: queues, match: {{namespaces: [d]}}, {queued}}}
- {{name: degrades, match: {{namespaces: [b]}}, {degrades}}}
- {{name: scheduled, match: {{namespaces: [e]}}, scheduling: {{numa: Required}}}}
- {{name: divided, match: {{namespaces: [f]}}, placement: {{shares: {{variants: {variants}}}}}}}
- {{name: would-degrade, match: {{namespaces: [c]}}, modes: {{breaker: Audit}}, {degrades}}}
"""
    found = list_zeros(policy_of(SERVICES + more, "breakerGuard: {}").policy, EVERYTHING)
    assert found.get(family)


async def test_running_server_shows_counters_before_its_first_call(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path)) as server:
        text = (await server.get("/metrics"))[1]
    assert re.search(r'^podgate_quota_denied_total\{.*service="payment-api".*\} 0\.0$', text, re.MULTILINE), text[:2000]


async def test_review_sets_the_time_of_the_last_one_in_metrics_and_status(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path)) as server:
        assert json.loads((await server.get("/status"))[1])["lastReviewAt"] is None
        before = time.time()
        await server.create(Ask(pod(), "payments", "u1", "alice"))
        assert before <= await server.metric("podgate_last_review_timestamp_seconds") <= time.time()
        assert json.loads((await server.get("/status"))[1])["lastReviewAt"].startswith("20")
        assert await server.metric("podgate_charge_duration_seconds_count") == 1
