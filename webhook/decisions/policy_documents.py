"""Policy documents by hash, kept for the newest policies of this server, and compiled to explain records."""

import asyncio
from collections.abc import Awaitable, Callable

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import DocumentError, Purpose
from webhook.core.lru_cache import LruCache
from webhook.errors import CheckFailedError, NoPolicyError, StoreUnavailableError
from webhook.ports import PolicyCheck

_POLICIES_MAX = 4


class CompiledPolicies:
    """Compiles one policy at a time: read in the check's process, compiled in a thread, so that reviews continue."""

    def __init__(self, document: Callable[[str], Awaitable[bytes | None]], check: PolicyCheck) -> None:
        """Create it. `document` returns a policy document by its hash, or raises StoreUnavailableError."""
        self._document = document
        self._check = check
        self._kept: LruCache[str, CompiledPolicy] = LruCache(_POLICIES_MAX)
        self._compiling = asyncio.Lock()

    async def get(self, policy_hash: str) -> CompiledPolicy:
        """Return a policy. NoPolicyError: the reason why it is not available."""
        async with self._compiling:
            found = self._kept.get(policy_hash)
            if found is None:
                found = await self._compile(policy_hash)
                self._kept.keep(policy_hash, found)
            return found

    async def _compile(self, policy_hash: str) -> CompiledPolicy:
        try:
            raw = await self._document(policy_hash)
            if raw is None:
                raise NoPolicyError("neither this server nor its store keeps it")
            loaded = await self._check.load(raw, Purpose.REVIEW)
        except (StoreUnavailableError, DocumentError, CheckFailedError) as error:
            raise NoPolicyError(str(error)) from error
        return await asyncio.to_thread(CompiledPolicy, loaded)


DOCUMENTS_MAX = 20
DOCUMENTS_BYTES_MAX = 8 << 20


class PolicyDocuments:
    """Keeps a limited number and size of documents, and always the newest."""

    def __init__(self) -> None:
        self.on_document: Callable[[], None] = lambda: None
        """Called when another document is kept."""
        self._kept: dict[str, bytes] = {}

    def keep(self, policy_hash: str, document: bytes) -> None:
        self._kept.pop(policy_hash, None)
        self._kept[policy_hash] = document
        while len(self._kept) > 1 and (
            len(self._kept) > DOCUMENTS_MAX or sum(map(len, self._kept.values())) > DOCUMENTS_BYTES_MAX
        ):
            del self._kept[next(iter(self._kept))]
        self.on_document()

    def get(self, policy_hash: str) -> bytes | None:
        return self._kept.get(policy_hash)

    def list_hashes(self) -> tuple[str, ...]:
        """Return the hashes, oldest first."""
        return tuple(self._kept)
