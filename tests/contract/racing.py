"""One of several processes that race for the same quota: admits what it can, and says when each was admitted.

`python -m tests.contract.racing URL SECONDS`: prints the moments as a JSON list, in Redis' own microseconds.
"""

import asyncio
import json
import sys
import time
import uuid

from tests.core.plans import plan_of, window
from webhook.adapters.clocks import SystemClock
from webhook.adapters.redis_store import RedisStore, connect
from webhook.core.quota import Acquire
from webhook.errors import StoreUnavailableError
from webhook.ports import WatchReports

WINDOW_SECONDS, HARD = 1, 40
LONG_SECONDS, LONG_HARD = 4, 130
PLAN = plan_of(window(WINDOW_SECONDS, pods=HARD), window(LONG_SECONDS, pods=LONG_HARD))
_CALLERS = 8


async def race(url: str, seconds: float) -> list[int]:
    store = RedisStore(connect(url), "race", SystemClock(), WatchReports(int, str, str), deadline_seconds=1)
    admitted: list[int] = []
    ends = time.monotonic() + seconds

    async def ask() -> None:
        while time.monotonic() < ends:
            request = Acquire(PLAN, "x", str(uuid.uuid4()), {"pods": 1}, "user:x")
            try:
                receipt = await store.acquire(request)
            except StoreUnavailableError:
                await asyncio.sleep(0.001)
                continue
            if receipt.charged:
                admitted.append(receipt.at_us)

    await asyncio.gather(*(ask() for _ in range(_CALLERS)))
    await store.close()
    return admitted


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(race(sys.argv[1], float(sys.argv[2])))))
