"""A policy from a file, watched.

Watching reads the file each second. A stat alone would miss a rewrite of equal size within one tick of the file
system's clock, events would miss the symlink swap of a mounted ConfigMap; a document is at most 1 MiB.
"""

import asyncio
from pathlib import Path

from webhook.core.document.yaml.text import LARGEST_BYTES
from webhook.core.policy.model import LoadedPolicy
from webhook.policy.current_policy import CurrentPolicy
from webhook.support.watched_file import regular_content

POLL_SECONDS = 1.0


class PolicyFile:
    """A `ports.PolicySource` behind a path."""

    def __init__(self, path: str | Path, keeper: CurrentPolicy, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._path = Path(path)
        self._keeper = keeper
        self._poll_seconds = poll_seconds
        self._reading: asyncio.Task[None] | None = None

    def current(self) -> LoadedPolicy | None:
        return self._keeper.current()

    def by_hash(self, policy_hash: str) -> LoadedPolicy | None:
        return self._keeper.by_hash(policy_hash)

    async def refresh(self) -> None:
        """Read now. Callers that come while a reading is under way share it; one that gives up does not stop it."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read(), name="policy-file-read")
        await asyncio.shield(self._reading)

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.refresh()
            await asyncio.sleep(self._poll_seconds)

    async def _read(self) -> None:
        try:
            raw = await asyncio.to_thread(regular_content, self._path, LARGEST_BYTES)
        except OSError as error:
            reason = error.strerror or error
            self._keeper.refuse([f"{self._path}: cannot read the policy: {reason}: put a good document there"])
        else:
            await self._keeper.offer(raw, str(self._path))
