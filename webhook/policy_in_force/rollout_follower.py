"""Follower of the rollout: puts into force what its state says, from the wished policy and from kept documents.

The wished policy is checked before it arrives here. Another one is read by its hash, checked, and put into force when
it is needed. While something is missing, what is in force stays, and it is tried again.

What is in force in each case: docs/design/policy-in-force.md.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256

from webhook.core.document import DocumentError, Purpose
from webhook.core.document.configmap import KEY, NAME, NAMESPACE, REVISION_PREFIX, ROLLOUT_STATE
from webhook.core.policy.model import LoadedPolicy, list_variant_breakers
from webhook.core.rollout.selection import Reach
from webhook.core.rollout.state import Phase, RolloutState, RolloutView, decide_in_force
from webhook.errors import CheckFailedError, RolloutError
from webhook.policy_in_force.active_policy import ActivePolicy, Candidate
from webhook.ports import Observer, PolicyCheck, PolicyRevisions
from webhook.support.backoff import Backoff

_FIRST_PAUSE_SECONDS = 0.5
_PAUSE_SECONDS_MAX = 30.0


@dataclass(frozen=True, slots=True)
class PolicyDocument:
    """A checked policy with the text of its document."""

    raw: bytes
    loaded: LoadedPolicy


class _MissingError(Exception):
    """A policy that the rollout needs is not there; the message names it, and a remedy."""


class RolloutFollower:
    """A `ports.StateReceiver`. Without `revisions` there is no state: the wished policy is in force."""

    def __init__(
        self,
        observer: Observer,
        active: ActivePolicy,
        check: PolicyCheck,
        purpose: Purpose,
        revisions: PolicyRevisions | None = None,
    ) -> None:
        self.keep_document: Callable[[str, bytes], None] = lambda *_: None
        """Receives the hash and the text of each policy that is in force or a candidate."""
        self.keep_last_good: Callable[[bytes], None] = lambda _: None
        """Receives the text of the policy in force, never that of a candidate."""
        self.read_last_good: Callable[[], Awaitable[bytes | None]] = _read_nothing
        self.view = RolloutView()
        """What this process has in force."""
        self.wished: PolicyDocument | None = None
        """The newest valid document of the policy that people wish."""
        self._observer = observer
        self._active = active
        self._check = check
        self._purpose = purpose
        self._revisions = revisions
        self._state: RolloutState | None = None
        self._is_read = revisions is None
        self._unreadable = ""
        self._has_wish_arrived = False
        self._known: dict[str, PolicyDocument] = {}
        """Documents in use, and that of the policy before, by hash: the next state may ask for it again."""
        self._former: PolicyDocument | None = None
        self._used: tuple[str, Candidate | None] = ("", None)
        """The hash of the policy in force, and its candidate."""
        self._following = asyncio.Lock()
        self._missing = asyncio.Event()

    async def on_wish(self, wished: PolicyDocument | None) -> bool:
        """Follow a wished policy, None if the newest one is not valid. Return whether another policy is in force."""
        async with self._following:
            self._has_wish_arrived = True
            self.wished = wished or self.wished
            return await self._follow()

    async def on_state(self, state: RolloutState | None) -> None:
        async with self._following:
            self._state, self._is_read, self._unreadable = state, True, ""
            await self._follow()

    async def on_unreadable_state(self, reason: str) -> None:
        async with self._following:
            self._unreadable = reason
            await self._follow()

    async def run(self) -> None:
        """Try again while a policy is missing, until cancelled."""
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _PAUSE_SECONDS_MAX)
        while True:
            if not self._missing.is_set():
                backoff.reset()
            await self._missing.wait()
            await asyncio.sleep(backoff.next_seconds())
            async with self._following:
                await self._follow()

    async def _follow(self) -> bool:
        """Put into force what the state says, as far as it can be; return whether the policy in force has changed."""
        former = self._active.get_loaded()
        try:
            problem = await self._put_into_force()
        except _MissingError as error:
            problem = str(error)
            self._missing.set()
        else:
            self._missing.clear()
        now = self._active.get_loaded()
        self._report(self._build_view(now, problem))
        return now is not former

    def _build_view(self, in_force: LoadedPolicy | None, problem: str) -> RolloutView:
        stable, candidate = self._used
        if candidate is None or in_force is None:
            return RolloutView(stable, "", self._state, problem)
        ours = in_force.policy.services
        theirs = candidate.loaded.policy.services if candidate.reach is not None else ()
        added = {service.name for service in theirs}.difference(service.name for service in ours)
        variants = list_variant_breakers(theirs).difference(list_variant_breakers(ours))
        return RolloutView(stable, candidate.loaded.hash, self._state, problem, frozenset(added), variants)

    async def _put_into_force(self) -> str:
        """Return why what is in force is not what the state says, "" if it is. _MissingError: a policy is missing."""
        if self._unreadable:
            if self._active.get_loaded() is None:
                await self._use(await self._load_last_good())
            return self._unreadable
        if not self._is_read or not self._has_wish_arrived:
            return ""
        wished = "" if self.wished is None else self.wished.loaded.hash
        asked = decide_in_force(wished, self._state)
        if not asked.stable:
            return ""
        stable = await self._find(asked.stable)
        try:
            candidate = await self._find(asked.candidate) if asked.candidate else None
        except _MissingError:
            await self._use(stable)
            raise
        await self._use(stable, candidate)
        return ""

    async def _use(self, stable: PolicyDocument | None, candidate: PolicyDocument | None = None) -> None:
        if stable is None:
            return
        former, used = self._used, (stable, *(() if candidate is None else (candidate,)))
        beside = None if candidate is None else self._find_place(stable.loaded, candidate.loaded)
        if former != (stable.loaded.hash, beside):
            await self._active.swap(stable.loaded, beside)
            self._used = stable.loaded.hash, beside
            for document in used:
                self.keep_document(document.loaded.hash, document.raw)
        if former[0] != stable.loaded.hash:
            self._observer.on_policy_loaded(stable.loaded)
            self._former = self._known.get(former[0])
        kept = used if self._former is None else (self._former, *used)
        self._known = {document.loaded.hash: document for document in kept}
        self.keep_last_good(stable.raw)

    def _find_place(self, stable: LoadedPolicy, candidate: LoadedPolicy) -> Candidate | None:
        """Return what the candidate judges: the policy in force governs it. None: nothing."""
        state, rollout = self._state, stable.policy.rollout
        if state is None or rollout is None:
            return None
        if state.phase is Phase.CANARY:
            return (
                None if rollout.canary is None else Candidate(candidate, Reach.from_canary(rollout.canary, state.step))
            )
        return Candidate(candidate)

    async def _find(self, policy_hash: str) -> PolicyDocument:
        """Return a policy by its hash: one in use, or its revision, or the last good one."""
        if self.wished is not None and self.wished.loaded.hash == policy_hash:
            return self.wished
        if policy_hash in self._known:
            return self._known[policy_hash]
        problem, raw = "", None
        try:
            raw = None if self._revisions is None else await self._revisions.read(policy_hash)
        except RolloutError as error:
            problem = f"{error}; "
        if raw is None or _compute_hash(raw) != policy_hash:
            raw = await self.read_last_good()
        if raw is None or _compute_hash(raw) != policy_hash:
            raise _MissingError(f"{problem}{_describe_missing(policy_hash)}")
        return await self._load(raw, f"policy {policy_hash}")

    async def _load_last_good(self) -> PolicyDocument | None:
        raw = await self.read_last_good()
        return None if raw is None else await self._load(raw, "the last good policy")

    async def _load(self, raw: bytes, name: str) -> PolicyDocument:
        try:
            return PolicyDocument(raw, await self._check.load(raw, self._purpose))
        except DocumentError as error:
            problems = "; ".join(map(str, error.problems))
            raise _MissingError(f"{name} is no longer valid: {problems}: {_REMEDY}") from None
        except CheckFailedError as error:
            raise _MissingError(f"{name} could not be checked: {error}: it is checked again") from None

    def _report(self, view: RolloutView) -> None:
        former, self.view = self.view, view
        if former != view and (former.is_followed or view.is_followed):
            self._observer.on_rollout_changed(former, view)


_REMEDY = (
    f"apply its document as configmap {NAMESPACE}/{NAME} again, or put the wished policy into force: "
    f"kubectl -n {NAMESPACE} delete configmap {ROLLOUT_STATE}"
)


def _describe_missing(policy_hash: str) -> str:
    name = f"{REVISION_PREFIX}{policy_hash}"
    return (
        f"configmap {NAMESPACE}/{ROLLOUT_STATE} asks for policy {policy_hash}, and neither controllerrevision "
        f"{name} nor the last good policy has its {KEY}: {_REMEDY}"
    )


def _compute_hash(raw: bytes) -> str:
    return sha256(raw).hexdigest()[:16]


async def _read_nothing() -> bytes | None:
    """Return nothing: there is no last good policy."""
    return None
