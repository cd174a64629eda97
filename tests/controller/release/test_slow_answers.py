"""Answers of the store that take their time: a moment that has come meanwhile lets no lower class pass."""

from tests.controller.release.queue_simulation import ForgetfulStore, QueueSimulation
from webhook.core.quota import Acquire, Receipt

POOL = "pools: [{name: shared, windows: [{window: 4s, hard: {pods: 1}}], whenExceeded: Queue}]"
SERVICES = "".join(
    f"\n- {{name: {name}, match: {{namespaces: [{name}]}}, pool: shared, slaClass: {name}}}"
    for name in ("gold", "bronze")
)
WAY_US = 5_000


class SlowStore(ForgetfulStore):
    """A store to which a call travels for 5 ms, as its answers do, for bronze Pods longer.

    Concurrent requests share one call.
    """

    slowness = 6
    _sharing = 0

    async def acquire(self, request: Acquire) -> Receipt:
        self._sharing += 1
        way_us = WAY_US * (self.slowness if request.plan.service == "bronze" else 1)
        if self._sharing == 1:
            self._clock.set(self._clock.now_us() + way_us)
        receipt = await super().acquire(request)
        self._sharing -= 1
        if not self._sharing:
            self._clock.set(self._clock.now_us() + way_us)
        return receipt


class SlowSimulation(QueueSimulation):
    def __init__(self) -> None:
        super().__init__(SERVICES, POOL)
        self.store: SlowStore = SlowStore(self.clock)
        self.lead()

    async def find_free_us(self) -> int:
        """Return when the pool has room again."""
        asked = Acquire(self.policy.plans["gold"], "gold", "asks", {"pods": 1}, "t", peek=True)
        free_us = (await ForgetfulStore.acquire(self.store, asked)).free_at_us
        assert free_us is not None
        return free_us


async def release_next(early_us: int, slowness: int = 6) -> str:
    """Return the class that is released next, if a Pod of the lower one is created this long before there is room."""
    simulation = SlowSimulation()
    simulation.store.slowness = slowness
    await simulation.create("first", namespace="gold")
    await simulation.run_rounds()
    await simulation.create("waiting-gold", namespace="gold")
    await simulation.run_rounds()
    simulation.clock.set(await simulation.find_free_us() - early_us)
    await simulation.create("waiting-bronze", namespace="bronze")
    while len(simulation.released) == 1:
        simulation.clock.set(simulation.clock.now_us() + WAY_US)
        await simulation.run_rounds()
    return simulation.released[1]


async def test_a_lower_class_is_not_released_first_when_room_begins_during_a_call() -> None:
    released = {early_us: await release_next(early_us) for early_us in range(0, 10 * WAY_US, WAY_US // 5)}
    assert set(released.values()) == {"gold"}, released


async def test_a_lower_class_that_was_refused_is_not_asked_for_again_before_a_higher_one() -> None:
    """Its calls take eleven times as long, so that one arrives after the room has begun."""
    begins_us = range(400_000, 400_000 + 10 * WAY_US, WAY_US)
    released = {early_us: await release_next(early_us, slowness=11) for early_us in begins_us}
    assert set(released.values()) == {"gold"}, released
