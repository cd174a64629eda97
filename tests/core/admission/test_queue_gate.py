"""The gate of waiting Pods: written and removed only by Podgate, as every other gate with its prefix."""

from typing import Any

import pytest

from tests.core.reviewing import ALICE, Gate, pod
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Verdict
from webhook.core.admission.exemptions import PODGATE_USERS
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.document import Purpose, load
from webhook.core.findings import Code
from webhook.core.policy_fields import Mode
from webhook.interceptor import Interceptor
from webhook.observers import Observers

QUOTA = "quota: {windows: [{window: 1m, hard: {pods: 9, cpu: '4'}}], %s}"
QUEUES = QUOTA % "whenExceeded: Queue, queue: {}"
DENIES = QUOTA % "whenExceeded: Deny"
BREAKER = "breaker: {quotaExceeded: {}, whenOpen: %s}"
OURS, OTHER = {"name": QUEUE_GATE}, {"name": "example.com/other"}
OTHER_OF_OURS = {"name": "podgate.io/other"}
ALL_DISABLED = "{quota: Disabled, placement: Disabled, resources: Disabled, breaker: Disabled}"
CONTROLLER = "system:serviceaccount:podgate-system:podgate-controller"


def gate_of(stanzas: str = QUEUES, modes: str = "{}") -> Gate:
    text = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: web}}}}}}
  modes: {modes}
  {stanzas}
