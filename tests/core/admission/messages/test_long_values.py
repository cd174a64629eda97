"""Findings quote a short part of a Pod's values: Kubernetes bounds some of them late, or not at all."""

import pytest

from tests.core.reviewing import Gate, body, envelope, pod, policy_of
from tests.core.strategies import Json
from webhook.core.admission.decision import Half
from webhook.core.findings import shorten_text

LONG = "n" * 5_000
POLICY = policy_of(
    """
- name: web
  match: {namespaces: [shop]}
  placement:
    schedulerName: s
    priorityClassName: high
    runtimeClassName: small
    nodeSelector: {disk: ssd}
    labels: {team: a}
    annotations: {cost: a}
    allow: {tolerations: [], nodeSelectorKeys: [], schedulerNames: [s]}
"""
)
ALLOWING = policy_of(
    """
- name: web
  match: {namespaces: [shop]}
  placement: {allow: {tolerations: [], nodeSelectorKeys: [], schedulerNames: [s], runtimeClassNames: [small]}}
""",
    "workloads: [{apiGroup: example.com, kind: Farm, templates: [spec.template]}]",
)


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulerName": LONG},
        {"priorityClassName": LONG},
        {"runtimeClassName": LONG},
        {"nodeSelector": {"disk": LONG}},
        {"nodeName": LONG},
    ],
    ids=lambda spec: next(iter(spec)),
)
async def test_message_about_a_field_of_the_spec_is_short(spec: Json) -> None:
    gate = Gate(POLICY)
    decision = await gate.validate(object=gate.build_owned_pod("u", **spec))
    assert any("nnnn…" in finding.message for finding in decision.findings)
    assert len(decision.status.message) < 3_000


@pytest.mark.parametrize(
    "spec",
    [
        {"schedulerName": LONG},
        {"runtimeClassName": LONG},
        {"nodeSelector": {LONG: "x"}},
        {"tolerations": [{"key": LONG, "operator": "Exists"}]},
    ],
    ids=lambda spec: next(iter(spec)),
)
async def test_message_about_what_is_not_allowed_is_short_and_has_the_remedy(spec: Json) -> None:
    gate = Gate(ALLOWING)
    decision = await gate.validate(object=gate.build_owned_pod("u", **spec))
    [finding] = decision.findings
    assert len(finding.message) < 2_100
    assert finding.message.endswith("remove it from the Pod, or have the policy's owner allow it")


@pytest.mark.parametrize("kind", ["labels", "annotations"])
async def test_message_about_a_changed_value_is_short(kind: str) -> None:
    gate = Gate(POLICY)
    old, new = gate.build_owned_pod("u"), gate.build_owned_pod("u")
    key = {"labels": "podgate.io/service", "annotations": "podgate.io/policy-hash"}[kind]
    new["metadata"][kind][key] = LONG
    decision = await gate.validate(object=new, oldObject=old, operation="UPDATE")
    assert "nnnn…" in decision.status.message
    assert len(decision.status.message) < 1_000


async def test_warning_about_a_template_is_short() -> None:
    template = {"metadata": {"labels": {"podgate.io/service": LONG}}, "spec": pod(schedulerName=LONG)["spec"]}
    document = {
        "apiVersion": "example.com/v1",
        "kind": "Farm",
        "metadata": {"name": "f", "namespace": "shop"},
        "spec": {"template": template},
    }
    sent = envelope(object=document, resource={"group": "example.com", "version": "v1", "resource": "farms"})
    answer = await Gate(ALLOWING).interceptor.review(Half.VALIDATE, body(**sent["request"]))
    assert answer.decision.warnings
    assert max(map(len, answer.decision.warnings)) < 2_500


def test_shortened_text_keeps_its_end() -> None:
    assert shorten_text("a" * 2_000) == "a" * 2_000
    assert len(shorten_text(f"{LONG}: remove it")) <= 2_003
    assert shorten_text(f"{LONG}: remove it").endswith("nnn: remove it")
