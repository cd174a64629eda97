"""All virtual stages by name."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

from tests.chaos.history import History
from tests.chaos.virtual.leases_stage import LeasesStage
from tests.chaos.virtual.queue_stage import QueueStage
from tests.chaos.virtual.refund_stage import RefundStage
from tests.chaos.virtual.shares_stage import SharesStage


class VirtualStage(Protocol):
    async def play(self) -> History: ...


STAGES: Mapping[str, Callable[[int], VirtualStage]] = {
    "queue": QueueStage,
    "refunds": RefundStage,
    "shares": SharesStage,
    "leases": LeasesStage,
}


def play(name: str, seed: int) -> History:
    """Run a stage once."""
    return asyncio.run(STAGES[name](seed).play())
