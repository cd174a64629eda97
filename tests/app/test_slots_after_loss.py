"""A server tells Redis of its slots again after a loss, and re-submits its admissions as well."""

import asyncio
from pathlib import Path
from typing import cast

import pytest

from tests.core.reviewing import policy_of
from tests.core.shares.policies import SERVICES
from tests.harness.server_process import Files
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore
from webhook.app.store import build_slot_chooser, open_store
from webhook.app.telemetry import Telemetry
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.shares import SlotOwner
from webhook.settings import parse
from webhook.slots import slot_numbers

pytest_plugins = ("tests.redis_servers.fixtures",)

COMPILED = CompiledPolicy(policy_of(SERVICES))
SHARES, PLAN = COMPILED.shares["web"], COMPILED.plans["web"]
OWNER = SlotOwner("ReplicaSet", "shop", "web-1", "rs", ("pod-template-hash", "1"))


async def test_a_loss_reaches_slots_and_counters(
    own_redis_server: RedisServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot_numbers, "_ANSWER_SECONDS", HANG_SECONDS)  # a slot that is guessed would not be told
    flags = [*Files.create(tmp_path, SERVICES).arguments(), "--store", own_redis_server.url]
    names = [flag.removeprefix("--").replace("-", "_") for flag in flags[::2]]
    settings = parse({**dict(zip(names, flags[1::2], strict=True)), "store_deadline_seconds": "30s"}, {})
    assert settings.store_deadline_seconds == 30
    telemetry = Telemetry(settings, "0")
    store = open_store(settings, telemetry, SystemClock())
    slots = build_slot_chooser(store, telemetry, None)

    def count_keys() -> int:
        return len(own_redis_server.cli("KEYS", "*:slots:web:rs"))

    try:
        taken = await slots.take(SHARES, PLAN, OWNER, "claim", is_dry_run=False)
        assert "guess" not in taken.reason
        own_redis_server.cli("FLUSHALL")
        assert count_keys() == 0
        cast("RedisStore", store.ledger).losses.on_loss()
        async with asyncio.timeout(HANG_SECONDS):
            while not count_keys():  # noqa: ASYNC110  another process changes
                await asyncio.sleep(0.02)
        assert b"podgate_store_losses_total 1" in telemetry.metrics.render()
    finally:
        await store.close()  # what an open connection leaves would keep the test run from ending
