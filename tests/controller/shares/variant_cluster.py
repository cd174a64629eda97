"""Pods of a service with shares as the watch shows them, on a virtual clock, and fakes of the ports beside them."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from tests.controller.controller_simulation import SECOND_US, START_US, compile_policy, format_moment, pod
from webhook.adapters.clocks import VirtualClock
from webhook.core.kubernetes.pod import OwnerReference, Pod, PodCondition, PodStatus
from webhook.core.pods import ownership
from webhook.core.quota import CounterPlan
from webhook.core.shares import SlotOwner
from webhook.errors import EvictionError, StoreUnavailableError
from webhook.ports import EvictionResult, HeldSlot, OwnedPods, SlotClaim

SERVICES = """
- name: web
  match: {{namespaces: [shop], podSelector: {{matchLabels: {{app: web}}}}}}
  placement:
    shares:
      variants:
      - {{name: spot, weight: 80, nodeSelector: {{kind: spot}}}}
      - {{name: on-demand, weight: 20, nodeSelector: {{kind: on-demand}}}}
      unschedulableFor: 60s
      openFor: 10m
      rebalance: {rebalance}
"""
WITHOUT_SHARES = "- name: web\n  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}\n"


def compile_shares(*, rebalance: bool = False, namespace: str = "shop", spot: int = 80) -> Any:
    """Return the policy. `spot`: the weight of spot; on-demand has the rest of 100."""
    services = SERVICES.format(rebalance=str(rebalance).lower())
    services = services.replace("spot, weight: 80", f"spot, weight: {spot}")
    services = services.replace("on-demand, weight: 20", f"on-demand, weight: {100 - spot}")
    return compile_policy(services.replace("[shop]", f"[{namespace}]"))


def scheduled(reason: str = "Unschedulable", message: str = "", since_us: int = START_US, **status: Any) -> PodStatus:
    """Return the status of a waiting Pod."""
    at = format_moment(since_us)
    condition = PodCondition("PodScheduled", "False", reason, at, message or "0/3 nodes are available")
    return PodStatus("Pending", conditions=(condition,), **status)


def manage(*fields: str, at_us: int = START_US, subresource: str = "status") -> Raw:
    """Return managedFields in which the scheduler has written these fields of the condition PodScheduled."""
    written = {"f:conditions": {'k:{"type":"PodScheduled"}': {f"f:{name}": {} for name in fields}}}
    entry = {"manager": "kube-scheduler", "time": format_moment(at_us), "subresource": subresource}
    created = {"manager": "kube-controller-manager", "time": format_moment(START_US - SECOND_US)}
    return Raw(msgspec.json.encode([created, {**entry, "fieldsV1": {"f:status": written}}]))


SCHEDULED = manage("lastTransitionTime", "status", "type")


READY = PodStatus("Running", conditions=(PodCondition("Ready", "True"),))


def variant_pod(  # noqa: PLR0913  the fields of a Pod that matter here
    uid: str,
    slot: int = 1,
    variant: str = "spot",
    *,
    owner: str = "rs",
    kind: str = "ReplicaSet",
    claim: str | None = None,
    intended: str = "",
    status: PodStatus = PodStatus(),  # noqa: B008  frozen
    created_us: int = START_US,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> Pod:
    """Return a Pod with a slot; its claim is `c-UID` unless given. `intended`: from which variant it fell back."""
    claimed = f"c-{uid}" if claim is None else claim
    carried = {"slot": str(slot), "slot-claim": claimed, "intended-variant": intended}
    group = "batch/v1" if kind == "Job" else "apps/v1"
    made = pod(
        uid,
        labels={"app": "web", "podgate.io/service": "web", "podgate.io/variant": variant, **(labels or {})},
        owners=(OwnerReference(group, kind, owner, owner, controller=True),),
        annotations={f"podgate.io/{name}": value for name, value in carried.items() if value},
        **spec,
    )
    metadata = replace(
        made.metadata, creation_timestamp=format_moment(created_us), resource_version="7", managed_fields=SCHEDULED
    )
    return replace(made, metadata=metadata, status=status)


def end(shown: Pod) -> Pod:
    """Return a Pod that has begun to end."""
    return replace(shown, metadata=replace(shown.metadata, deletion_timestamp=format_moment(START_US)))


class FakeSlots:
    """A `ports.SlotStore` that keeps what it was told, and gives no answer while `is_away`."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.held: dict[str, dict[str, int]] = {}
        self.is_away = False

    def _answer(self, plan: CounterPlan, *told: Any) -> None:
        assert plan.service == "web"
        if self.is_away:
            raise StoreUnavailableError("away")
        self.told.append(told)

    async def claim(self, plan: CounterPlan, owner: str, claim: str, *, is_dry_run: bool) -> SlotClaim:
        raise NotImplementedError

    async def learn(
        self,
        plan: CounterPlan,
        owner: str,
        replicas: int,
        held: Sequence[HeldSlot] | None,
        age_us: int,
        *,
        is_new: bool = False,
    ) -> None:
        assert not is_new, "only who asks for a slot makes an owner known"
        self._answer(plan, "learn", owner, replicas, [slot.slot for slot in held or ()], age_us // SECOND_US)
        self.held[owner] = {slot.claim: slot.slot for slot in held or ()}

    async def free(self, plan: CounterPlan, owner: str, held: Sequence[HeldSlot]) -> None:
        self._answer(plan, "free", owner, [slot.slot for slot in held])
        for slot in held:
            self.held.setdefault(owner, {}).pop(slot.claim, None)

    async def confirm(self, plan: CounterPlan, owner: str, held: Sequence[HeldSlot]) -> None:
        self._answer(plan, "confirm", owner, [slot.slot for slot in held])
        self.held.setdefault(owner, {}).update({slot.claim: slot.slot for slot in held})

    async def doubt(self, plan: CounterPlan, owner: str) -> None:
        raise NotImplementedError

    async def forget(self, plan: CounterPlan, owner: str) -> None:
        self._answer(plan, "forget", owner)
        self.held.pop(owner, None)


class FakeOwners:
    """A `ports.SlotOwners`: how many Pods each owner wants, by its uid; None while the API server is away."""

    def __init__(self, **replicas: int | None) -> None:
        self.replicas = replicas
        self.reads = 0

    async def read_replicas(self, owner: SlotOwner) -> int | None:
        self.reads += 1
        return self.replicas.get(owner.uid, 0)

    async def list_held(self, owner: SlotOwner) -> OwnedPods | None:
        raise NotImplementedError


class FakeEvictions:
    """A `ports.PodEvictions` that answers as `results` say by name, and else evicts."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []
        self.results: dict[str, EvictionResult | EvictionError] = {}

    async def evict(self, namespace: str, name: str, uid: str, version: str) -> EvictionResult:
        assert namespace == "shop"
        self.asked.append((name, uid, version))
        result = self.results.get(name, EvictionResult.EVICTED)
        if isinstance(result, EvictionError):
            raise result
        return result


class Shown:
    """Shows Pods to an observer as the watch does."""

    def __init__(self, observer: Any, compiled: Any) -> None:
        self.observer = observer
        self.compiled = compiled
        self.clock = VirtualClock(START_US)

    def list(self, *pods: Pod) -> None:
        self.observer.on_list_begun(self.compiled)
        for shown in pods:
            self.observer.on_listed(shown, self._find(shown))
        self.observer.on_list_complete()

    def show(self, *pods: Pod) -> None:
        for shown in pods:
            self.observer.on_changed(shown, self._find(shown))

    def delete(self, *uids: str) -> None:
        for uid in uids:
            self.observer.on_deleted(uid)

    def _find(self, shown: Pod) -> ownership.OwnedPod | None:
        return ownership.find_ownership(shown, self.compiled, {})
