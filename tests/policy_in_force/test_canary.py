"""A canary in a process: each Pod is judged by one policy, in both of its calls, and all Pods of a workload alike."""

import json
from typing import Any

import msgspec
import pytest

from tests.adapters.policy_file import FakeClock
from tests.core.reviewing import body, pod
from tests.harness.overrides import END_US, FixedClock, OverridesRecorder, entry
from tests.harness.policy_checks import ImmediateCheck
from tests.harness.policy_revisions import MemoryRevisions, hash_of
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Decision, Half
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.document import Purpose
from webhook.core.document.loading import load_again
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import find_ownership
from webhook.core.policy.history import REMEMBERED_US
from webhook.core.policy_fields.rollout import CanaryBy
from webhook.core.rollout.canary import BasePolicy
from webhook.core.rollout.selection import Reach, compute_bucket
from webhook.core.rollout.state import Phase, RolloutState
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.policy_in_force.active_overrides import ActiveOverrides
from webhook.policy_in_force.active_policy import ActivePolicy, Candidate
from webhook.policy_in_force.policy_receiver import PolicyReceiver

DEPLOYMENTS = {"group": "apps", "version": "v1", "resource": "deployments"}
CONTROLLER = "system:serviceaccount:kube-system:replicaset-controller"


def policy(disk: str, hard: int, steps: str = "", by: str = "Workload", more: str = "") -> bytes:
    rollout = f"rollout: {{canary: {{by: {by}, steps: [{steps}]}}}}\n" if steps else ""
    return (
        f"apiVersion: podgate.io/v1alpha1\nkind: Policy\n{rollout}services:\n{more}"
        "- name: web\n  match: {anyNamespace: true}\n"
        f"  placement: {{nodeSelector: {{disk: {disk}}}}}\n"
        f"  quota: {{windows: [{{window: 1m, hard: {{pods: {hard}}}}}]}}\n"
    ).encode()


STEPS = '{namespaces: ["staging-*"]}, {percent: 50}, {percent: 100}'
OLD, NEW = policy("hdd", 3, STEPS), policy("ssd", 30, STEPS)
ADDED = "- {name: db, match: {namespaces: [db]}, quota: {windows: [{window: 1m, hard: {pods: 9}}]}}\n"


class Process:
    """A server in one process, with counters in memory."""

    def __init__(self, *documents: bytes) -> None:
        self.revisions, self.clock = MemoryRevisions(), FakeClock()
        self.documents = documents
        self.policies = PolicyReceiver(
            Observers(), self.clock, ImmediateCheck(), Purpose.SERVE, revisions=self.revisions
        )
        store, namespaces = MemoryStore(VirtualClock()), FixedNamespaces({"live": {}, "staging-a": {}, "db": {}})
        self.interceptor = Interceptor(self.policies, store, namespaces, Observers())

    async def begin(self, phase: Phase, step: int = 0) -> None:
        stable, candidate = map(hash_of, self.documents)
        for raw in self.documents:
            await self.revisions.keep(hash_of(raw), raw)
        await self.follow(RolloutState(stable, governed=True, phase=phase, candidate=candidate, step=step))
        await self.policies.on_document(self.documents[1], "policy.yaml")

    async def follow(self, state: RolloutState) -> None:
        await self.policies.rollout.on_state(state)

    async def review(self, half: Half, made: dict[str, Any], **request: Any) -> Decision:
        namespace = made["metadata"]["namespace"]
        asked = body(namespace=namespace, object=made, **{"userInfo": {"username": CONTROLLER}, **request})
        return (await self.interceptor.review(half, asked)).decision

    async def find_disk(self, namespace: str = "live", deployment: str = "web", replica_set: str = "5d9c7b6f4") -> Any:
        decision = await self.review(Half.MUTATE, build_pod(namespace, deployment, replica_set))
        return next(operation.value["disk"] for operation in decision.patch if operation.path == "/spec/nodeSelector")


