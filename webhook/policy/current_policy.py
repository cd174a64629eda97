"""The policy in force, whatever brings it: checked, swapped as a whole. A bad document changes nothing, told once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from webhook.core.document import DocumentError, Purpose
from webhook.core.policy.history import PolicyHistory
from webhook.core.policy.model import LoadedPolicy
from webhook.errors import CheckFailedError
from webhook.ports import Clock, Observer, PolicyCheck


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What one document came to: a policy, or errors. `identity` is equal where there is nothing new to tell."""

    identity: str
    loaded: LoadedPolicy | None = None
    errors: tuple[str, ...] = ()


class CurrentPolicy:
    """What a `ports.PolicySource` answers from; its source offers what it reads."""

    def __init__(
        self,
        observer: Observer,
        clock: Clock,
        check: PolicyCheck,
        purpose: Purpose = Purpose.SERVE,
        prepare: Callable[[LoadedPolicy], Awaitable[None]] | None = None,
    ) -> None:
        """Make it. What `prepare` does comes before the swap, so that no review has to do it after it."""
        self._prepare = prepare
        self._observer = observer
        self._clock = clock
        self._check = check
        self._purpose = purpose
        self._history = PolicyHistory()
        self._last: _Attempt | None = None
        self._checking = asyncio.Lock()

    @property
    def loaded_at_us(self) -> int:
        """When the policy in force was taken into force; 0 where there is none."""
        return self._history.since_us

    def current(self) -> LoadedPolicy | None:
        return self._history.current

    def last_errors(self) -> tuple[str, ...]:
        """Return what is wrong with the source as it is now; empty where its document is in force."""
        return self._last.errors if self._last is not None else ()

    def by_hash(self, policy_hash: str) -> LoadedPolicy | None:
        return self._history.by_hash(policy_hash, self._clock.now_us())

    async def offer(self, raw: bytes, place: str) -> bool:
        """Check a document; True if it is in force now. `place` stands before the line and column of each problem."""
        async with self._checking:
            identity = sha256(raw).hexdigest()
            if self._last is None or identity != self._last.identity:
                self._accept(await self._attempt(raw, identity, place))
            return self._last is not None and self._last.loaded is not None

    def refuse(self, errors: Sequence[str]) -> None:
        """Say that the source has no document that could be checked: what is in force stays."""
        self._accept(_Attempt(f"refused: {errors}", errors=tuple(errors)))

    async def _attempt(self, raw: bytes, identity: str, place: str) -> _Attempt:
        try:
            loaded = (await self._check.load(raw, self._purpose)).policy
        except DocumentError as error:
            return _Attempt(identity, errors=tuple(f"{place}:{problem}" for problem in error.problems))
        except CheckFailedError as error:
            # Not the document's identity: whoever offers it again has it checked again.
            told = f"{place}: the policy could not be checked: {error}: it is tried again when it is read again"
            return _Attempt(f"unchecked: {told}", errors=(told,))
        if self._prepare is not None:
            await self._prepare(loaded)
        return _Attempt(identity, loaded)

    def _accept(self, attempt: _Attempt) -> None:
        if self._last is not None and attempt.identity == self._last.identity:
            return
        self._last = attempt
        if attempt.loaded is None:
            self._observer.policy_failed(attempt.errors)
            return
        self._history.take(attempt.loaded, self._clock.now_us())
        # Also for the document that was in force all along, when it is back after a bad one: the trouble is over.
        self._observer.policy_loaded(attempt.loaded)