"""
    return Gate(load(text.encode(), Purpose.REPLAY).policy)


def containers(cpu: str) -> list[dict[str, Any]]:
    return [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]


async def update(gate: Gate, before: list[Any], after: list[Any], user: str = ALICE) -> Any:
    old, new = (gate.build_owned_pod("u", schedulingGates=gates) for gates in (before, after))
    return await gate.validate(operation="UPDATE", object=new, oldObject=old, userInfo={"username": user})


async def test_tenant_that_removes_the_gate_is_refused_with_the_remedy() -> None:
    decision = await update(gate_of(), [OTHER, OURS], [OTHER])
    assert (decision.verdict, decision.status.code) == (Verdict.DENY, 403)
    [found] = decision.findings
    assert (found.code, found.field) == (Code.IMMUTABLE, "spec.schedulingGates")
    assert "wait, delete the Pod, or have an admin run podgate quota grant web" in decision.status.message


@pytest.mark.parametrize(("before", "after"), [([OTHER, OURS], [OURS]), ([OTHER], []), ([OURS], [OURS])])
async def test_other_gates_may_be_removed(before: list[Any], after: list[Any]) -> None:
    decision = await update(gate_of(), before, after)
    assert (decision.allowed, decision.findings) == (True, ())


@pytest.mark.parametrize("user", sorted(PODGATE_USERS))
async def test_podgates_own_removal_is_not_checked(user: str) -> None:
    decision = await update(gate_of(), [OURS], [], user)
    assert (decision.allowed, decision.findings, decision.service) == (True, (), None)


async def test_podgates_accounts_are_checked_when_they_do_anything_else() -> None:
    gate = gate_of()
    old, new = (
        gate.build_owned_pod("u", schedulingGates=[OURS]),
        gate.build_owned_pod("u", service="other", schedulingGates=[OURS]),
    )
    assert not (
        await gate.validate(operation="UPDATE", object=new, oldObject=old, userInfo={"username": CONTROLLER})
    ).allowed


async def test_user_of_a_controller_outside_the_cluster_is_a_setting_of_the_server() -> None:
    gate = gate_of()
    clock = VirtualClock(gate.clock.now_us())
    gate.interceptor = Interceptor(
        FixedPolicy(gate.loaded, clock),
        MemoryStore(clock),
        FixedNamespaces({"shop": {}}),
        Observers(),
        is_releaser=lambda user: user == "kubernetes-admin",
    )
    assert (await update(gate, [OURS], [], "kubernetes-admin")).allowed
    assert not (await update(gate, [OURS], [], CONTROLLER)).allowed


@pytest.mark.parametrize(
    ("stanzas", "modes", "mode"),
    [
        (QUEUES, "{quota: Enforce}", Mode.ENFORCE),
        (QUEUES, "{quota: Warn}", Mode.WARN),
        (QUEUES, "{quota: Audit}", Mode.AUDIT),
        (QUEUES, "{quota: Disabled}", None),
        # Pods that wait although their service's Pods no longer do
        (DENIES, "{quota: Enforce}", Mode.ENFORCE),
        (BREAKER % "Queue", "{breaker: Enforce}", Mode.ENFORCE),
        (BREAKER % "Queue", "{breaker: Warn}", Mode.WARN),
        (BREAKER % "Deny", "{breaker: Enforce}", None),
        (f"{DENIES}\n  {BREAKER % 'Queue'}", "{quota: Audit}", Mode.ENFORCE),
        ("placement: {schedulerName: s}", "{}", None),
    ],
)
async def test_removal_is_judged_under_the_mode_of_what_pods_wait_for(
    stanzas: str, modes: str, mode: Mode | None
) -> None:
    decision = await update(gate_of(stanzas, modes), [OURS], [])
    assert [found.mode for found in decision.findings] == ([] if mode is None else [mode])
    assert decision.allowed is (mode is not Mode.ENFORCE)


@pytest.mark.parametrize(
    ("before", "after", "is_allowed"), [("1", "2", False), ("2", "1", True), ("1", "1", True), ("1", "1000m", True)]
)
async def test_resize_may_only_make_a_waiting_pod_smaller(before: str, after: str, *, is_allowed: bool) -> None:
    """A larger Pod would be charged too little if the charge is made meanwhile, or too much if it is made later."""
    gate = gate_of()
    old, new = (
        gate.build_owned_pod("u", schedulingGates=[OURS], containers=containers(cpu)) for cpu in (before, after)
    )
    decision = await gate.validate(operation="UPDATE", subResource="resize", object=new, oldObject=old)
    assert decision.allowed is is_allowed
    if not is_allowed:
        assert decision.status.code == 403
        assert "the Pod waits to be charged, and its requests.cpu cannot grow meanwhile" in decision.status.message
    assert await gate.read_usage() == {"pods": 0, "cpu": 0}, "it is charged when it is released"


async def test_released_pod_may_become_larger() -> None:
    gate = gate_of()
    old, new = (gate.build_owned_pod("u", containers=containers(cpu)) for cpu in ("1", "2"))
    assert (await gate.validate(operation="UPDATE", subResource="resize", object=new, oldObject=old)).allowed


@pytest.mark.parametrize(
    ("stanzas", "modes", "gates", "verdict"),
    [
        (QUEUES, "{}", [OURS], Verdict.ADMIT),
        (QUEUES, "{}", [OTHER], Verdict.ADMIT),
        (QUEUES, "{}", [OTHER_OF_OURS], Verdict.DENY),
        (QUEUES, "{}", [OURS, OTHER_OF_OURS], Verdict.DENY),
        (DENIES, "{}", [OURS], Verdict.DENY),
        (DENIES, "{}", [OTHER, OTHER_OF_OURS], Verdict.DENY),
        (DENIES, "{quota: Audit}", [OURS], Verdict.ADMIT),
        (DENIES, ALL_DISABLED, [OTHER_OF_OURS], Verdict.ADMIT),
    ],
)
async def test_a_gate_of_podgates_that_podgate_does_not_write_is_refused(
    stanzas: str, modes: str, gates: list[Any], verdict: Verdict
) -> None:
    gate = gate_of(stanzas, modes)
    decision = await gate.validate(object=gate.build_owned_pod("u1", schedulingGates=gates))
    assert decision.verdict is verdict
    if verdict is Verdict.DENY:
        assert "leave the gate out" in decision.status.message
        assert (await gate.read_usage())["pods"] == 0


@pytest.mark.parametrize(
    ("sent", "is_allowed"),
    [
        ({"f:spec": {"f:containers": {}}}, True),
        ({"f:spec": {"f:schedulingGates": {f'k:{{"name":"{QUEUE_GATE}"}}': {".": {}, "f:name": {}}}}}, False),
        ({"f:metadata": {"f:annotations": {f"f:{QUEUE_GATE}": {}}}, "f:spec": {"f:containers": {}}}, True),
    ],
)
@pytest.mark.parametrize("labels", [{"app": "web"}, {"app": "theirs"}])
async def test_gate_that_podgate_wrote_before_the_queue_ended_is_no_fault_of_the_creator(
    labels: dict[str, str], sent: dict[str, Any], *, is_allowed: bool
) -> None:
    """An override, or another replica's policy, may end the queue between the mutating and the validating half."""
    gate = gate_of(DENIES)
    new = gate.build_owned_pod("u1", schedulingGates=[OURS]) if labels["app"] == "web" else pod(labels, uid="u1")
    new["spec"]["schedulingGates"] = [OURS]
    new["metadata"]["managedFields"] = [{"manager": "kubectl", "operation": "Update", "fieldsV1": sent}]
    decision = await gate.validate(object=new)
    assert decision.allowed is is_allowed
    assert (await gate.read_usage())["pods"] == (1 if is_allowed and labels["app"] == "web" else 0)


async def test_new_pod_of_no_service_with_a_gate_of_podgates_is_refused() -> None:
    gate = gate_of()
    decision = await gate.validate(object=pod({"app": "theirs"}, uid="u1", schedulingGates=[OURS]))
    assert decision.verdict is Verdict.DENY
    assert "has podgate.io/quota, and a Pod of no service does not wait: leave the gate out" in decision.status.message


async def test_template_with_the_gate_is_warned_about() -> None:
    gate = gate_of(DENIES)
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [OURS]},
    }
    decision = await gate.validate(
        resource={"group": "apps", "version": "v1", "resource": "deployments"},
        kind={"group": "apps", "version": "v1", "kind": "Deployment"},
        object={
            "metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": template},
        },
    )
    [warning] = decision.warnings
    assert "in Pods of deployment.apps/web: spec.schedulingGates has podgate.io/quota" in warning
