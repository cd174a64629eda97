"""Shares: a ReplicaSet that grows, shrinks and loses Pods, whose slots the store gives and the controller frees."""

from random import Random

from tests.chaos.history import History
from tests.chaos.virtual.written import Written
from tests.controller.controller_simulation import WITHOUT_DELAYS
from tests.controller.shares.variant_cluster import SERVICES, FakeOwners, Shown, compile_shares, end, variant_pod
from webhook.adapters.memory_slots import MemorySlots
from webhook.controller.shares.slot_reconciler import SlotReconciler
from webhook.controller.shares.variant_pods import VariantPods
from webhook.core.kubernetes.pod import Pod

OWNER = "rs"
STEPS = 80
_POLICY = SERVICES.format(rebalance="false")


class SharesStage(Shown):
    """One ReplicaSet, its controller, and the slots. `play` returns the history."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  the same history again
        self.owners = FakeOwners(rs=1)
        super().__init__(None, compile_shares())
        self.store = MemorySlots(self.clock)
        self.slots = SlotReconciler(self.store, self.owners, self.clock, lambda: self.compiled, WITHOUT_DELAYS)
        self.observer = VariantPods(self.slots, self.clock.now_us)
        self.written = Written(self.clock, seed, _POLICY)
        self.pods: dict[str, Pod] = {}
        self.replicas = 1
        self.made = 0

    async def play(self) -> History:
        plan = self.compiled.plans["web"]
        await self.store.learn(plan, OWNER, self.replicas, (), 0, is_new=True)
        self.list()
        for _ in range(STEPS):
            draw = self.random.random()
            if draw < 0.3:
                await self._scale(self.random.randint(1, 17))
            elif draw < 0.7 and self.pods:
                self._remove(self.random.choice(sorted(self.pods)))
            await self._settle()
            await self._fill()
        await self._settle()
        return self.written.finish([*self.pods.values()])

    async def _scale(self, replicas: int) -> None:
        """Change the size; of surplus Pods those in the highest slots go first, as their deletion cost says."""
        self.replicas = self.owners.replicas[OWNER] = replicas
        surplus = sorted(self.pods, key=self._slot, reverse=True)[: max(0, len(self.pods) - replicas)]
        for uid in surplus:
            self._remove(uid)

    def _slot(self, uid: str) -> int:
        return int((self.pods[uid].metadata.annotations or {})["podgate.io/slot"])

    def _remove(self, uid: str) -> None:
        gone = self.pods.pop(uid)
        self.show(end(gone))
        self.delete(uid)

    async def _settle(self) -> None:
        """Let the controller tell the store what it has seen."""
        while await self.slots.send():
            pass

    async def _fill(self) -> None:
        """Create what is missing, as both halves and the API server do."""
        shares = self.compiled.shares["web"]
        while len(self.pods) < self.replicas:
            self.made += 1
            uid = f"pod-{self.made}"
            claim = await self.store.claim(self.compiled.plans["web"], OWNER, f"c-{uid}", is_dry_run=False)
            variant = shares.split.names[shares.split.find_variant(claim.slot)]
            created = self.written.carry(variant_pod(uid, claim.slot, variant), "web")
            self.pods[uid] = created
            self.written.add_request("create", created, 201, decision="Admit")
            self.show(created)
