"""Helpers of the `release_loop` tests that other tests use, too."""

from tests.controller.release.queue_simulation import QueueSimulation


async def read_usage(simulation: QueueSimulation, service: str = "web") -> int:
    snapshot = await simulation.store.snapshot(simulation.policy.plans[service])
    return snapshot.uses[""][0].used
