"""Warnings about workloads of a service with shares: what keeps their Pods from a variant, or fails Jobs."""

from typing import Any

import pytest

from tests.core.admission.workloads import request, template
from tests.core.reviewing import Gate, policy_of
from tests.core.strategies import Json
from webhook.core.admission.decision import Verdict

LABEL = "podgate.io/variant"
SHARES = (
    "shares: {base: {variant: on-demand, pods: 2}, variants: [{name: spot, weight: 4, nodeSelector: {capacity: spot}},"
    " {name: on-demand, weight: 1, nodeSelector: {capacity: on-demand}}]}"
)
POLICY = f"- {{name: web, match: {{namespaces: [shop]}}, placement: {{{SHARES}}}}}\n"
IGNORED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
DENIED = (
    "PlacementConflict: Pods of {} will be denied: service web: spec.template.metadata.labels[podgate.io/variant] is"
    " 'spot', and Podgate alone chooses the variant; remove the label from the template, and from the selector of the"
    " workload"
)
SELECTOR = (
    "SharesUnsafe: in Pods of deployment.apps/web: service web: spec.selector reads podgate.io/variant, which Podgate"
    " writes: a controller that does not know its Pods by the selector makes others without end; select by other labels"
)


async def list_warnings(body: Json, policy: str = POLICY, **spec: Any) -> tuple[str, ...]:
    spec_of = body["object"]["spec"]
    spec_of.get("jobTemplate", {}).get("spec", spec_of).update(spec)
    decision = await Gate(policy_of(policy)).validate(**body)
    assert decision.verdict is Verdict.ADMIT
    return decision.warnings


@pytest.mark.parametrize(
    ("group", "resource", "shown"),
    [
        ("apps", "deployments", "deployment.apps/web"),
        ("apps", "replicasets", "replicaset.apps/web"),
        ("apps", "statefulsets", "statefulset.apps/web"),
    ],
)
async def test_a_template_with_our_label_is_warned_of(group: str, resource: str, shown: str) -> None:
    body = request(template(labels={"app": "web", LABEL: "spot"}), group, resource)
    assert await list_warnings(body, selector={"matchLabels": {LABEL: "spot"}}) == (DENIED.format(shown),)


async def test_a_cron_job_with_our_label_is_warned_of() -> None:
    body = request(template(labels={LABEL: "spot"}), "batch", "cronjobs")
    assert DENIED.format("cronjob.batch/web") in await list_warnings(body, podFailurePolicy={"rules": [IGNORED]})


@pytest.mark.parametrize(
    "selector",
    [
        {"matchLabels": {LABEL: "spot"}},
        {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": LABEL, "operator": "DoesNotExist"}]},
    ],
)
async def test_a_selector_with_our_label_is_warned_of(selector: Json) -> None:
    assert await list_warnings(request(template()), selector=selector) == (SELECTOR,)


async def test_other_selectors_and_templates_have_no_warning() -> None:
    assert await list_warnings(request(template()), selector={"matchLabels": {"app": "web"}}) == ()


RULES = [
    (None, False),
    ({"rules": []}, False),
    ({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}, False),
    ({"rules": [IGNORED]}, True),
    ({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}, True),
    ({"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "False"}]}]}, False),
    ({"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}, IGNORED]}, True),
    ({"rules": [{"action": "Count", "onPodConditions": [{"type": "DisruptionTarget"}]}, IGNORED]}, False),
    ({"rules": "none"}, False),
    ("none", False),
]


@pytest.mark.parametrize("resource", ["jobs", "cronjobs"])
@pytest.mark.parametrize(("policy", "ignores"), RULES)
async def test_a_job_that_counts_evicted_pods_is_warned_of(resource: str, policy: Any, *, ignores: bool) -> None:
    warnings = await list_warnings(request(template(), "batch", resource), podFailurePolicy=policy)
    expected = (
        f"SharesUnsafe: in Pods of {resource[:-1]}.batch/web: service web: spec.podFailurePolicy does not ignore"
        " disruptions: a Pod that is evicted because its variant has no node"
    )
    assert [warning.partition(" counts")[0] for warning in warnings] == ([] if ignores else [expected])


async def test_a_service_that_divides_no_pods_has_no_such_warning() -> None:
    for policy in (POLICY.replace("match", "modes: {placement: Warn}, match"), POLICY.replace(SHARES, "")):
        body = request(template(labels={LABEL: "spot"}), "batch", "jobs")
        assert [line for line in await list_warnings(body, policy) if "variant" in line] == []
