"""The store is told which slots Pods hold, and which are free: in order, until it answers; nothing without shares."""

import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import SECOND_US, START_US, WITHOUT_DELAYS, compile_policy, pod
from tests.controller.shares.variant_cluster import (
    SERVICES,
    WITHOUT_SHARES,
    FakeOwners,
    FakeSlots,
    Shown,
    compile_shares,
    end,
    variant_pod,
)
from webhook.controller.shares.slot_reconciler import FORGET_AFTER_US, SlotReconciler
from webhook.controller.shares.variant_pods import VariantPods
from webhook.core.kubernetes.pod import PodStatus


class Watched(Shown):
    """The observer of a watch that tells a store."""

    def __init__(self, **replicas: int | None) -> None:
        self.store, self.owners = FakeSlots(), FakeOwners(**replicas)
        super().__init__(None, compile_shares())

        self.slots = SlotReconciler(self.store, self.owners, self.clock, lambda: self.compiled, WITHOUT_DELAYS)
        self.observer = VariantPods(self.slots, self.clock.now_us)

    async def settle(self) -> list[tuple[object, ...]]:
        """Send all that is due; return what the store was told."""
        self.store.told.clear()
        while await self.slots.send():
            pass
        return list(self.store.told)


async def test_slots_of_pods_that_exist_are_confirmed_once_and_freed_when_they_end() -> None:
    watched = Watched(rs=10)
    watched.list()
    watched.show(variant_pod("a", 1), variant_pod("b", 2), variant_pod("a", 1))
    assert await watched.settle() == [("confirm", "rs", [1, 2])]
    watched.show(variant_pod("a", 1))
    watched.show(end(variant_pod("b", 2)), end(variant_pod("b", 2)))
    watched.show(variant_pod("c", 2))
    assert await watched.settle() == [("free", "rs", [2]), ("confirm", "rs", [2])]
    watched.delete("b", "c")
    assert await watched.settle() == [("free", "rs", [2])]
    assert watched.store.held == {"rs": {"c-a": 1}}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
async def test_a_pod_that_has_ended_holds_no_slot(phase: str) -> None:
    watched = Watched(job=3)
    watched.list()
    ended = variant_pod("a", 1, owner="job", kind="Job", status=PodStatus(phase))
    watched.show(variant_pod("a", 1, owner="job", kind="Job"))
    await watched.settle()
    watched.show(ended, ended)
    assert await watched.settle() == [("free", "job", [1])]
    watched.delete("a")
    assert await watched.settle() == []


async def test_an_ended_pod_that_a_new_leader_finds_is_freed() -> None:
    watched = Watched(rs=3)
    watched.list(end(variant_pod("a", 1)))
    assert await watched.settle() == [("free", "rs", [1])]


async def test_changes_of_an_owner_are_repeated_in_order_until_the_store_answers() -> None:
    watched = Watched(rs=3)
    watched.list()
    watched.store.is_away = True
    watched.show(variant_pod("a", 1))
    await watched.slots.send()
    watched.show(end(variant_pod("a", 1)), variant_pod("b", 1))
    await watched.slots.send()
    assert watched.store.told == []
    watched.store.is_away = False
    assert await watched.settle() == [("free", "rs", [1]), ("confirm", "rs", [1])]
    assert watched.store.held == {"rs": {"c-b": 1}}


async def test_after_a_loss_the_slots_of_living_pods_are_confirmed_again() -> None:
    """The store may have lost one that it was told of, and give it to another Pod."""
    watched = Watched(rs=3)
    watched.list()
    watched.show(variant_pod("a", 1), variant_pod("b", 2))
    await watched.settle()
    watched.show(end(variant_pod("b", 2)))
    watched.slots.on_lost()
    assert await watched.settle() == [("free", "rs", [2]), ("confirm", "rs", [1])]
    assert await watched.settle() == []


async def test_a_change_during_a_call_is_sent_after_it() -> None:
    watched = Watched(rs=3)
    watched.list()
    confirm = watched.store.confirm

    async def confirm_slowly(*asked: object) -> None:
        await confirm(*asked)  # type: ignore[arg-type]
        watched.show(end(variant_pod("a", 1)))
        watched.store.confirm = confirm  # type: ignore[method-assign]

    watched.store.confirm = confirm_slowly  # type: ignore[method-assign]
    watched.show(variant_pod("a", 1))
    assert await watched.settle() == [("confirm", "rs", [1]), ("free", "rs", [1])]
    assert watched.store.held == {"rs": {}}


