"""Transitions of a variant's breaker are told as those of a service, with the variant beside the service."""

import asyncio
import io
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from tests.adapters.metrics import read_samples
from tests.core.reviewing import policy_of
from tests.harness.fake_apiserver import wait_until
from tests.harness.records import AT_NS, look, transition
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.kubernetes.events.event_object import Regarding
from webhook.adapters.kubernetes.events.observer import make_transition_event
from webhook.adapters.logs import JsonLines, Logs
from webhook.adapters.metrics import Metrics, ProcessRole
from webhook.adapters.traces.attributes import describe_transition
from webhook.core.breaker import BreakerOwner, State, Transition, TransitionCause
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.quota import CounterPlan
from webhook.fallback.breaker_ticker import BreakerTicker

LOADED = policy_of("""\
- name: web
  match: {namespaces: [shop]}
  placement:
    shares:
      variants:
      - {name: spot, weight: 80, nodeSelector: {capacity: spot}}
      - {name: arm, weight: 10, nodeSelector: {capacity: arm}}
      - {name: on-demand, weight: 10, nodeSelector: {capacity: on-demand}}
- name: tried
  match: {namespaces: [tried]}
  modes: {placement: Audit}
  placement: {shares: {variants: [{name: spot, weight: 1, nodeSelector: {kind: spot}}, {name: on-demand, weight: 1}]}}
- name: plain
  match: {namespaces: [plain]}
""")
OPENED = transition(
    State.CLOSED,
    State.OPEN,
    "unschedulable: no node for 300s, 3 Pods",
    "web/spot",
    TransitionCause.UNSCHEDULABLE,
)


def test_breakers_of_a_policy_are_those_of_services_and_of_all_variants_but_the_last() -> None:
    plans = CompiledPolicy(LOADED).list_breakers()
    assert [plan.service for plan in plans] == ["web", "tried", "plain", "web/spot", "web/arm"]
    assert BreakerOwner.parse("web/spot") == BreakerOwner("web", "spot")
    assert BreakerOwner.parse("web") == BreakerOwner("web")
    assert [BreakerOwner.parse(plan.service).name for plan in plans] == [plan.service for plan in plans]


async def test_they_are_ticked_and_their_transitions_reported() -> None:
    class Counters:
        async def tick(self, plans: Sequence[CounterPlan]) -> Sequence[Transition]:
            return [OPENED] if "web/spot" in [plan.service for plan in plans] else []

    counters: Any = Counters()
    found: list[Transition] = []
    compiled = CompiledPolicy(LOADED)
    ticking = BreakerTicker(counters, VirtualClock(1_000_000 - 1), lambda: compiled, found.append)
    task = asyncio.create_task(ticking.run())
    await wait_until(lambda: bool(found))
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert found[0] == OPENED


def test_the_log_has_service_and_variant() -> None:
    output = io.StringIO()
    logs = Logs(JsonLines(output, lambda: AT_NS))
    logs.on_transition(OPENED)
    logs.on_transition(transition(State.CLOSED, State.OPEN, service="web"))
    of_variant, of_service = [json.loads(line) for line in output.getvalue().splitlines()]
    assert (of_variant["service"], of_variant["variant"], of_variant["new"]) == ("web", "spot", "OPEN")
    assert (of_variant["level"], of_variant["msg"]) == ("warning", "breaker transition")
    assert "variant" not in of_service


def test_the_event_and_the_span_name_the_variant() -> None:
    event = make_transition_event(OPENED, Regarding("v1", "ConfigMap", "podgate-system", "podgate-policy"))
    assert event is not None
    assert event.reason == "BreakerOpened"
    assert event.note == f"service web, variant spot: the breaker was CLOSED, is OPEN: {OPENED.reason} (generation 1)"
    span = describe_transition(OPENED)
    assert (span["podgate.service"], span["podgate.variant"]) == ("web", "spot")
    assert "podgate.variant" not in describe_transition(transition(State.CLOSED, State.OPEN))


def test_metrics_have_a_label_each_and_only_variants_of_the_policy() -> None:
    metrics = Metrics("1", ProcessRole.REVIEWS)
    metrics.on_policy_loaded(LOADED)
    for name in ("web/spot", "web/spot", "web/on-demand", "web/gone", "gone/spot", "tried/spot"):
        metrics.on_transition(transition(State.CLOSED, State.OPEN, "x", name, TransitionCause.UNSCHEDULABLE))
    metrics.on_transition(transition(State.HALF_OPEN, State.HALF_OPEN, "x", "web/arm"))
    metrics.update({"web/spot": look(state=State.OPEN, open_until_us=AT_NS // 1000 + 9_000_000), "web/gone": look()})
    found = {key: value for key, value in read_samples(metrics).items() if "variant_breaker" in key and value}
    assert found == {
        'podgate_variant_breaker_transitions_total{from="CLOSED",reason="unschedulable",service="web",to="OPEN",'
        'variant="spot"}': 2.0,
        'podgate_variant_breaker_probes_expired_total{service="web",variant="arm"}': 1.0,
        'podgate_variant_breaker_state{service="web",state="OPEN",variant="spot"}': 1.0,
        'podgate_variant_breaker_open_remaining_seconds{service="web",variant="spot"}': 9.0,
    }
    assert not [key for key in read_samples(metrics) if "podgate_breaker" in key and "web/" in key]


def test_counters_start_at_zero_and_end_with_their_variant() -> None:
    metrics = Metrics("1", ProcessRole.REVIEWS)
    metrics.on_policy_loaded(LOADED)
    counted = [key for key in read_samples(metrics) if key.startswith("podgate_variant_breaker")]
    assert len(counted) == 2 * 5, "four transitions and expired probes, of two variants"
    metrics.on_transition(OPENED)
    metrics.on_policy_loaded(policy_of("- name: web\n  match: {namespaces: [shop]}\n"))
    assert not [key for key in read_samples(metrics) if "variant" in key]
