"""Contract of `ports.RolloutCounts`, run against each implementation."""

from collections.abc import AsyncIterator, Callable

import pytest

from tests.contract.counter_store import MEMORY, SECOND_US, HandClock, clock
from tests.redis_servers import RedisServer, names
from webhook.adapters.memory_rollout_counts import MemoryRolloutCounts
from webhook.adapters.redis_store import RedisRolloutCounts, open_transport
from webhook.core.rollout.counting import KEPT_BUCKETS, make_shadow_name, parse_shadow_name
from webhook.ports import RolloutCounts

pytest_plugins = ("tests.redis_servers.fixtures",)

__all__ = ("clock",)

OLD, NEW = "a" * 16, "b" * 16
HOUR_US = 3600 * SECOND_US


@pytest.fixture(params=(MEMORY, *names()))
async def counts(
    request: pytest.FixtureRequest, clock: HandClock, shared_redis: Callable[[str], RedisServer]
) -> AsyncIterator[RolloutCounts]:
    if request.param == MEMORY:
        yield MemoryRolloutCounts(clock)
        return
    server = shared_redis(request.param)
    transport = open_transport(server.url)
    found = RedisRolloutCounts(transport, "counts", clock.now_us)
    for policy_hash in (OLD, NEW):
        for key in server.cli("KEYS", f"podgate:{{{policy_hash}}}:v1:counts:rollout:*") or ():
            server.cli("DEL", key)
    yield found
    await found.close()
    await transport.close()


async def test_counts_add_up_by_policy_and_name(counts: RolloutCounts, clock: HandClock) -> None:
    began_us = clock.now_us()
    assert await counts.read(OLD, began_us) == {}
    await counts.add(OLD, {"reviews": 3, "denials": 1})
    await counts.add(OLD, {"reviews": 4})
    await counts.add(NEW, {"reviews": 1, "shadow/web/placement": 2})
    await counts.add(NEW, {})
    assert await counts.read(OLD, began_us) == {"reviews": 7, "denials": 1}
    assert await counts.read(NEW, began_us) == {"reviews": 1, "shadow/web/placement": 2}


async def test_only_what_was_counted_since_then_is_read(counts: RolloutCounts, clock: HandClock) -> None:
    for _ in range(4):
        await counts.add(OLD, {"reviews": 1})
        clock.us += 10 * SECOND_US
    now_us = clock.now_us()
    assert [(await counts.read(OLD, now_us - ago * SECOND_US)).get("reviews", 0) for ago in (0, 10, 20, 3600)] == [
        0,
        1,
        2,
        4,
    ]


async def test_an_hour_is_kept(counts: RolloutCounts, clock: HandClock) -> None:
    await counts.add(OLD, {"reviews": 1})
    clock.us += (KEPT_BUCKETS - 1) * 10 * SECOND_US
    assert await counts.read(OLD, 0) == {"reviews": 1}
    clock.us += 10 * SECOND_US
    assert await counts.read(OLD, 0) == {}


def test_a_difference_is_named_with_its_service() -> None:
    for service in ("web", ""):
        assert parse_shadow_name(make_shadow_name(service, "placement")) == (service, "placement")
    assert parse_shadow_name("reviews") is None
    assert parse_shadow_name("shadow") is None
