"""`whenOpen: Degrade` in the mutating half: while the breaker is open, until it closes, and never in Warn and Audit."""

import base64
import re
from typing import Any

import jsonpatch
import msgspec
import pytest

from tests.core.reviewing import NOW_US, Gate, pod, policy_of
from tests.core.strategies import Json
from webhook.adapters.metrics import Metrics
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.breaker import State
from webhook.core.placement import SERVICE_LABEL
from webhook.core.policy.model import LoadedPolicy

PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def web(**more: str) -> LoadedPolicy:
    settings = {
        "modes": "{}",
        "whenOpen": "Degrade",
        "topology": "{level: Zone, in: [b, g], preferredWeight: 50}",
        **more,
    }
    return policy_of(f"""
- name: web
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: web}}}}}}
  modes: {settings["modes"]}
  placement:
    schedulerName: podgate-scheduler
    topology: [{settings["topology"]}]
  quota: {{windows: [{{window: 1m, hard: {{pods: 1}}}}]}}
  breaker: {{quotaExceeded: {{count: 1}}, openFor: 90s, halfOpen: {{probes: 1}}, whenOpen: {settings["whenOpen"]}}}
""")


async def trip(gate: Gate) -> None:
    """Trip the breaker: use up the quota, then request one Pod more."""
    for uid in ("u1", "u2"):
        await gate.validate(object=build_owned_pod(gate, uid))
    view = gate.store.find_known_breaker(gate.compiled.plans["web"])
    assert (view.state if view is not None else None) is State.OPEN


def build_owned_pod(gate: Gate, uid: str) -> Json:
    raw = pod({"app": "web", SERVICE_LABEL: "web"}, {"podgate.io/policy-hash": gate.loaded.hash}, uid)
    return {**raw, "spec": {**raw["spec"], "schedulerName": "podgate-scheduler"}}


def has_preferred_terms(decision: Decision) -> bool:
    """Return whether the patch writes preferred terms."""
    return PREFERRED in msgspec.json.encode(decision.patch).decode()


async def test_open_breaker_omits_preferred_terms_and_records_it() -> None:
    gate = Gate(web())
    before = await gate.mutate(object=pod({"app": "web"}))
    await trip(gate)
    answer = await gate.ask(Half.MUTATE, object=pod({"app": "web"}))
    decision = answer.decision
    assert (has_preferred_terms(before), has_preferred_terms(decision)) == (True, False)
    assert "degraded" not in before.audit
    assert decision.audit["degraded"] == "breaker OPEN"
    assert "breaker OPEN: preferred terms are left out" in [step.found for step in decision.steps]
    assert (decision.verdict, decision.allowed, decision.warnings) == (Verdict.ADMIT, True, ())
    response = msgspec.json.decode(answer.body)["response"]
    assert response["auditAnnotations"]["degraded"] == "breaker OPEN"
    paths = [operation["path"] for operation in msgspec.json.decode(base64.b64decode(response["patch"]))]
    assert "/spec/schedulerName" in paths


async def test_only_the_quota_can_deny_a_degraded_pod_in_the_validating_half() -> None:
    gate = Gate(web())
    await trip(gate)
    gate.clock.set(NOW_US + 61_000_000)
    mutated = await gate.mutate(object=pod({"app": "web"}))
    assert mutated.deviation.degraded
    validated = await gate.validate(object=build_owned_pod(gate, "u3"))
    assert (validated.verdict, validated.findings) == (Verdict.ADMIT, ())
    refused = await gate.validate(object=build_owned_pod(gate, "u4"))
    assert [finding.code for finding in refused.denials] == ["QuotaExceeded"]


async def test_mutation_after_the_breaker_closed_adds_the_omitted_terms() -> None:
    gate = Gate(web())
    await trip(gate)
    raw = pod({"app": "web"})
    degraded = jsonpatch.apply_patch(raw, msgspec.to_builtins((await gate.mutate(object=raw)).patch))
    gate.clock.set(NOW_US + 91_000_000)
    later = await gate.mutate(object=degraded)
    assert (later.deviation.degraded, has_preferred_terms(later)) == ("", True)
    assert {operation.path for operation in later.patch} == {"/spec/affinity"}


@pytest.mark.parametrize("mode", ["Warn", "Audit", "Disabled"])
async def test_breaker_that_is_not_enforced_omits_no_terms(mode: str) -> None:
    gate = Gate(web(modes=f"{{breaker: {mode}}}"))
    for uid in ("u1", "u2"):
        await gate.validate(object=build_owned_pod(gate, uid))
    decision = await gate.mutate(object=pod({"app": "web"}))
    assert has_preferred_terms(decision)
    assert (decision.deviation.degraded, decision.deviation.would_degrade) == ("", mode != "Disabled")
    assert "degraded" not in decision.audit
    message = f"{mode}: breaker OPEN: preferred terms would be left out"
    assert (message in [step.found for step in decision.steps]) == (mode != "Disabled")


@pytest.mark.parametrize(
    "more",
    [{"whenOpen": "Deny"}, {"topology": ""}, {"modes": "{placement: Warn}"}],
    ids=["Deny", "no preference", "Warn"],
)
async def test_pod_is_not_degraded_if_no_terms_can_be_omitted(more: dict[str, str]) -> None:
    gate = Gate(web(**more))
    await trip(gate)
    untripped = Gate(gate.loaded)
    request: dict[str, Any] = {"object": pod({"app": "web"})}
    decision = await gate.mutate(**request)
    assert (decision.deviation.degraded, decision.deviation.would_degrade) == ("", False)
    assert decision.patch == (await untripped.mutate(**request)).patch


@pytest.mark.parametrize(("mode", "name"), [("Enforce", "degraded"), ("Warn", "would_degrade")])
async def test_metric_counts_each_degraded_pod_once_and_no_dry_run(mode: str, name: str) -> None:
    loaded = web(modes=f"{{breaker: {mode}}}")
    metrics = Metrics("1")
    metrics.on_policy_loaded(loaded)
    gate = Gate(loaded, observers=[metrics])
    for uid in ("u1", "u2"):
        await gate.validate(object=build_owned_pod(gate, uid))
    raw = pod({"app": "web"})
    patch = (await gate.mutate(object=raw)).patch
    await gate.mutate(object=jsonpatch.apply_patch(raw, msgspec.to_builtins(patch)))
    await gate.mutate(object=raw, dryRun=True)
    lines = metrics.render().decode().splitlines()
    assert [line for line in lines if re.match(r"podgate_\w*degrade", line)] == [
        f'podgate_{name}_total{{service="web"}} 1.0'
    ]
