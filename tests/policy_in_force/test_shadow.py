"""A shadow counts how a candidate would decide, and changes nothing."""

import asyncio
from typing import Any

import pytest

from tests.adapters.policy_file import FakeClock
from tests.core.reviewing import body, pod
from tests.core.strategies import Json
from tests.harness.policy_checks import ImmediateCheck
from tests.harness.policy_revisions import MemoryRevisions, hash_of
from tests.harness.unread_values import UNREAD
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.memory_rollout_counts import MemoryRolloutCounts
from webhook.adapters.memory_slots import MemorySlots
from webhook.adapters.memory_store import MemoryStore
from webhook.core.admission.decision import Half
from webhook.core.document import Purpose
from webhook.core.quota import Acquire, Receipt
from webhook.core.rollout.state import Phase, RolloutState
from webhook.interceptor import Interceptor
from webhook.observers import Observers
from webhook.policy_in_force.active_overrides import NoOverrides
from webhook.policy_in_force.active_policy import ActivePolicy
from webhook.policy_in_force.candidate_watch import CandidateWatch
from webhook.policy_in_force.decision_counts import DecisionCounts
from webhook.policy_in_force.policy_receiver import PolicyReceiver
from webhook.policy_in_force.shadow import WAITING_MAX, Shadow
from webhook.slots import SlotChooser


def policy(hard: int, more: str = "", sample: str = "100%", name: str = "web") -> bytes:
    return (
        f"apiVersion: podgate.io/v1alpha1\nkind: Policy\nrollout: {{shadow: {{sample: {sample}}}}}\nservices:\n"
        f"- name: {name}\n  match: {{namespaces: [shop]}}\n{more}"
        f"  quota: {{windows: [{{window: 1m, hard: {{pods: {hard}}}}}]}}\n"
    ).encode()


PLACED = "  placement: {nodeSelector: {disk: ssd}}\n"
SIZED = "  resources: {container: {default: {cpu: 1}}}\n"
STRICT = "  resources: {container: {maxLimitRequestRatio: {cpu: 2}}}\n"