async def test_large_owners_are_sent_in_batches() -> None:
    watched = Watched(rs=100)
    watched.list()
    watched.show(*(variant_pod(f"p{number}", number) for number in range(1, 101)))
    assert [len(slots) for _, _, slots in await watched.settle()] == [64, 36]  # type: ignore[arg-type]


async def test_after_a_list_the_store_learns_what_the_cluster_shows() -> None:
    watched = Watched(rs=4, other=2)
    watched.list(variant_pod("a", 1), variant_pod("c", 3), variant_pod("x", 1, owner="other"))
    told = await watched.settle()
    assert ("learn", "rs", 4, [1, 3], 60) in told
    assert ("learn", "other", 2, [1], 60) in told
    assert [what for what, *_ in told] == ["confirm", "confirm", "learn", "learn"]
    watched.list(variant_pod("c", 3), variant_pod("x", 1, owner="other"))
    watched.delete("a")
    assert ("learn", "rs", 4, [3], 60) in await watched.settle()


async def test_an_owner_that_cannot_be_read_is_corrected_later() -> None:
    watched = Watched(rs=None)
    watched.list(variant_pod("a", 1))
    watched.store.told.clear()
    for _ in range(3):
        await watched.slots.send()
    assert watched.store.told == [("confirm", "rs", [1])]
    watched.owners.replicas["rs"] = 4
    assert await watched.settle() == [("learn", "rs", 4, [1], 60)]


async def test_an_owner_without_pods_is_forgotten_if_it_wants_none() -> None:
    watched = Watched(rs=2)
    watched.list()
    watched.show(variant_pod("a", 1))
    watched.delete("a")
    await watched.settle()
    watched.clock.set(START_US + FORGET_AFTER_US)
    assert (await watched.settle(), watched.owners.reads) == ([], 0), "not yet"
    watched.clock.set(START_US + FORGET_AFTER_US + SECOND_US)
    assert (await watched.settle(), watched.owners.reads) == ([], 1), "it wants two"
    watched.owners.replicas["rs"] = 0
    watched.clock.set(START_US + 2 * FORGET_AFTER_US + 2 * SECOND_US)
    assert await watched.settle() == [("forget", "rs")]
    assert len(watched.slots) == 0


async def test_pods_with_an_index_are_no_business_of_the_store() -> None:
    watched = Watched(rs=2)
    watched.list(variant_pod("a", 1, kind="StatefulSet", name="rs-0"))
    assert len(watched.observer) == 1
    watched.show(end(variant_pod("a", 1, kind="StatefulSet", name="rs-0")))
    assert await watched.settle() == []


async def test_pods_without_a_slot_or_of_other_services_are_left_out() -> None:
    watched = Watched(rs=2)
    other = variant_pod("c", 1)
    watched.list(
        pod("a"),
        pod("b", labels={"app": "other"}),
        replace(other, metadata=replace(other.metadata, owner_references=None)),
    )
    assert (await watched.settle(), len(watched.observer)) == ([], 0)


async def test_a_pod_keeps_its_slot_when_the_policy_no_longer_has_its_variant() -> None:
    watched = Watched(rs=3)
    watched.list(variant_pod("a", 1, "spot"), variant_pod("b", 3, "on-demand"))
    await watched.settle()
    watched.compiled = compile_policy(SERVICES.format(rebalance="true").replace("spot", "arm"))
    watched.list(variant_pod("a", 1, "spot"), variant_pod("b", 3, "on-demand"))
    assert ("free", "rs", [1]) not in await watched.settle()
    assert watched.store.held["rs"] == {"c-a": 1, "c-b": 3}
    assert list(watched.observer.list_fallen_back("web", "arm")) == [], "it did not fall back: nothing moves it"
    watched.delete("a")
    assert ("free", "rs", [1]) in await watched.settle()


async def test_nothing_is_kept_under_a_policy_without_shares() -> None:
    watched = Watched(rs=2)
    watched.list(variant_pod("a", 1))
    await watched.settle()
    watched.compiled = compile_policy(WITHOUT_SHARES)
    watched.list(variant_pod("a", 1))
    watched.show(variant_pod("b", 2))
    watched.delete("a")
    assert (await watched.settle(), len(watched.observer), len(watched.slots)) == ([], 0, 0)
