"""Members of a group at admission: they wait also while there is room, and their membership is fixed."""

from typing import Any

import msgspec
import pytest

from tests.core.reviewing import ALICE, Gate, pod, policy_of
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.findings import Code
from webhook.core.groups.membership import GROUP_ANNOTATION
from webhook.core.patch import apply
from webhook.core.quota import Acquire, CounterPlan
from webhook.interceptor import Interceptor

SERVICES = """
- name: web
  match: {namespaces: [shop]}
  quota:
    windows: [{window: 1m, hard: {pods: 9}}]
    whenExceeded: Queue
    queue: {groups: {from: [Annotations, Job, PodGroup]}}
"""
WITHOUT = SERVICES.replace("{groups: {from: [Annotations, Job, PodGroup]}}", "{}")
GROUP = {"podgate.io/group": "a", "podgate.io/group-size": "4"}
FIXED = '{"source":"Annotations","name":"a","size":4}'


class Roomy:
    """A `ports.PodQueue` for which nothing has to wait."""

    def __init__(self) -> None:
        self.enqueued: list[str] = []

    def find_overload(self, _: CounterPlan) -> str:
        return ""

    async def find_reason_to_wait(self, _: Acquire, *, is_dry_run: bool) -> str:  # noqa: ARG002  as in the port
        return ""

    async def enqueue(self, asked: Acquire) -> bool:
        self.enqueued.append(asked.uid)
        return True


class QueueingGate(Gate):
    def __init__(self, services: str = SERVICES) -> None:
        super().__init__(policy_of(services))
        self.queue, made = Roomy(), self.interceptor
        self.interceptor = Interceptor(
            made._choice._policies,
            self.store,
            made._namespaces,
            made._observer,
            queue=self.queue,
        )

    async def admit(self, created: dict[str, Any], user: str = ALICE) -> tuple[dict[str, Any], Decision]:
        """Return the Pod after both halves, and the decision of the second one."""
        info = {"username": user}
        mutated = await self.mutate(object=created, userInfo=info)
        written = msgspec.json.decode(msgspec.json.encode(created))
        apply(list(mutated.patch), written)
        again = await self.mutate(object=written, userInfo=info)
        assert list(again.patch) == []
        written["metadata"] |= {"uid": "u", "name": "web-u"}
        return written, await self.validate(object=written, userInfo=info)


async def test_a_member_waits_although_there_is_room() -> None:
    gate = QueueingGate()

    written, decision = await gate.admit(pod(annotations=dict(GROUP)))

    assert written["spec"]["schedulingGates"] == [{"name": QUEUE_GATE}]
    assert written["metadata"]["annotations"][GROUP_ANNOTATION] == FIXED
    assert decision.verdict is Verdict.QUEUE
    assert gate.queue.enqueued == ["u"]
    assert await gate.read_usage() == {"pods": 0}


@pytest.mark.parametrize(("services", "annotations"), [(SERVICES, {}), (WITHOUT, GROUP)])
async def test_other_pods_do_not_wait(services: str, annotations: dict[str, str]) -> None:
    gate = QueueingGate(services)

    written, decision = await gate.admit(pod(annotations=dict(annotations)))

    assert "schedulingGates" not in written["spec"]
    assert GROUP_ANNOTATION not in written["metadata"].get("annotations", {})
    assert decision.verdict is Verdict.ADMIT


async def test_a_pod_group_is_read_from_the_review() -> None:
    created = pod(schedulingGroup={"podGroupName": "pg"})

    written, _ = await QueueingGate().admit(created)

    assert written["metadata"]["annotations"][GROUP_ANNOTATION] == '{"source":"PodGroup","name":"pg"}'


@pytest.mark.parametrize(("annotations", "kept"), [({}, None), (GROUP, FIXED)])
async def test_a_membership_that_the_creator_wrote_is_replaced(annotations: dict[str, str], kept: str | None) -> None:
    forged = {GROUP_ANNOTATION: '{"source":"Job","name":"other","owner":"u"}', **annotations}
    created = pod(annotations=forged, schedulingGates=[{"name": QUEUE_GATE}])

    written, _ = await QueueingGate().admit(created)

    assert written["metadata"]["annotations"].get(GROUP_ANNOTATION) == kept


async def test_a_group_that_cannot_be_is_denied_with_the_field() -> None:
    _, decision = await QueueingGate().admit(pod(annotations={"podgate.io/group": "a"}))

    [found] = decision.findings
    assert (decision.allowed, found.code) == (False, Code.GROUP_INVALID)
    assert found.field == "metadata.annotations[podgate.io/group-size]"
    assert decision.status.code == 403
    assert "group-size] is missing: write how many Pods the group has" in decision.status.message


@pytest.mark.parametrize(("is_gated", "allowed"), [(True, False), (False, True)])
async def test_the_membership_of_a_waiting_pod_cannot_be_changed(is_gated: bool, allowed: bool) -> None:  # noqa: FBT001
    gate = QueueingGate()
    gates = {"schedulingGates": [{"name": QUEUE_GATE}]} if is_gated else {}
    old, new = gate.build_owned_pod("u", **gates), gate.build_owned_pod("u", **gates)
    old["metadata"]["annotations"][GROUP_ANNOTATION] = FIXED
    new["metadata"]["annotations"][GROUP_ANNOTATION] = FIXED.replace("4", "1")

    decision = await gate.validate(operation="UPDATE", object=new, oldObject=old)

    assert decision.allowed is allowed
    if not allowed:
        assert f"metadata.annotations[{GROUP_ANNOTATION}] is Podgate's" in decision.status.message


async def test_other_annotations_of_a_waiting_member_may_change() -> None:
    gate = QueueingGate()
    old, new = (gate.build_owned_pod("u", schedulingGates=[{"name": QUEUE_GATE}]) for _ in range(2))
    new["metadata"]["annotations"]["podgate.io/group-size"] = "1"
    assert (await gate.ask(Half.VALIDATE, operation="UPDATE", object=new, oldObject=old)).decision.allowed


@pytest.mark.parametrize(
    ("annotations", "user", "note"),
    [
        (GROUP, ALICE, "waits with its group a (Annotations) until 4 Pods wait and fit"),
        ({}, ALICE, None),
    ],
)
async def test_a_review_says_in_which_group_a_pod_waits(
    annotations: dict[str, str], user: str, note: str | None
) -> None:
    decision = await Gate(policy_of(SERVICES)).validate(object=pod(annotations=annotations, uid="u"), user=user)

    notes = [step.found for step in decision.steps if "its group" in step.found]
    assert notes == ([note] if note else [])


async def test_a_template_whose_pods_would_be_denied_for_their_group_is_warned_about() -> None:
    template = pod(annotations={"podgate.io/group": "../a", "podgate.io/group-size": "4"})
    found = await Gate(policy_of(SERVICES)).validate(
        kind={"group": "batch", "version": "v1", "kind": "Job"},
        resource={"group": "batch", "version": "v1", "resource": "jobs"},
        object={"metadata": {"name": "train", "namespace": "shop"}, "spec": {"template": template}},
    )
    assert found.allowed
    assert [finding.code for finding in found.findings] == [Code.GROUP_INVALID]
