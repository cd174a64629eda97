"""In a canary that changes shares, the leader acts on the variants of both policies, each Pod by its own policy."""

from typing import Any

from msgspec.structs import replace

from tests.controller.controller_simulation import SECOND_US
from tests.controller.shares.variant_cluster import FakeEvictions, Shown, scheduled, variant_pod
from tests.core.rollout.policies import HASHES, build_canary, write_divided
from webhook.adapters.memory_store import MemoryStore
from webhook.controller.shares.reports import VariantReports
from webhook.controller.shares.variant_loop import VariantLoop
from webhook.controller.shares.variant_pods import VariantPods
from webhook.core.breaker import State
from webhook.core.kubernetes.pod import Pod
from webhook.core.rollout.canary import BasePolicy

STABLE, CANDIDATE = HASHES


def write(*variants: str) -> str:
    return write_divided(*variants, service="web", namespace="shop")


def waiting(uid: str, slot: int, variant: str, policy: str) -> Pod:
    """Return a Pod that finds no node, as this policy has rewritten it."""
    made = variant_pod(uid, slot, variant, status=scheduled())
    annotations = {**made.annotations, "podgate.io/policy-hash": policy}
    return replace(made, metadata=replace(made.metadata, annotations=annotations))


class Led(Shown):
    """A leader under both policies of a canary."""

    def __init__(self, stable: str, candidate: str) -> None:
        super().__init__(None, build_canary(stable, candidate))
        self.compiled: BasePolicy
        self.observer = VariantPods(None, self.clock.now_us)
        self.store, self.evictions = MemoryStore(self.clock), FakeEvictions()
        self.counts: dict[Any, int] = {}
        reports = VariantReports(
            on_evicted=lambda *_: None,
            on_counted=lambda pods, _: self.counts.update(pods),
            on_transition=lambda _: None,
            on_trouble=lambda _: None,
            on_over=lambda _: None,
        )
        self.loop = VariantLoop(self.observer, self.store, self.evictions, self.clock, lambda: self.compiled, reports)
        self.list()

    async def wait(self, seconds: int) -> None:
        """Let time pass, and act as leader and servers do."""
        for _ in range(2):
            self.clock.set(self.clock.now_us() + seconds * SECOND_US)
            await self.loop.round()
            await self.store.tick(self.compiled.list_breakers())
        await self.loop.round()

    def find_state(self, variant: str) -> State | None:
        """Return the state of a breaker; None for a variant without one."""
        plan = next((plan for plan in self.compiled.list_breakers() if plan.service == f"web/{variant}"), None)
        return None if plan is None else self.store.find_last_breaker(plan).state

    @property
    def evicted(self) -> list[str]:
        return [uid for _, uid, _ in self.evictions.asked]


async def test_a_variant_of_the_candidate_alone_opens_and_its_pods_are_counted_and_evicted() -> None:
    led = Led(write("spot", "on-demand"), write("spot", "arm", "on-demand"))
    led.show(waiting("new", 2, "arm", CANDIDATE), waiting("unknown", 3, "arm", STABLE))
    await led.wait(60)
    assert (led.find_state("arm"), led.find_state("spot")) == (State.OPEN, State.CLOSED)
    assert led.evicted == ["new"], "the policy in force has no such variant"
    assert led.counts["web", "arm"] == 2, "whoever made it"


async def test_a_variant_of_the_policy_in_force_alone_opens_and_its_pods_are_counted_and_evicted() -> None:
    led = Led(write("spot", "arm", "on-demand"), write("spot", "on-demand"))
    led.show(waiting("old", 2, "arm", STABLE))
    await led.wait(60)
    assert (led.find_state("arm"), led.evicted, led.counts["web", "arm"]) == (State.OPEN, ["old"], 1)


async def test_a_service_that_the_candidate_alone_divides_is_led_too() -> None:
    led = Led("- {name: web, match: {namespaces: [shop]}}\n", write("spot", "on-demand"))
    led.show(waiting("new", 1, "spot", CANDIDATE))
    await led.wait(60)
    assert (led.find_state("spot"), led.evicted, led.counts["web", "spot"]) == (State.OPEN, ["new"], 1)


async def test_the_last_variant_of_a_pods_own_policy_is_never_evicted() -> None:
    led = Led(write("spot", "on-demand"), write("on-demand", "spot"))
    led.show(waiting("last", 2, "spot", CANDIDATE))
    await led.wait(60)
    assert led.find_state("spot") is State.CLOSED, "it would come back as it is"
    led.show(waiting("old", 1, "spot", STABLE))
    await led.wait(60)
    assert led.find_state("spot") is State.OPEN
    assert led.evicted == ["old"]
