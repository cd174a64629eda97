"""Receiver of policy documents: checks, compiles and swaps them as a whole, and reports an invalid one once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import DocumentError, Purpose
from webhook.core.policy.model import LoadedPolicy
from webhook.errors import CheckFailedError
from webhook.policy_in_force.active_overrides import NoOverrides
from webhook.policy_in_force.active_policy import ActivePolicy
from webhook.ports import Clock, Observer, PolicyCheck


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Result of checking one document: a policy, or errors. An attempt of equal `identity` is not reported again."""

    identity: str
    loaded: LoadedPolicy | None = None
    errors: tuple[str, ...] = ()


class PolicyReceiver:
    """A `ports.PolicySource` and `ports.DocumentReceiver`: the adapter of the document calls `on_document`."""

    def __init__(
        self,
        observer: Observer,
        clock: Clock,
        check: PolicyCheck,
        purpose: Purpose = Purpose.SERVE,
        active: ActivePolicy | None = None,
    ) -> None:
        """Create it. `active` compiles policies and swaps them; without it there are no overrides."""
        self.refresh_source: Callable[[], Awaitable[None]] = _read_nothing
        """Reads the document once, now."""
        self.keep_document: Callable[[str, bytes], None] = lambda *_: None
        """Receives the hash and the text of each policy that is in force."""
        self._active = active or ActivePolicy(NoOverrides(), clock)
        self._observer = observer
        self._check = check
        self._purpose = purpose
        self._last: _Attempt | None = None
        self._checking = asyncio.Lock()

    @property
    def loaded_at_us(self) -> int:
        """Time at which the current policy was swapped in; 0 without one."""
        return self._active.since_us

    def get_loaded(self) -> LoadedPolicy | None:
        """Return the policy in force without overrides."""
        return self._active.get_loaded()

    def get_current(self) -> CompiledPolicy | None:
        return self._active.get_current()

    def list_errors(self) -> tuple[str, ...]:
        """Return the problems of the newest document; empty if it is in force."""
        return self._last.errors if self._last is not None else ()

    def find_by_hash(self, policy_hash: str) -> CompiledPolicy | None:
        return self._active.find_by_hash(policy_hash)

    async def refresh(self) -> None:
        await self.refresh_source()

    async def on_document(self, raw: bytes, place: str) -> bool:
        async with self._checking:
            identity = sha256(raw).hexdigest()
            if self._last is None or identity != self._last.identity:
                self._accept(await self._check_document(raw, identity, place))
            return self._last is not None and self._last.loaded is not None

    async def on_unreadable(self, errors: Sequence[str]) -> None:
        self._accept(_Attempt(f"refused: {errors}", errors=tuple(errors)))

    async def _check_document(self, raw: bytes, identity: str, place: str) -> _Attempt:
        try:
            loaded = (await self._check.load(raw, self._purpose)).policy
        except DocumentError as error:
            return _Attempt(identity, errors=tuple(f"{place}:{problem}" for problem in error.problems))
        except CheckFailedError as error:
            # Not the document's identity, so that it is checked again when it is read again.
            failed = f"{place}: the policy could not be checked: {error}: it is checked again at its next read"
            return _Attempt(f"unchecked: {failed}", errors=(failed,))
        await self._active.swap(loaded)
        self.keep_document(loaded.hash, raw)
        return _Attempt(identity, loaded)

    def _accept(self, attempt: _Attempt) -> None:
        if self._last is not None and attempt.identity == self._last.identity:
            return
        self._last = attempt
        if attempt.loaded is None:
            self._observer.on_policy_failed(attempt.errors)
            return
        # Also if the former document is back after an invalid one, so that observers clear the error.
        self._observer.on_policy_loaded(attempt.loaded)


async def _read_nothing() -> None:
    """Read nothing: no source is attached."""
