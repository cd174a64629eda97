"""One of several processes that race for the same quotas: acquires, refunds, and reports its results.

`python -m tests.contract.race_worker URL SECONDS`: prints JSON, {"charged": {uid: moment in Redis' own microseconds},
"refunded": [uid, ...], "refused": how often, "lost": how often no answer came}. A call without an answer is repeated.
"""

import asyncio
import json
import random
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from tests.core.plans import plan_of, window
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, open_transport
from webhook.core.quota import Acquire, CounterPlan, PoolPlan
from webhook.errors import StoreUnavailableError
from webhook.ports import StoreReports

CLUSTER = "race"
# Never full, and longer than a short race: at its end it holds all charges.
_ALL = window(64, pods=1_000_000, cpu=1_000_000_000)
_POOL = PoolPlan("shared", (window(1, pods=30, cpu=3000), window(4, pods=90), _ALL))
_MEMBER = plan_of(tag="shared", pool=_POOL)
PLANS = (
    replace(_MEMBER, service="web", windows=(window(1, pods=20), window(2, cpu=2500))),
    replace(_MEMBER, service="api", windows=(window(2, pods=25, memory=600),)),
    # On a Cluster of three masters, each has one of these.
    *(
        plan_of(window(1, pods=20, cpu=1500), window(4, pods=60, memory=1200), _ALL, service=name, tag=name)
        for name in ("batch", "search", "payment-api")
    ),
)
_CALLERS = 8


def compute_cost(uid: str) -> dict[str, int]:
    """Return the cost of a Pod, which follows from its uid."""
    return {"pods": 1, "requests.cpu": int(uid[:2], 16), "requests.memory": int(uid[2:4], 16) % 32}


@dataclass
class Racer:
    """Acquires new Pods, and refunds some, until its time ends; `store` answers or fails."""

    store: RedisStore
    ends: float
    charged: dict[str, int] = field(default_factory=dict)
    refunded: list[str] = field(default_factory=list)
    refused: int = 0
    lost: int = 0

    async def run(self) -> None:
        while time.monotonic() < self.ends:
            await self._admit(random.choice(PLANS), str(uuid.uuid4()))  # noqa: S311  not for security

    async def _admit(self, plan: CounterPlan, uid: str) -> None:
        request = Acquire(plan, "x", uid, compute_cost(uid), "user:x")
        receipt, is_first = await self._retry(lambda: self.store.acquire(request))
        assert not (receipt.repeated and is_first), "this Pod is new"
        if receipt.refused:
            self.refused += 1
            await asyncio.sleep(0.005)
            return
        if receipt.charged:
            self.charged[uid] = receipt.at_us
        if uid[-1] in "012":
            await asyncio.sleep(random.uniform(0, 0.3))  # noqa: S311
            is_refunded, _ = await self._retry(lambda: self.store.refund(plan, uid))
            if is_refunded:
                self.refunded.append(uid)

    async def _retry(self, call: Callable[[], Awaitable[Any]]) -> tuple[Any, bool]:
        """Return the first answer, and whether the first call got it."""
        is_first = True
        while True:
            try:
                return await call(), is_first
            except StoreUnavailableError:
                is_first = False
                self.lost += 1
                await asyncio.sleep(0.005)


async def race(url: str, seconds: float) -> Racer:
    reports = StoreReports(int, str, str)
    store = RedisStore(open_transport(url), CLUSTER, SystemClock(), reports, deadline_seconds=1)
    racer = Racer(store, time.monotonic() + seconds)
    await asyncio.gather(*(racer.run() for _ in range(_CALLERS)))
    await store.close()
    return racer


if __name__ == "__main__":
    ran = vars(asyncio.run(race(sys.argv[1], float(sys.argv[2]))))
    sys.stdout.write(json.dumps({name: ran[name] for name in ("charged", "refunded", "refused", "lost")}))
