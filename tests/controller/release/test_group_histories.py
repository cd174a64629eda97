"""Random histories of groups on a simulated cluster: members that come and go, refusals, outages and new leaders.

What holds in each round: usage is never above a limit, and no Pod is released uncharged. In the end, when all troubles
are over, no gate of a complete group is left, and nothing more is charged than what was released or waits for its
replacement.
"""

from random import Random

import pytest

from tests.controller.release.group_simulation import GroupSimulation, member_of
from tests.controller.release.queue_simulation import ForgetfulStore
from tests.controller.release.release_loop import read_usage
from webhook.adapters.clocks import VirtualClock
from webhook.core.quota import Acquire, AcquireGroup, CounterPlan, Receipt
from webhook.errors import StoreUnavailableError

HARD = 7
SERVICES = """
- name: web
  match: {namespaces: [shop]}
  quota:
    windows: [{window: 64s, hard: {pods: 7}}]
    whenExceeded: Queue
    queue: {maxPods: 999, maxWait: 100h, whenExpired: Keep, groups: {from: [Annotations], waitFor: 2m}}
"""


class FlakyStore(ForgetfulStore):
    """A store that gives no answer to the next `unavailable` calls; of every second one it does what was asked."""

    unavailable = 0

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.charged: set[str] = set()
        """Pods that were charged, and not refunded."""
        self.together: dict[str, set[str]] = {}
        """Members that this leader charged with others in one step, by uid."""

    async def acquire(self, request: Acquire) -> Receipt:
        self._fail(2)
        receipt = await super().acquire(request)
        if receipt.charged:
            self.charged.add(request.uid)
        self._fail(1)
        return receipt

    async def acquire_group(self, request: AcquireGroup) -> Receipt:
        self._fail(2)
        receipt = await super().acquire_group(request)
        if receipt.charged:
            members = {member.uid for member in request.members}
            self.charged |= members
            self.together.update(dict.fromkeys(members, members))
        self._fail(1)
        return receipt

    async def refund(self, plan: CounterPlan, uid: str) -> bool:
        self._fail(2)
        is_refunded = await super().refund(plan, uid)
        self.charged.discard(uid)
        self._fail(1)
        return is_refunded

    def _fail(self, of: int) -> None:
        if self.unavailable and self.unavailable % 2 == of % 2:
            self.unavailable -= 1
            raise StoreUnavailableError("the store is away")


class History(GroupSimulation):
    """A cluster in which groups are created, and what their owner does replaces each member that is deleted."""

    store: FlakyStore

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311  the same history again
        super().__init__(SERVICES)
        self.alive: dict[tuple[str, int], str] = {}
        """Uid of the Pod that is a member now, by group and index."""
        self.sizes_of: dict[str, int] = {}
        self.made = 0
        self.ended: set[str] = set()
        self.over: set[str] = set()
        """Groups of which Pods have run and ended: nobody replaces their other members."""

    def begin_term(self) -> None:
        if not isinstance(self.store, FlakyStore):
            self.store = FlakyStore(self.clock)
        super().begin_term()

    async def add_group(self) -> None:
        name, size = f"g{len(self.sizes_of)}", self.random.randint(2, 5)
        self.sizes_of[name] = size
        for index in range(size):
            if self.random.random() < 0.8:
                await self.make(name, index)

    async def make(self, name: str, index: int) -> None:
        self.made += 1
        uid = self.alive[name, index] = f"{name}-{index}-{self.made}"
        await self.join(member_of(name, self.sizes_of[name], str(index)), uid)

    async def complete(self) -> None:
        """Make the members that are missing, of groups that have not ended."""
        for name, size in self.sizes_of.items():
            for index in range(size):
                if (name, index) not in self.alive and name not in self.over:
                    await self.make(name, index)

    def is_gated(self, uid: str) -> bool:
        return bool(self.gates.pods[uid].spec.scheduling_gates)

    def lose(self, *, watched: bool) -> None:
        """Delete a waiting member; unless it is `watched`, the watch shows it later."""
        waiting = [key for key, uid in self.alive.items() if uid in self.gates.pods and self.is_gated(uid)]
        if not waiting:
            return
        uid = self.alive.pop(self.random.choice(waiting))
        if watched:
            self.delete(uid)
        else:
            del self.gates.pods[uid]
            self.ended.add(uid)

    def finish(self) -> None:
        """Let the released members of a group end while gates of others that were charged with them are there."""
        members: dict[str, set[str]] = {}
        for (name, _), uid in self.alive.items():
            if uid in self.gates.pods:
                members.setdefault(name, set()).add(uid)
        for name, uids in members.items():
            gated = {uid for uid in uids if self.is_gated(uid)}
            ended = uids - gated
            if ended and all(ended & self.store.together.get(uid, set()) for uid in gated):
                self.end(*ended)
                self.over.add(name)
                return

    def change_leader(self) -> None:
        self.loop._removal.attempts.cancel()
        self.store.together.clear()
        self.lead()
        self.show(*self.gates.pods)

    async def trouble(self) -> None:
        """Do one of the things that happen."""
        match self.random.randrange(11):
            case 0 | 1:
                await self.add_group()
            case 2:
                await self.complete()
            case 3 | 4 as kind:
                self.lose(watched=kind == 3)
            case 5:
                waiting = [uid for uid in self.gates.pods if self.is_gated(uid)]
                self.gates.refused = set(self.random.sample(waiting, min(2, len(waiting))))
            case 6:
                self.gates.trouble, self.gates.loses_answers = self.random.randint(1, 6), self.random.random() < 0.5
            case 7:
                self.change_leader()
            case 8:
                self.store.unavailable = self.random.randint(1, 12)
            case 9:
                self.finish()
            case _:
                for uid in sorted(self.ended):
                    self.delete(uid)
                self.ended.clear()
                self.gates.refused.clear()

    async def check(self) -> None:
        used = await read_usage(self)
        assert used <= HARD, "above the limit"
        assert set(self.gates.ungated) <= self.store.charged, "released, and not charged"
        released = set(self.gates.ungated)
        for uid, members in self.store.together.items():
            if uid in self.gates.pods and released & members:
                assert uid in self.store.charged, f"{uid} lost its charge, and others of its group run"

    async def settle(self) -> None:
        """End all troubles, complete all groups, and let time pass."""
        for uid in self.ended:
            self.delete(uid)
        self.gates.refused.clear()
        self.gates.trouble = self.store.unavailable = 0
        for _ in range(40):
            await self.complete()
            await self.run_and_show(20)
            await self.check()
            if not any(map(self.is_gated, self.gates.pods)):
                return


@pytest.mark.parametrize("seed", range(25))
async def test_groups_are_released_whole_within_the_limit_whatever_happens(seed: int) -> None:
    shop = History(seed)
    for _ in range(60):
        await shop.trouble()
        await shop.run_and_show(shop.random.choice((1, 1, 2, 5)))
        await shop.check()
    await shop.settle()
    left = [uid for uid in shop.gates.pods if shop.is_gated(uid)]
    rows = await shop.read_rows()
    assert left == [], [rows[uid].why for uid in left if uid in rows]
    assert len(shop.gates.ungated) == len(set(shop.gates.ungated))
