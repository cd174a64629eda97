"""The breaker of a variant opens for Pods without a node; each slot is evicted once, and probes close it again."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.controller.controller_simulation import SECOND_US, START_US, compile_policy
from tests.controller.shares.variant_cluster import (
    READY,
    WITHOUT_SHARES,
    FakeEvictions,
    FakeOwners,
    Shown,
    compile_shares,
    end,
    scheduled,
    variant_pod,
)
from webhook.adapters.memory_store import MemoryStore
from webhook.controller.shares.reports import VariantReports, VariantTiming
from webhook.controller.shares.variant_loop import VariantLoop
from webhook.controller.shares.variant_pods import VariantPods
from webhook.core.breaker import Forcing, State
from webhook.core.kubernetes.pod import Pod
from webhook.core.quota import Acquire
from webhook.errors import EvictionError, StoreUnavailableError
from webhook.ports import EvictionResult


class Led(Shown):
    """A leader with the breaker of variant spot, in which all Pods are seen by the watch."""

    def __init__(self, *, rebalance: bool = False, evictions_per_round_max: int = 50) -> None:
        super().__init__(None, compile_shares(rebalance=rebalance))
        self.evictions = FakeEvictions()
        self.owners = FakeOwners()
        self.store = MemoryStore(self.clock)
        self.evicted: list[tuple[str, str]] = []
        self.transitions: list[State] = []
        self.troubles: list[str] = []
        self.counts: tuple[Any, Any] = ({}, {})
        self.timing = VariantTiming(evictions_per_round_max=evictions_per_round_max)
        self.lead()

    def lead(self) -> None:
        """Begin a term of leadership, which knows nothing of the last one."""
        self.observer = VariantPods(None, self.clock.now_us)
        reports = VariantReports(
            on_evicted=lambda pod, cause, _: self.evicted.append((pod.name, cause)),
            on_counted=lambda *counts: setattr(self, "counts", counts),
            on_transition=lambda transition: self.transitions.append(transition.new),
            on_trouble=self.troubles.append,
            on_over=lambda _: self.troubles.append("over"),
        )
        self.loop = VariantLoop(
            *(self.observer, self.store, self.evictions, self.clock, lambda: self.compiled, reports),
            self.timing,
            owners=self.owners,
        )
        self.list()

    @property
    def plan(self) -> Any:
        return self.compiled.shares["web"].variants[0].counters

    @property
    def state(self) -> State:
        return self.store.find_last_breaker(self.plan).state

    async def after(self, seconds: float) -> list[str]:
        """Let time pass, and act; return the Pods that were evicted."""
        self.clock.set(self.clock.now_us() + round(seconds * SECOND_US))
        self.evicted.clear()
        await self.loop.round()
        self.transitions += [transition.new for transition in await self.store.tick((self.plan,))]
        return [name for name, _ in self.evicted]

    async def open(self, *pods: Pod) -> None:
        """Open the breaker for the first of these Pods."""
        self.show(*(pods or (variant_pod("first", 99, status=scheduled(since_us=self.clock.now_us())),)))
        await self.after(60)
        self.clock.set(self.clock.now_us() + 2 * SECOND_US)
        await self.store.tick((self.plan,))
        assert self.state is State.OPEN

    async def probe(self, uid: str, slot: int = 1, **fields: Any) -> Pod:
        """Take a probe for a new Pod."""
        await self.store.acquire(Acquire(self.plan, "shop", f"c-{uid}", {}, ""))
        made = variant_pod(uid, slot, created_us=self.clock.now_us(), **fields)
        self.show(made)
        return made


async def test_the_breaker_opens_when_a_pod_has_found_no_node_for_the_time() -> None:
    led = Led()
    led.show(variant_pod("a", 1, status=scheduled()))
    await led.after(59)
    await led.after(0.9)
    assert led.state is State.CLOSED
    await led.after(0.1)
    await led.after(2)
    assert led.state is State.OPEN


async def test_a_restart_of_the_leader_does_not_begin_the_time_again() -> None:
    led = Led()
    led.show(variant_pod("a", 1, status=scheduled()))
    await led.after(59)
    led.lead()
    led.list(variant_pod("a", 1, status=scheduled(message="another text")))
    await led.after(1)
    await led.after(2)
    assert led.state is State.OPEN


@pytest.mark.parametrize(
    "held",
    [
        variant_pod("a", status=scheduled(nominated_node_name="node-1")),
        variant_pod("a", status=scheduled(message="pod has unbound immediate PersistentVolumeClaims")),
        variant_pod("a", status=scheduled("SchedulingGated")),
        variant_pod("a", status=READY, node_name="node-1"),
        variant_pod("a", variant="on-demand", status=scheduled()),
        end(variant_pod("a", status=scheduled())),
    ],
)
async def test_pods_that_say_nothing_about_the_variant_do_not_open_it(held: Pod) -> None:
    led = Led()
    led.show(held)
    await led.after(3600)
    await led.after(2)
    assert (led.state, led.evictions.asked) == (State.CLOSED, [])


async def test_each_waiting_pod_of_an_open_variant_is_evicted_as_it_is_known() -> None:
    led = Led()
    fresh = [variant_pod(f"p{slot}", slot, status=scheduled()) for slot in (1, 2)]
    kept = [
        variant_pod("bound", 3, status=READY, node_name="node-1"),
        variant_pod("nominated", 4, status=scheduled(nominated_node_name="node-1")),
        variant_pod("last", 5, "on-demand", status=scheduled()),
        variant_pod("new", 6),
    ]
    await led.open(*fresh, *kept)
    assert await led.after(1) == ["pod-p1", "pod-p2"]
    assert led.evictions.asked == [("pod-p1", "p1", "7"), ("pod-p2", "p2", "7")]
    assert await led.after(1) == []


async def test_a_slot_is_evicted_once_in_an_opening_and_again_in_the_next() -> None:
    led = Led()
    await led.open(variant_pod("a", 1, status=scheduled()))
    assert await led.after(1) == ["pod-a"]
    led.delete("a")
    led.show(variant_pod("b", 1, status=scheduled(since_us=led.clock.now_us())))
    led.show(variant_pod("c", 1, owner="other", status=scheduled(since_us=led.clock.now_us())))
    assert await led.after(1) == ["pod-c"], "b has the slot of a"
    led.delete("c")
    await led.after(600)
    assert led.state is State.HALF_OPEN
    await led.probe("d", 2, status=scheduled(since_us=led.clock.now_us()))
    await led.after(60)
    assert led.state is State.OPEN
    assert await led.after(1) == ["pod-b", "pod-d"]


async def test_a_bound_probe_closes_the_breaker_and_other_pods_do_not() -> None:
    led = Led()
    await led.open()
    led.delete("first")
    await led.after(601)
    assert led.state is State.HALF_OPEN
    led.show(variant_pod("other", 3, created_us=led.clock.now_us(), node_name="node-2"))
    await led.after(1)
    assert led.state is State.HALF_OPEN
    probe = await led.probe("probe")
    await led.after(30)
    assert led.state is State.HALF_OPEN
    led.show(replace(probe, spec=replace(probe.spec, node_name="node-1")))
    await led.after(1)
    assert led.state is State.CLOSED
    assert led.transitions[-1] is State.CLOSED


async def test_a_probe_that_was_bound_while_nobody_led_is_found() -> None:
    led = Led()
    await led.open()
    led.delete("first")
    await led.after(601)
    probe = await led.probe("probe")
    led.lead()
    led.list(replace(probe, spec=replace(probe.spec, node_name="node-1")))
    await led.after(1)
    assert led.state is State.CLOSED


async def test_a_pod_is_reported_once_for_each_state_of_its_breaker() -> None:
    led = Led()
    reported: list[int] = []
    record = led.store.record_outcomes

    async def count(plan: Any, outcomes: Any) -> Any:
        reported.append(len(outcomes))
        return await record(plan, outcomes)

    led.store.record_outcomes = count  # type: ignore[method-assign]
    led.show(variant_pod("a", 1, status=scheduled()), variant_pod("b", 2, status=scheduled()))
    for _ in range(3):
        await led.after(60)
    assert reported == [2]


async def test_what_the_store_has_not_taken_is_reported_again() -> None:
    led = Led()
    record = led.store.record_outcomes

    async def fail(*_: Any) -> Any:
        raise StoreUnavailableError("away")

    led.store.record_outcomes = fail  # type: ignore[method-assign]
    led.show(variant_pod("a", 1, status=scheduled()))
    await led.after(60)
    led.store.record_outcomes = record  # type: ignore[method-assign]
    await led.after(1)
    await led.after(2)
    assert led.state is State.OPEN


async def test_a_pod_that_could_not_be_evicted_opens_a_closed_breaker_only_after_a_while() -> None:
    led = Led()
    led.evictions.results["pod-first"] = EvictionError("refused")
    await led.open()
    await led.after(601)
    probe = await led.probe("probe")
    led.show(replace(probe, spec=replace(probe.spec, node_name="node-1")))
    await led.after(1)
    await led.after(55)
    await led.after(2)
    assert led.state is State.CLOSED
    await led.after(10)
    await led.after(2)
    assert led.state is State.OPEN


async def test_a_forced_variant_is_left_as_an_open_one() -> None:
    led = Led()
    led.show(variant_pod("a", 1, status=scheduled()))
    web = led.compiled.shares["web"]
    forcing = Forcing(State.FORCED_OPEN, START_US + 3600 * SECOND_US, "maintenance")
    spot = web.variants[0]
    counters = replace(spot.counters, breaker=replace(spot.counters.breaker, forcing=forcing))
    led.compiled.shares = {"web": replace(web, variants=(replace(spot, counters=counters), web.variants[1]))}
    await led.store.apply_override(counters)
    assert await led.after(1) == ["pod-a"]
    assert await led.after(1) == []


async def test_evictions_are_bounded_in_a_round() -> None:
    led = Led(evictions_per_round_max=3)
    await led.open(*(variant_pod(f"p{slot}", slot, status=scheduled()) for slot in range(1, 8)))
    assert [len(await led.after(1)) for _ in range(4)] == [3, 3, 1, 0]


async def test_a_pod_that_changed_is_evicted_as_it_is_now_known() -> None:
    led = Led()
    led.evictions.results["pod-a"] = EvictionResult.CHANGED
    made = variant_pod("a", 1, status=scheduled())
    await led.open(made)
    assert await led.after(1) == []
    del led.evictions.results["pod-a"]
    led.show(replace(made, metadata=replace(made.metadata, resource_version="8")))
    assert await led.after(1) == ["pod-a"]
    assert led.evictions.asked[-1] == ("pod-a", "a", "8")


async def test_a_pod_that_a_budget_protects_is_tried_again_later() -> None:
    led = Led()
    led.evictions.results["pod-a"] = EvictionResult.BLOCKED
    await led.open(variant_pod("a", 1, status=scheduled()))
    for _ in range(3):
        await led.after(1)
    assert len(led.evictions.asked) == 1
    del led.evictions.results["pod-a"]
    assert await led.after(10) == ["pod-a"]
    assert led.troubles == []


async def test_a_pod_that_is_gone_is_not_counted_as_evicted() -> None:
    led = Led()
    led.evictions.results["pod-a"] = EvictionResult.GONE
    await led.open(variant_pod("a", 1, status=scheduled()))
    assert (await led.after(1), await led.after(60), len(led.evictions.asked)) == ([], [], 1)


async def test_refusals_are_reported_and_others_go_on() -> None:
    led = Led()
    led.evictions.results["pod-a"] = EvictionError("pod shop/pod-a: cannot evict: HTTP 403")
    await led.open(variant_pod("a", 1, status=scheduled()))
    await led.after(1)
    assert led.troubles == ["pod shop/pod-a: cannot evict: HTTP 403"]
    led.show(variant_pod("b", 2, status=scheduled()))
    assert await led.after(1) == ["pod-b"]
    assert led.troubles[1:] == ["over"]


async def test_a_failure_ends_when_nothing_is_to_be_evicted_any_more() -> None:
    led = Led()
    led.evictions.results["pod-a"] = EvictionError("pod shop/pod-a: cannot evict: HTTP 403")
    await led.open(variant_pod("a", 1, status=scheduled()))
    await led.after(1)
    for _ in range(3):
        await led.after(60)
    assert (led.troubles, len(led.evictions.asked)) == (["pod shop/pod-a: cannot evict: HTTP 403"], 4)
    led.delete("a")
    await led.after(60)
    assert led.troubles[1:] == ["over"]


async def test_pods_are_counted_by_variant_and_by_what_they_lack() -> None:
    led = Led()
    led.show(variant_pod("a", 1), variant_pod("b", 2, "on-demand", intended="spot"), variant_pod("c", 3, "on-demand"))
    await led.after(1)
    pods, fell_back = led.counts
    assert pods == {("web", "spot"): 1, ("web", "on-demand"): 2}
    assert fell_back == {("web", "spot"): 1, ("web", "on-demand"): 0}


async def test_a_policy_without_shares_costs_nothing() -> None:
    led = Led()
    led.compiled = compile_policy(WITHOUT_SHARES)
    led.list(variant_pod("a", 1, status=scheduled()))
    led.show(variant_pod("b", 2, status=scheduled()))
    led.clock.set(START_US + 3600 * SECOND_US)
    await led.loop.round()
    assert (len(led.observer), led.evictions.asked, led.counts) == (0, [], ({}, {}))


# --- rebalancing ---


async def bring_back(led: Led, *pods: Pod) -> None:
    """Open the breaker, and close it by a probe, with these Pods there."""
    await led.open()
    led.delete("first")
    await led.after(601)
    probe = await led.probe("probe", 50, owner="probes")
    led.show(replace(probe, spec=replace(probe.spec, node_name="node-1"), status=READY))
    led.show(*pods)
    await led.after(1)
    assert led.state is State.CLOSED


def fallen(uid: str, slot: int, **fields: Any) -> Pod:
    return variant_pod(uid, slot, "on-demand", intended="spot", status=READY, node_name="node-9", **fields)


async def test_pods_that_fell_back_move_one_by_one_once_their_variant_is_back_for_a_while() -> None:
    led = Led(rebalance=True)
    await bring_back(led, fallen("a", 1), fallen("b", 2), variant_pod("c", 3, "on-demand", status=READY))
    assert await led.after(590) == []
    assert await led.after(10) == ["pod-b"]
    assert led.evicted == [("pod-b", "VariantBack")]
    led.delete("b")
    assert await led.after(60) == [], "its replacement is not there"
    led.show(variant_pod("b2", 2, created_us=led.clock.now_us()))
    assert await led.after(60) == [], "its replacement is not Ready"
    led.show(variant_pod("b2", 2, status=READY, node_name="node-1"))
    assert await led.after(1) == ["pod-a"]
    led.delete("a")
    led.show(variant_pod("a2", 1, status=READY, node_name="node-1"))
    assert await led.after(700) == []


async def test_a_budget_that_does_not_allow_it_is_waited_for() -> None:
    led = Led(rebalance=True)
    await bring_back(led, fallen("a", 1))
    led.evictions.results["pod-a"] = EvictionResult.BLOCKED
    assert await led.after(600) == []
    del led.evictions.results["pod-a"]
    assert await led.after(5) == []
    assert await led.after(5) == ["pod-a"]


@pytest.mark.parametrize(
    "kept",
    [
        [fallen("a", 1, kind="Job")],
        [fallen("a", 1), variant_pod("b", 3, "on-demand")],
        [variant_pod("a", 1, status=READY)],
    ],
)
async def test_jobs_owners_that_are_not_ready_and_pods_in_their_variant_stay(kept: list[Pod]) -> None:
    led = Led(rebalance=True)
    await bring_back(led, *kept)
    assert (await led.after(600), await led.after(60)) == ([], [])


async def test_nothing_moves_unless_asked_for() -> None:
    led = Led()
    await bring_back(led, fallen("a", 1))
    assert (await led.after(600), await led.after(60)) == ([], [])


async def test_a_replacement_that_never_comes_does_not_stop_the_others_for_ever() -> None:
    led = Led(rebalance=True)
    await bring_back(led, fallen("a", 1), fallen("b", 2))
    assert await led.after(600) == ["pod-b"]
    led.delete("b")
    assert await led.after(599) == []
    assert await led.after(2) == ["pod-a"]


async def test_no_pod_moves_because_the_weights_have_changed() -> None:
    led = Led(rebalance=True)
    shown = [place(slot) for slot in range(1, 11)]
    led.show(*shown)
    led.compiled = compile_shares(rebalance=True, spot=20)
    led.list(*shown)
    assert (await led.after(600), await led.after(60)) == ([], [])
    assert led.counts[1] == {("web", "spot"): 0, ("web", "on-demand"): 0}


async def test_a_pod_that_fell_back_stays_if_its_slot_is_no_longer_of_that_variant() -> None:
    led = Led(rebalance=True)
    await bring_back(led, fallen("a", 1), fallen("b", 3))
    led.compiled = compile_shares(rebalance=True, spot=20)
    led.list(fallen("a", 1), fallen("b", 3))
    assert await led.after(600) == ["pod-b"], "slot 3 is the first of spot"
    assert led.counts[1]["web", "spot"] == 2, "both fell back"
    led.delete("b")
    led.show(variant_pod("b2", 3, status=READY, node_name="node-1"))
    assert (await led.after(1), await led.after(60)) == ([], [])


# --- holes ---


def place(slot: int, variant: str = "", **fields: Any) -> Pod:
    """Return a Pod of a slot; of every five slots the third is on-demand."""
    own = "on-demand" if slot % 5 == 3 else "spot"
    return variant_pod(f"s{slot}", slot, variant or own, node_name="node-1", **{"status": READY, **fields})


def lead_holed(*pods: Pod, replicas: int = 6, rebalance: bool = True) -> Led:
    """Lead a workload of six Pods that lacks the one of slot 3, which is its only one on-demand, unless given."""
    led = Led(rebalance=rebalance)
    led.owners.replicas["rs"] = replicas
    led.show(*(pods or [place(slot) for slot in (1, 2, 4, 5, 6, 7)]))
    return led


async def test_the_highest_pod_of_a_workload_with_a_hole_moves_into_it() -> None:
    led = lead_holed()
    assert (await led.after(1), await led.after(9)) == ([], []), "Pods may still be on their way"
    assert await led.after(1) == ["pod-s7"]
    assert led.evicted == [("pod-s7", "VariantHole")]
    assert await led.after(60) == [], "it is still there"
    led.delete("s7")
    assert await led.after(60) == [], "its replacement is not there"
    led.show(place(3))
    assert await led.after(60) == []
    assert (await led.after(700), len(led.evictions.asked)) == ([], 1)


async def test_holes_are_filled_one_by_one_until_the_split_is_exact() -> None:
    led = lead_holed(*(place(slot) for slot in (4, 5, 6, 7, 9)), replicas=5)
    await led.after(1)
    assert await led.after(10) == ["pod-s9"]
    led.delete("s9")
    led.show(place(1))
    assert await led.after(1) == []
    assert await led.after(10) == ["pod-s7"]
    led.delete("s7")
    led.show(place(2))
    await led.after(1)
    assert await led.after(10) == ["pod-s6"]
    led.delete("s6")
    led.show(place(3))
    assert (await led.after(1), await led.after(700)) == ([], [])


@pytest.mark.parametrize(
    ("replicas", "pods"),
    [
        pytest.param(6, [place(slot) for slot in (1, 3, 4, 5, 6, 7)], id="exact all the same"),
        pytest.param(7, [place(slot) for slot in (1, 2, 4, 5, 6, 7)], id="its owner lacks a Pod"),
        pytest.param(5, [place(slot) for slot in (1, 2, 4, 5, 6, 7)], id="its owner shrinks"),
        pytest.param(6, [place(1, status=scheduled()), *(place(slot) for slot in (2, 4, 5, 6, 7))], id="not ready"),
        pytest.param(6, [place(slot, kind="Job") for slot in (1, 2, 4, 5, 6, 7)], id="of a Job"),
    ],
)
async def test_workloads_whose_holes_need_no_filling_stay(replicas: int, pods: list[Pod]) -> None:
    led = lead_holed(*pods, replicas=replicas)
    assert [await led.after(seconds) for seconds in (1, 10, 50)] == [[], [], []]


async def test_pods_that_fell_back_move_before_holes_are_filled() -> None:
    led = lead_holed(place(1, "on-demand", intended="spot"), *(place(slot) for slot in (2, 4, 5, 6, 7)))
    assert await led.after(1) == ["pod-s1"]
    assert led.evicted == [("pod-s1", "VariantBack")]
    led.delete("s1")
    led.show(variant_pod("again", 1, status=READY, node_name="node-1"))
    assert await led.after(1) == []
    assert await led.after(10) == ["pod-s7"]


async def test_holes_stay_among_pods_of_a_former_split() -> None:
    led = lead_holed(*(place(slot) for slot in (1, 3, 4, 5, 6, 7)))
    assert (await led.after(1), await led.after(10)) == ([], []), "the split is exact"
    led.compiled = compile_shares(rebalance=True, spot=20)
    led.list(*(place(slot) for slot in (1, 3, 4, 5, 6, 7)))
    assert (await led.after(1), await led.after(10)) == ([], []), "a change of the policy concerns new Pods"


async def test_an_owner_is_asked_for_its_replicas_once_in_a_while() -> None:
    led = lead_holed(replicas=7)
    for _ in range(35):
        await led.after(1)
    assert led.owners.reads == 3


async def test_holes_stay_unless_asked_for_and_while_a_variant_is_not_to_be_had() -> None:
    led = lead_holed(rebalance=False)
    assert (await led.after(1), await led.after(10)) == ([], [])
    led = lead_holed()
    await led.open()
    led.delete("first")
    assert [await led.after(seconds) for seconds in (1, 10, 10)] == [[], [], []]
