"""Simulated shares: Pods of services with shares in a simulation, each by its slot as one of its variant's.

The slots, the breakers of variants and the law of evictions are those of `podgate replay`.
"""

from collections import Counter
from collections.abc import Sequence
from math import inf

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from webhook.core.admission.mutation import apply_patch, place_pod
from webhook.core.breaker import BreakerOwner, State
from webhook.core.kubernetes.pod import Pod, PodSpec
from webhook.core.placement import SERVICE_LABEL, VARIANT_LABEL
from webhook.core.shares import PodSlot
from webhook.replay.environment import ReplayEnvironment
from webhook.replay.scheduling.pods import ScheduledPod
from webhook.replay.slots import ReplaySlots

_SECOND_US = 1_000_000
_TICK_SECONDS = 1.0
"""A breaker that was told of a Pod without a node opens at the end of its interval."""


class VariantOutcome(Struct, frozen=True, rename="camel"):
    """One variant of a service: the Pods that are of it in the end, and how often it opened meanwhile.

    `fell_back`: how many slots of it are with Pods of another variant.
    """

    service: str
    variant: str
    pods: int = 0
    fell_back: int = 0
    evicted: int = 0
    openings: int = 0


class _PodWithSlot(Struct):
    """A Pod with its slot; `waits_since` is when it was first tried, None unless it waits, and is to be told of."""

    service: str
    slot: PodSlot
    pod: Pod
    waits_since: float | None = None


class SimulatedShares:
    """Times are in seconds from 0. A Pod that is evicted comes back at once, as what its controller creates."""

    def __init__(self, environment: ReplayEnvironment) -> None:
        """Create it. `environment` is of no other simulation, and has the policy."""
        policy = self._policy = environment.policies.get_current()
        self._clock, self._store = environment.clock, environment.store
        self._slots = ReplaySlots(environment.slots, environment.store)
        self._counters = [
            variant.counters for shares in policy.shares.values() for variant in shares.variants if variant.counters
        ]
        self._pods: dict[str, _PodWithSlot] = {}
        self._waiting: dict[str, _PodWithSlot] = {}
        self._specs: dict[tuple[str, str, bytes], PodSpec] = {}
        """Specs as variants rewrite them: mostly all Pods of a workload have the same."""
        self._claims = 0
        self._seen: dict[str, int] = {}
        """Generations of the last opening of breakers, by their names."""
        self._next_seconds = inf
        self._openings, self._evictions = Counter[BreakerOwner](), Counter[BreakerOwner]()

    async def find_pod(self, scheduled: ScheduledPod) -> Pod:
        """Return a Pod as it is created: one without a slot takes one, if its workload divides its Pods."""
        pod, owner = scheduled.pod, scheduled.owner
        known = self._pods.get(pod.metadata.uid)
        if known is not None:
            return known.pod
        service = pod.labels.get(SERVICE_LABEL, "")
        shares = self._policy.shares.get(service)
        if shares is None or owner is None:
            return pod
        self._claims += 1
        plan, uid = self._policy.plans[service], pod.metadata.uid
        taken = await self._slots.take(shares, plan, owner, str(self._claims), is_dry_run=False)
        await self._slots.settle(uid, is_admitted=True)
        made = self._rewrite(pod, service, taken.slot.variant)
        self._pods[uid] = _PodWithSlot(service, taken.slot, made)
        return made

    def _rewrite(self, pod: Pod, service: str, variant: str) -> Pod:
        key = service, variant, msgspec.json.encode(pod.spec)
        spec = self._specs.get(key)
        if spec is None:
            of_variant = self._policy.services[service].variants[variant]
            spec = self._specs[key] = apply_patch(pod, place_pod(pod, of_variant)).spec
        labels = {**pod.labels, VARIANT_LABEL: variant}
        return Pod(replace(pod.metadata, labels=labels), spec)

    def wait(self, uid: str, now_seconds: float) -> None:
        """Note that no node has room for a Pod."""
        found = self._pods.get(uid)
        if found is not None and uid not in self._waiting:
            found.waits_since = now_seconds
            self._waiting[uid] = found
            self._next_seconds = min(self._next_seconds, self._compute_due_seconds(found))

    async def bind(self, uid: str) -> None:
        """Note that a Pod has found a node."""
        if uid in self._pods:
            self._waiting.pop(uid, None)
            await self._slots.report(uid, self._policy, is_bound=True)

    async def end(self, uid: str) -> None:
        """Free the slot of a Pod that has ended."""
        self._waiting.pop(uid, None)
        if self._pods.pop(uid, None) is not None:
            await self._slots.free(uid)

    async def advance(self, now_seconds: float) -> Sequence[str]:
        """Let breakers see what has happened until now; return the Pods that are evicted, which are created anew."""
        self._clock.set(round(now_seconds * _SECOND_US))
        if now_seconds < self._next_seconds:
            return ()
        due = [uid for uid, found in self._waiting.items() if self._compute_due_seconds(found) <= now_seconds]
        for uid in due:
            await self._report(uid)
        opened = await self._find_opened()
        self._openings.update(opened)
        for uid, found in self._waiting.items():
            if BreakerOwner(found.service, found.slot.variant) in opened and found.waits_since is not None:
                await self._report(uid)  # it finds no node either, although not for long
        evicted = await self._slots.list_evicted(self._policy)
        for uid in evicted:
            gone = self._pods.pop(uid)
            del self._waiting[uid]
            self._evictions[BreakerOwner(gone.service, gone.slot.variant)] += 1
        ticks = [now_seconds + _TICK_SECONDS] if due else []
        self._next_seconds = min([*ticks, *map(self._compute_due_seconds, self._waiting.values())], default=inf)
        return evicted

    async def _find_opened(self) -> set[BreakerOwner]:
        """Return the variants that have opened since they were last looked at."""
        await self._store.tick(self._counters)
        opened = set()
        for counters in self._counters:
            view = (await self._store.snapshot(counters)).breaker
            if view is None or view.state is not State.OPEN or self._seen.get(counters.service) == view.generation:
                continue
            self._seen[counters.service] = view.generation
            opened.add(BreakerOwner.parse(counters.service))
        return opened

    @property
    def next_seconds(self) -> float:
        """When a breaker may change because of a Pod that waits."""
        return self._next_seconds

    async def _report(self, uid: str) -> None:
        await self._slots.report(uid, self._policy, is_bound=False)
        self._waiting[uid].waits_since = None

    def _compute_due_seconds(self, found: _PodWithSlot) -> float:
        """Return when a Pod counts against its variant."""
        if found.waits_since is None:
            return inf
        return found.waits_since + self._policy.shares[found.service].unschedulable_for_us / _SECOND_US

    def list_outcomes(self) -> tuple[VariantOutcome, ...]:
        """Return what has become of each variant."""
        pods = Counter(BreakerOwner(found.service, found.slot.variant) for found in self._pods.values())
        fell_back = Counter(
            BreakerOwner(found.service, found.slot.intended) for found in self._pods.values() if found.slot.fell_back
        )
        owners = [
            BreakerOwner(service, variant.name)
            for service, shares in self._policy.shares.items()
            for variant in shares.variants
        ]
        return tuple(
            VariantOutcome(
                *owner,
                pods=pods[owner],
                fell_back=fell_back[owner],
                evicted=self._evictions[owner],
                openings=self._openings[owner],
            )
            for owner in owners
        )