def build_pod(namespace: str = "live", deployment: str = "web", template: str = "5d9c7b6f4", uid: str = "") -> Any:
    made = pod(uid=uid)
    name = f"{deployment}-{template}"
    made["metadata"] |= {
        "namespace": namespace,
        "labels": {"pod-template-hash": template},
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": "u", "controller": True}
        ],
        "managedFields": [{"manager": "kube-controller-manager", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
    }
    return made


def rewrite(made: dict[str, Any], decision: Decision, uid: str) -> dict[str, Any]:
    """Return the Pod as the validating half sees it after the patch of the mutating half."""
    made = json.loads(json.dumps(made))
    made["metadata"] |= {"name": f"web-{uid}", "uid": uid}
    labels = made["metadata"].setdefault("labels", {})
    labels["podgate.io/service"] = "web"
    made["metadata"].setdefault("annotations", {})[HASH_ANNOTATION] = decision.policy_hash
    for operation in decision.patch:
        if operation.path == "/spec/nodeSelector":
            made["spec"]["nodeSelector"] = operation.value
    return made


def find_deployments(candidate: bytes, *, below: int) -> tuple[str, str]:
    """Return the names of two Deployments, one that a percentage reaches and one that it does not."""
    buckets = {name: compute_bucket(hash_of(candidate), f"live/Deployment/{name}") for name in map(str, range(100))}
    reached = next(name for name, bucket in buckets.items() if bucket < below * 100)
    return reached, next(name for name, bucket in buckets.items() if bucket >= below * 100)


async def test_a_canary_judges_the_namespaces_and_workloads_of_its_steps_alone() -> None:
    process, (reached, other) = Process(OLD, NEW), find_deployments(NEW, below=50)
    found = []
    for step in range(3):
        await process.begin(Phase.CANARY, step)
        found.append(
            (
                await process.find_disk("staging-a", other),
                await process.find_disk(deployment=reached),
                await process.find_disk(deployment=other),
            )
        )
    assert found == [("ssd", "hdd", "hdd"), ("ssd", "ssd", "hdd"), ("ssd", "ssd", "ssd")]


@pytest.mark.parametrize("phase", [Phase.SHADOW, Phase.STABLE])
async def test_a_candidate_judges_nothing_before_its_canary(phase: Phase) -> None:
    process = Process(OLD, NEW)
    await process.begin(phase, 2)
    assert await process.find_disk("staging-a") == "hdd"
    assert process.policies.find_by_hash(hash_of(NEW)) is None


async def test_all_pods_of_a_deployment_and_its_own_review_are_alike() -> None:
    process = Process(OLD, NEW)
    await process.begin(Phase.CANARY, 1)
    for deployment in find_deployments(NEW, below=50):
        disks = {await process.find_disk("live", deployment, template) for template in ("5d9c7b6f4", "7c5d9f8b6")}
        assert len(disks) == 1
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        made = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": deployment, "namespace": "live"},
            "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
        }
        for operation in ("CREATE", "UPDATE"):
            decision = await process.review(Half.VALIDATE, made, resource=DEPLOYMENTS, operation=operation)
            assert decision.policy_hash == hash_of(NEW if disks == {"ssd"} else OLD)


async def test_quotas_count_together_and_move_only_with_a_whole_service() -> None:
    process, deployments = Process(OLD, NEW), find_deployments(NEW, below=50)
    await process.begin(Phase.CANARY, 1)
    codes = []
    for number in range(4):
        made = build_pod(deployment=deployments[number % 2])
        mutated = await process.review(Half.MUTATE, made)
        decision = await process.review(Half.VALIDATE, rewrite(made, mutated, f"u{number}"))
        assert decision.policy_hash == mutated.policy_hash
        codes.append(decision.status.code)
    assert codes == [200, 200, 200, 429], "hard is 3 for both, as in the policy in force"


async def test_by_service_its_quota_moves_with_its_pods() -> None:
    documents = (policy("hdd", 1, "{percent: 100}", "Service"), policy("ssd", 2, "{percent: 100}", "Service"))
    process = Process(*documents)
    await process.begin(Phase.CANARY)
    codes = []
    for number in range(3):
        made = build_pod()
        mutated = await process.review(Half.MUTATE, made)
        assert mutated.policy_hash == hash_of(documents[1])
        codes.append((await process.review(Half.VALIDATE, rewrite(made, mutated, f"u{number}"))).status.code)
    assert codes == [200, 200, 429]


@pytest.mark.parametrize(("first", "then"), [(0, 2), (2, 0), (None, 2), (2, None)])
async def test_both_calls_for_one_pod_have_one_policy_although_the_step_changes_in_between(
    first: int | None, then: int | None
) -> None:
    process = Process(OLD, NEW)
    stable = RolloutState(hash_of(OLD), governed=True)

    async def enter(step: int | None) -> None:
        await (process.follow(stable) if step is None else process.begin(Phase.CANARY, step))

    await process.begin(Phase.CANARY)
    await enter(first)
    made = build_pod()
    mutated = await process.review(Half.MUTATE, made)
    assert mutated.policy_hash == hash_of(NEW if first == 2 else OLD)
    await enter(then)
    decision = await process.review(Half.VALIDATE, rewrite(made, mutated, "u1"))
    assert (decision.policy_hash, decision.status.code) == (mutated.policy_hash, 200)
    assert (await process.review(Half.MUTATE, made)).policy_hash == hash_of(NEW if then == 2 else OLD)


async def test_a_retired_candidate_is_known_for_a_minute() -> None:
    process = Process(OLD, NEW)
    await process.begin(Phase.CANARY, 1)
    await process.follow(RolloutState(hash_of(OLD), governed=True))
    assert process.policies.find_by_hash(hash_of(NEW)) is not None
    process.clock.us += REMEMBERED_US + 1
    assert process.policies.find_by_hash(hash_of(NEW)) is None
    assert process.policies.find_by_hash(hash_of(OLD)) is process.policies.get_current()


async def test_a_hash_that_a_tenant_sends_does_not_choose_the_candidate() -> None:
    process = Process(OLD, NEW)
    await process.begin(Phase.CANARY)
    made = build_pod()
    made["metadata"]["annotations"] = {HASH_ANNOTATION: hash_of(NEW)}
    made["metadata"]["managedFields"][0]["fieldsV1"] = {"f:metadata": {"f:annotations": {f"f:{HASH_ANNOTATION}": {}}}}
    assert (await process.review(Half.MUTATE, made)).policy_hash == hash_of(OLD)


