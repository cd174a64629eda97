"""Manual requests take effect at their wall-clock time, independent of the store's clock."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from tests.app.manual_breakers import POLICY
from tests.app.overrides_serving import entry, write
from tests.harness.server_process import Files
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import VirtualClock, WallClock
from webhook.adapters.memory_store import MemoryStore
from webhook.app.cluster import open_sources
from webhook.app.controller_loops import build_manual_loops
from webhook.app.telemetry import Telemetry
from webhook.core.breaker import State
from webhook.core.quota import Acquire, CounterPlan
from webhook.settings import parse

HOUR_US = 3_600_000_000


async def test_resets_apply_at_once_after_the_wall_clock_was_set_forward(tmp_path: Path) -> None:
    files, path = Files.create(tmp_path, POLICY), tmp_path / "overrides.yaml"
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    write(path, entry(f"resetAt: {now}, quotaReset: {{at: {now}}}"))
    flags = [*files.arguments(), "--overrides", str(path)]
    names = [flag.removeprefix("--").replace("-", "_") for flag in flags[::2]]
    settings = parse(dict(zip(names, flags[1::2], strict=True)), {})
    telemetry, clock = Telemetry(settings, "0"), VirtualClock(WallClock().now_us() - HOUR_US)
    sources, store = await open_sources(settings, telemetry, clock), MemoryStore(clock)
    await asyncio.gather(sources.policies.refresh(), sources.overrides.refresh())
    in_force = sources.policies.get_current()
    assert in_force is not None
    plan = in_force.plans["payment-api"]
    for uid in "abcd":
        await store.acquire(Acquire(plan, "payments", uid, {"pods": 1}, f"controller:{uid}"))
    assert await state_and_use(store, plan) == (State.OPEN, 3)

    clock.set(clock.now_us() + 1)
    loops = [asyncio.create_task(loop()) for loop in build_manual_loops(sources, store, telemetry)]
    async with asyncio.timeout(HANG_SECONDS):
        while await state_and_use(store, plan) != (State.CLOSED, 0):  # noqa: ASYNC110  the store sets no event
            await asyncio.sleep(0.01)
    for loop in loops:
        loop.cancel()
    await asyncio.to_thread(telemetry.close)


async def state_and_use(store: MemoryStore, plan: CounterPlan) -> tuple[State, int]:
    snapshot = await store.snapshot(plan)
    assert snapshot.breaker is not None
    [use] = snapshot.uses[""]
    return snapshot.breaker.state, use.used
