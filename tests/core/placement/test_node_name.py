"""spec.nodeName bypasses the scheduler, and is denied for services with a placement."""

import msgspec
import pytest

from tests.core.reviewing import ALICE, REPLICA_SETS, Gate, envelope, policy_of
from tests.core.strategies import Json
from webhook.commands.simulator import Admission, Ask, admit
from webhook.core.admission.decision import Half, Verdict
from webhook.core.admission.exemptions import DAEMON_SET_CONTROLLER
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import MIRROR_ANNOTATION
from webhook.core.policy_fields import Mode
from webhook.core.rule_notes import Act, explain

WEB = """
- name: web
  match: {namespaces: [shop]}
  placement: {nodeSelector: {disk: ssd}}
"""
ALLOWED = WEB.replace("{nodeSelector: {disk: ssd}}", "{nodeSelector: {disk: ssd}, allowNodeName: true}")
CONTAINERS = [{"name": "c"}]


async def admit_pod(policy: str, user: str = ALICE, metadata: Json | None = None, head: str = "") -> Admission:
    spec = {"nodeName": "node-1", "containers": CONTAINERS}
    given = {"metadata": {"name": "p", **(metadata or {})}, "spec": spec}
    return await admit(Gate(policy_of(policy, head)).interceptor, Ask(given, "shop", "u", user))


@pytest.mark.parametrize("user", [ALICE, REPLICA_SETS, "system:node:node-1", DAEMON_SET_CONTROLLER + "x"])
async def test_pod_with_a_node_name_is_denied_for_any_caller(user: str) -> None:
    """A controller only copies a template; a kubelet may create mirror Pods, and no others."""
    admission = await admit_pod(WEB, user)
    assert admission.mutated.allowed, "the mutating half denies nothing"
    decision = admission.validated
    assert (decision.verdict, decision.status.code) == (Verdict.DENY, 403)
    assert [(found.code, found.field) for found in decision.denials] == [(Code.NODE_NAME_SET, "spec.nodeName")]
    assert "remove the field from the Pod" in decision.status.message
    assert "kubernetes.io/hostname" in decision.status.message


@pytest.mark.parametrize(
    ("user", "metadata", "head"),
    [
        (DAEMON_SET_CONTROLLER, {}, ""),
        ("system:node:node-1", {"annotations": {MIRROR_ANNOTATION: "x"}}, ""),
        ("ci", {}, "exemptions: {usernames: [ci]}"),
    ],
)
async def test_pod_of_an_exempt_caller_may_set_a_node_name(user: str, metadata: Json, head: str) -> None:
    assert (await admit_pod(WEB, user, metadata, head)).validated.verdict is Verdict.EXEMPT


async def test_daemon_set_controller_is_denied_without_its_exemption() -> None:
    admission = await admit_pod(WEB, DAEMON_SET_CONTROLLER, head="exemptions: {daemonSets: false}")
    assert admission.validated.verdict is Verdict.DENY


async def test_mirror_annotation_of_a_tenant_exempts_no_pod() -> None:
    admission = await admit_pod(WEB, metadata={"annotations": {MIRROR_ANNOTATION: "x"}})
    assert [found.code for found in admission.validated.denials] == [Code.NODE_NAME_SET]


@pytest.mark.parametrize(("mode", "denied"), [("Enforce", True), ("Warn", False), ("Audit", False)])
async def test_placement_mode_decides_whether_a_node_name_is_denied(mode: str, denied: bool) -> None:  # noqa: FBT001  a parameter
    decision = (await admit_pod(WEB + f"  modes: {{placement: {mode}}}")).validated
    assert [(found.code, found.mode) for found in decision.findings] == [(Code.NODE_NAME_SET, Mode(mode))]
    assert decision.allowed is not denied


@pytest.mark.parametrize(
    "policy",
    [
        ALLOWED,
        WEB + "  modes: {placement: Disabled}",
        WEB.replace("placement: {nodeSelector: {disk: ssd}}", "resources: {container: {max: {cpu: 1}}}"),
        WEB.replace("[shop]", "[elsewhere]"),
    ],
    ids=["allowed", "disabled", "no placement", "no service"],
)
async def test_node_name_is_admitted_if_no_placement_forbids_it(policy: str) -> None:
    assert (await admit_pod(policy)).validated.allowed


async def test_unrewritten_pod_with_a_node_name_is_denied() -> None:
    """Under failureMode Open, too: it admits what Podgate did not write, and not what the user wrote."""
    given = {"metadata": {"name": "p", "uid": "u"}, "spec": {"nodeName": "node-1", "containers": CONTAINERS}}
    decision = await Gate(policy_of(WEB)).validate(object=given)
    assert [found.code for found in decision.denials] == [Code.NODE_NAME_SET]


async def test_scheduled_pod_may_be_updated_and_resized() -> None:
    gate = Gate(policy_of(WEB))
    old = gate.build_owned_pod("u", nodeSelector={"disk": "ssd"}, nodeName="node-1")
    new = gate.build_owned_pod("u", nodeSelector={"disk": "ssd"}, nodeName="node-1")
    new["metadata"]["labels"]["version"] = "v2"
    for sub_resource in ("", "resize"):
        decision = await gate.validate(operation="UPDATE", subResource=sub_resource, oldObject=old, object=new)
        assert (decision.allowed, decision.findings) == (True, ())


async def test_node_name_in_a_workload_template_is_a_warning() -> None:
    template = {"spec": {"nodeName": "node-1", "containers": CONTAINERS}}
    request = envelope(
        resource={"group": "apps", "version": "v1", "resource": "deployments"},
        object={"metadata": {"name": "web"}, "spec": {"template": template}},
    )
    decision = (await Gate(policy_of(WEB)).interceptor.review(Half.VALIDATE, msgspec.json.encode(request))).decision
    (warning,) = decision.warnings
    assert warning.startswith("NodeNameSet: Pods of deployment.apps/web will be denied: service web: spec.nodeName is ")


@pytest.mark.parametrize(("policy", "act", "owed"), [(WEB, Act.LEFT, True), (ALLOWED, Act.NOTHING, False)])
def test_explanation_names_allow_node_name(policy: str, act: Act, owed: bool) -> None:  # noqa: FBT001
    (service,) = policy_of(policy).policy.services
    document = {"metadata": {"name": "p"}, "spec": {"nodeName": "node-1", "containers": CONTAINERS}}
    notes = {note.rule: note for note in explain(document, service, "0" * 16)}
    assert (notes["placement.allowNodeName"].act, bool(notes["placement.allowNodeName"].owed)) == (act, owed)
    assert not notes["placement.nodeSelector[disk]"].owed, "the selector is not the cause"
    del document["spec"]["nodeName"]
    assert "placement.allowNodeName" not in {note.rule for note in explain(document, service, "0" * 16)}