async def test_an_existing_pod_is_judged_by_the_policy_that_admitted_it() -> None:
    process = Process(OLD, NEW)
    await process.begin(Phase.CANARY)
    for raw in (OLD, NEW):
        made = build_pod(uid="u1")
        made["metadata"]["annotations"] = {HASH_ANNOTATION: hash_of(raw)}
        decision = await process.review(Half.VALIDATE, made, operation="UPDATE", oldObject=made)
        assert decision.policy_hash == hash_of(raw)


async def test_variants_with_a_breaker_of_the_candidate_alone_are_named() -> None:
    listed = "{name: arm, weight: 1, nodeSelector: {kind: arm}}, {name: spot, weight: 1, nodeSelector: {kind: spot}}"
    divided = f"- {{name: db, match: {{namespaces: [db]}}, placement: {{shares: {{variants: [{listed}]}}}}}}\n"
    process = Process(OLD, policy("ssd", 30, STEPS, more=divided))
    await process.begin(Phase.CANARY, 2)
    assert process.policies.rollout.view.added_variants == {("db", "arm")}, "the last one has none"


async def test_a_service_of_the_candidate_alone_counts_for_the_tickers_and_the_controller() -> None:
    new = policy("ssd", 30, STEPS, more=ADDED)
    process = Process(OLD, new)
    await process.begin(Phase.CANARY, 2)
    current = process.policies.get_current()
    assert current is not None
    assert set(current.plans) == {"web", "db"}
    assert [service.name for service in current.policy.services] == ["web"]
    assert process.policies.rollout.view.added == {"db"}
    made = build_pod("db", uid="u1")
    made["metadata"]["labels"]["podgate.io/service"] = "db"
    for raw, owner in ((OLD, "web"), (new, "db")):
        made["metadata"]["annotations"] = {HASH_ANNOTATION: hash_of(raw)}
        owned = find_ownership(msgspec.json.decode(json.dumps(made), type=Pod), current, {})
        assert owned is not None
        assert owned.service == owner


async def test_a_server_that_starts_without_a_valid_wish_has_the_canary_as_all_others() -> None:
    """The ConfigMap was deleted, or holds what an older check has let through."""
    process = Process(OLD, NEW)
    for raw in (OLD, NEW):
        await process.revisions.keep(hash_of(raw), raw)
    await process.follow(RolloutState(hash_of(OLD), governed=True, phase=Phase.CANARY, candidate=hash_of(NEW)))
    await process.policies.on_unreadable(["there is no such ConfigMap"])
    assert [await process.find_disk(namespace) for namespace in ("staging-a", "live")] == ["ssd", "hdd"]
    assert process.policies.list_problems() == ("there is no such ConfigMap",)


async def test_without_its_document_the_candidate_judges_nothing_and_is_named() -> None:
    process = Process(OLD, NEW)
    await process.revisions.keep(hash_of(OLD), OLD)
    await process.follow(RolloutState(hash_of(OLD), governed=True, phase=Phase.CANARY, candidate=hash_of(NEW), step=2))
    await process.policies.on_document(OLD, "policy.yaml")
    assert await process.find_disk() == "hdd"
    [problem] = process.policies.list_problems()
    assert f"controllerrevision podgate-policy-{hash_of(NEW)}" in problem
    await process.policies.on_document(NEW, "policy.yaml")
    assert await process.find_disk() == "ssd"
    assert process.policies.list_problems() == ()


@pytest.mark.parametrize("is_overridden_first", [True, False])
async def test_overrides_change_both_policies_alike_and_end_with_the_canary_still_in_force(
    *, is_overridden_first: bool
) -> None:
    wall = FixedClock()
    overrides = ActiveOverrides(OverridesRecorder(), wall, "here")
    active = ActivePolicy(overrides, FakeClock())
    overrides.prepare = active.prepare
    stable, candidate = (load_again(raw) for raw in (OLD, policy("ssd", 30, STEPS, more=ADDED)))
    entries = (entry("web") + entry("db")).encode()
    if is_overridden_first:
        await overrides.on_document(entries, "overrides.yaml")
    await active.swap(stable, Candidate(candidate, Reach(CanaryBy.WORKLOAD, percent=50)))
    if not is_overridden_first:
        await overrides.on_document(entries, "overrides.yaml")
    await overrides.look_ahead()

    def find_hards() -> list[dict[str, int]]:
        base = active.get_current()
        assert isinstance(base, BasePolicy)
        assert [service.name for service in base.policy.services] == ["web"]
        assert active.find_by_hash(candidate.hash) is base.canary
        return [
            {name: plan.windows[0].limits[0].hard for name, plan in compiled.plans.items()}
            for compiled in (base, base.canary)
        ]

    assert find_hards() == [{"web": 9, "db": 27}, {"db": 27, "web": 9}]
    wall.us = END_US
    assert find_hards() == [{"web": 3, "db": 9}, {"db": 9, "web": 3}]