class PeekingStore(MemoryStore):
    """Records what the store was asked."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.asked: list[Acquire] = []

    async def acquire(self, request: Acquire) -> Receipt:
        self.asked.append(request)
        return await super().acquire(request)


class Process:
    """A server in its shadow phase."""

    def __init__(self) -> None:
        clock = VirtualClock()
        self.store, self.shared = PeekingStore(clock), MemoryRolloutCounts(clock)
        self.observers = Observers()
        namespaces = FixedNamespaces({"shop": {}})
        active = ActivePolicy(NoOverrides(), FakeClock())
        self.counts = DecisionCounts(self.shared)
        self.shadow = Shadow(active, self.store, namespaces, self.counts.add)
        self.observers.join(CandidateWatch((self.observers.join, self.observers.leave), self.counts, self.shadow))
        self.revisions = MemoryRevisions()
        self.policies = PolicyReceiver(
            self.observers, FakeClock(), ImmediateCheck(), Purpose.SERVE, active, self.revisions
        )
        slots = SlotChooser(MemorySlots(clock), self.store)
        self.interceptor = Interceptor(self.policies, self.store, namespaces, self.observers, pod_slots=slots)

    async def begin(self, stable: bytes, candidate: bytes, phase: Phase = Phase.SHADOW) -> None:
        for raw in (stable, candidate):
            await self.revisions.keep(hash_of(raw), raw)
        self.candidate = hash_of(candidate)
        is_stable = phase is Phase.STABLE
        state = RolloutState(hash_of(stable), governed=True, phase=phase, candidate="" if is_stable else self.candidate)
        await self.policies.rollout.on_state(state)
        await self.policies.on_document(candidate, "policy.yaml")

    async def create(self, number: int = 0, **spec: Any) -> str:
        review = body(uid=f"review-{number}", object=pod(**spec))
        return (await self.interceptor.review(Half.MUTATE, review)).decision.policy_hash

    async def work(self) -> None:
        running = asyncio.create_task(self.shadow.run())
        for _ in range(1000):
            await asyncio.sleep(0)
        running.cancel()

    @property
    def differences(self) -> dict[tuple[str, str], int]:
        return dict(self.shadow.totals.differences)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", {}),
        (PLACED, {("web", "placement"): 3}),
        (SIZED, {("web", "resources"): 3}),
        (PLACED + SIZED, {("web", "placement"): 3, ("web", "resources"): 3}),
        (STRICT, {("web", "denied"): 3, ("web", "charge"): 3, ("web", "findings"): 3}),
    ],
)
async def test_differences_are_counted_by_service_and_kind(more: str, expected: dict[tuple[str, str], int]) -> None:
    process = Process()
    stable, candidate = policy(5), policy(5, more + "  # a candidate\n")
    await process.begin(stable, candidate)
    for number in range(3):
        assert await process.create(number) == hash_of(stable)
    await process.work()
    assert process.differences == expected
    assert process.shadow.totals.judged == 3
    await process.counts.send()
    shared = {f"shadow/{service}/{difference}": count for (service, difference), count in expected.items()}
    assert await process.shared.read(hash_of(candidate), 0) == {"shadow": 3, **shared}
    assert process.store.asked == [], "both have the same limits"


@pytest.mark.parametrize("unread", UNREAD.values(), ids=UNREAD)
async def test_a_pod_is_judged_whatever_its_managed_fields_are(unread: bytes) -> None:
    process = Process()
    await process.begin(policy(100), policy(100, PLACED))
    made = pod()
    made["metadata"]["managedFields"] = [{"manager": "anybody", "fieldsV1": "<fields>"}]
    review = body(uid="review-1", object=made).replace(b'"<fields>"', unread)
    await process.interceptor.review(Half.MUTATE, review)
    await process.work()
    assert process.differences == {("web", "placement"): 1}


async def test_a_new_hard_is_judged_on_the_live_counts_and_charges_nothing() -> None:
    process = Process()
    await process.begin(policy(5), policy(1))
    for number in range(3):
        await process.create(number)
        await process.work()
        made = pod(uid=f"u{number}", labels={"podgate.io/service": "web"})
        made["metadata"]["annotations"] = {"podgate.io/policy-hash": hash_of(policy(5))}
        decision = (await process.interceptor.review(Half.VALIDATE, body(object=made))).decision
        assert decision.status.code == 200
    assert process.differences == {("web", "denied"): 2, ("web", "findings"): 2}
    assert [asked.peek for asked in process.store.asked].count(False) == 3
    assert [asked.peek for asked in process.store.asked].count(True) == 6


async def test_another_owner_is_a_difference() -> None:
    process = Process()
    await process.begin(policy(5), policy(5, name="shop"))
    await process.create()
    await process.work()
    assert ("web", "owner") in process.differences


async def test_only_the_sample_is_judged() -> None:
    process = Process()
    await process.begin(policy(5, sample="20%"), policy(5, PLACED))
    for number in range(1000):
        await process.create(number)
        if number % 50 == 0:
            await process.work()
    await process.work()
    assert 150 <= process.shadow.totals.judged <= 250


async def test_what_comes_while_too_many_wait_is_left_out_and_counted() -> None:
    process = Process()
    await process.begin(policy(5), policy(5, PLACED))
    for number in range(WAITING_MAX + 7):
        await process.create(number)
    await process.work()
    assert (process.shadow.totals.judged, process.shadow.totals.left_out) == (WAITING_MAX, 7)


@pytest.mark.parametrize("metadata", [{"annotations": {"a": "n" * 70_000}}, {"name": "web-1"}], ids=["long", "short"])
async def test_a_large_pod_does_not_wait(metadata: Json) -> None:
    process, document = Process(), pod()
    await process.begin(policy(5), policy(5, PLACED))
    document["metadata"] |= metadata
    await process.interceptor.review(Half.MUTATE, body(object=document))
    await process.work()
    is_large = "annotations" in metadata
    assert (process.shadow.totals.judged, process.shadow.totals.left_out) == (not is_large, is_large)


async def test_updates_dry_runs_and_other_phases_are_not_judged() -> None:
    process = Process()
    for phase in (Phase.STABLE, Phase.CANARY):
        await process.begin(policy(5), policy(5, PLACED), phase)
        await process.create()
        await process.work()
        assert process.shadow.totals.judged == 0
    await process.begin(policy(5), policy(5, PLACED))
    await process.interceptor.review(Half.MUTATE, body(object=pod(), dryRun=True))
    await process.interceptor.review(Half.MUTATE, body(object=pod(), oldObject=pod(), operation="UPDATE"))
    await process.work()
    assert process.shadow.totals.judged == 0
    await process.create()
    await process.work()
    assert process.shadow.totals.judged == 1
    await process.begin(policy(5), policy(6, PLACED))
    assert process.shadow.totals.judged == 0
    await process.create()
    await process.work()
    assert process.shadow.totals.judged == 1, "another candidate begins anew"


DIVIDED = (
    "  placement: {shares: {variants: [{name: spot, weight: 1, nodeSelector: {capacity: spot}},"
    " {name: on-demand, weight: 1, nodeSelector: {capacity: on-demand}}]}}\n"
)
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c", "uid": "r1", "controller": True}


@pytest.mark.parametrize(
    ("stable", "candidate", "expected"),
    [
        (DIVIDED, DIVIDED + "  # the same\n", {}),
        ("", DIVIDED, {("web", "placement"): 4}),
        (DIVIDED, DIVIDED.replace("{name: spot, weight: 1", "{name: spot, weight: 3"), {("web", "placement"): 3}),
    ],
)
async def test_pods_of_a_workload_are_judged_by_the_variants_of_their_slots(
    stable: str, candidate: str, expected: dict[tuple[str, str], int]
) -> None:
    process = Process()
    await process.begin(policy(9, stable), policy(9, candidate))
    user = {"username": "system:serviceaccount:kube-system:replicaset-controller"}
    for number in range(4):
        made = pod()
        made["metadata"]["ownerReferences"] = [OWNER]
        review = body(uid=f"review-{number}", object=made, userInfo=user)
        await process.interceptor.review(Half.MUTATE, review)
    await process.work()
    assert process.differences == expected
