"""A policy from a file: checked, watched, swapped as a whole. A bad document changes nothing and is told once.

Watching reads the file each second. A stat alone would miss a rewrite of equal size within one tick of the file
system's clock, events would miss the symlink swap of a mounted ConfigMap; a document is at most 1 MiB.
"""

import asyncio
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from webhook.core.document import DocumentError, Purpose, load
from webhook.core.document.text import LARGEST_BYTES
from webhook.core.history import PolicyHistory
from webhook.core.policy import LoadedPolicy
from webhook.ports import Clock, Observer

POLL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What one reading gave: a policy, or errors. `identity` is equal where there is nothing new to tell."""

    identity: str
    loaded: LoadedPolicy | None = None
    errors: tuple[str, ...] = ()


class PolicyFile:
    """A `ports.PolicySource` behind a path."""

    def __init__(
        self,
        path: str | Path,
        observer: Observer,
        clock: Clock,
        *,
        purpose: Purpose = Purpose.SERVE,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._path = Path(path)
        self._observer = observer
        self._clock = clock
        self._purpose = purpose
        self._poll_seconds = poll_seconds
        self._history = PolicyHistory()
        self._last: _Attempt | None = None
        self._reading: asyncio.Task[None] | None = None

    @property
    def loaded_at_us(self) -> int:
        """When the policy in force was taken into force; 0 where there is none."""
        return self._history.since_us

    def current(self) -> LoadedPolicy | None:
        return self._history.current

    def last_errors(self) -> tuple[str, ...]:
        """Return what is wrong with the file as it is now; empty where it is in force."""
        return self._last.errors if self._last is not None else ()

    def by_hash(self, policy_hash: str) -> LoadedPolicy | None:
        return self._history.by_hash(policy_hash, self._clock.now_us())

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
        known = self._last.identity if self._last is not None else ""
        # Checking a large document takes a second: the loop goes on answering meanwhile.
        attempt = await asyncio.to_thread(_attempt, self._path, self._purpose, known)
        if attempt is not None:
            self._accept(attempt)

    def _accept(self, attempt: _Attempt) -> None:
        self._last = attempt
        if attempt.loaded is None:
            self._observer.policy_failed(attempt.errors)
            return
        self._history.take(attempt.loaded, self._clock.now_us())
        # Also for the document that was in force all along, when it is back after a bad one: the trouble is over.
        self._observer.policy_loaded(attempt.loaded)


def _attempt(path: Path, purpose: Purpose, known: str) -> _Attempt | None:
    """Read and check the file; None where it is as known. Runs in a thread and touches nothing shared."""
    try:
        raw = _content(path)
    except OSError as error:
        line = f"{path}: cannot read the policy: {error.strerror or error}: put a good document there"
        return _failed(f"unreadable: {line}", [line], known)
    identity = sha256(raw).hexdigest()
    if identity == known:
        return None
    try:
        return _Attempt(identity, load(raw, purpose).policy)
    except DocumentError as error:
        return _failed(identity, [f"{path}:{problem}" for problem in error.problems], known)


def _failed(identity: str, errors: Sequence[str], known: str) -> _Attempt | None:
    return None if identity == known else _Attempt(identity, errors=tuple(errors))


def _content(path: Path) -> bytes:
    # Opening a pipe or a device could block for ever.
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(0, "not a regular file")
    with path.open("rb") as file:
        return file.read(LARGEST_BYTES + 1)
