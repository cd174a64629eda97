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
from webhook.policy_in_force.parts_assembler import PartsAssembler
from webhook.policy_in_force.rollout_follower import PolicyDocument, RolloutFollower
from webhook.ports import Clock, Observer, PolicyCheck, PolicyRevisions


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
        revisions: PolicyRevisions | None = None,
    ) -> None:
        """Create it. `active` compiles policies and swaps them; without it there are no overrides.

        With `revisions` the state of the rollout decides what is in force, else each valid document is.
        """
        self.refresh_source: Callable[[], Awaitable[None]] = _read_nothing
        """Reads the document once, now."""
        self.active = active or ActivePolicy(NoOverrides(), clock)
        """Compiles policies and swaps them."""
        self.rollout = RolloutFollower(observer, self.active, check, purpose, revisions)
        """Puts a valid document into force, at once or as the rollout's state says."""
        # Not methods that call them: each review would pay for it.
        self.get_current: Callable[[], CompiledPolicy | None] = self.active.get_current
        """Returns the policy in force under the active overrides."""
        self.find_by_hash: Callable[[str], CompiledPolicy | None] = self.active.find_by_hash
        """Returns a policy of the last 60 s, or the candidate of a canary."""
        self.assembler: PartsAssembler | None = None
        """Assembles the documents that this receives from a root and parts; None where there are no parts."""
        self._observer = observer
        self._check = check
        self._purpose = purpose
        self._last: _Attempt | None = None
        self._checking = asyncio.Lock()

    @property
    def loaded_at_us(self) -> int:
        """Time at which the current policy was swapped in; 0 without one."""
        return self.active.since_us

    def get_loaded(self) -> LoadedPolicy | None:
        """Return the policy in force without overrides."""
        return self.active.get_loaded()

    def list_errors(self) -> tuple[str, ...]:
        """Return the problems of the newest document, and of parts that it is assembled without; empty for none."""
        errors = self._last.errors if self._last is not None else ()
        return errors if self.assembler is None else (*errors, *self.assembler.list_errors())

    def list_problems(self) -> tuple[str, ...]:
        """Return why the newest document, a part of it, or what the rollout asks for is not in force."""
        problem = self.rollout.view.problem
        return (*self.list_errors(), *([problem] if problem else []))

    async def refresh(self) -> None:
        await self.refresh_source()

    async def on_document(self, raw: bytes, place: str) -> bool:
        async with self._checking:
            identity = sha256(raw).hexdigest()
            if self._last is None or identity != self._last.identity:
                await self._accept(await self._check_document(raw, identity, place), raw)
            return self._last is not None and self._last.loaded is not None

    async def on_unreadable(self, errors: Sequence[str]) -> None:
        await self._accept(_Attempt(f"refused: {errors}", errors=tuple(errors)))

    async def _check_document(self, raw: bytes, identity: str, place: str) -> _Attempt:
        try:
            loaded = await self._check.load(raw, self._purpose)
        except DocumentError as error:
            return _Attempt(identity, errors=tuple(f"{place}:{problem}" for problem in error.problems))
        except CheckFailedError as error:
            # Not the document's identity, so that it is checked again when it is read again.
            failed = f"{place}: the policy could not be checked: {error}: it is checked again at its next read"
            return _Attempt(f"unchecked: {failed}", errors=(failed,))
        return _Attempt(identity, loaded)

    async def _accept(self, attempt: _Attempt, raw: bytes = b"") -> None:
        if self._last is not None and attempt.identity == self._last.identity:
            return
        loaded = attempt.loaded
        has_changed = await self.rollout.on_wish(None if loaded is None else PolicyDocument(raw, loaded))
        had_errors = self._last is not None and self._last.loaded is None
        self._last = attempt
        if loaded is None:
            self._observer.on_policy_failed(attempt.errors)
        elif had_errors and not has_changed and (in_force := self.get_loaded()) is not None:
            # The former document is back after an invalid one: observers clear the error.
            self._observer.on_policy_loaded(in_force)


async def _read_nothing() -> None:
    """Read nothing: no source is attached."""
