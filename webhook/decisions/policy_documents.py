"""Policy documents of the newest policies of this server, by hash: records are explained by them."""

from collections.abc import Callable

DOCUMENTS_MAX = 20
BYTES_MAX = 8 << 20


class PolicyDocuments:
    """Keeps at most DOCUMENTS_MAX documents of BYTES_MAX, and always the newest."""

    def __init__(self) -> None:
        self.on_document: Callable[[], None] = lambda: None
        """Called when another document is kept."""
        self._kept: dict[str, bytes] = {}

    def keep(self, policy_hash: str, document: bytes) -> None:
        self._kept.pop(policy_hash, None)
        self._kept[policy_hash] = document
        while len(self._kept) > 1 and (
            len(self._kept) > DOCUMENTS_MAX or sum(map(len, self._kept.values())) > BYTES_MAX
        ):
            del self._kept[next(iter(self._kept))]
        self.on_document()

    def get(self, policy_hash: str) -> bytes | None:
        return self._kept.get(policy_hash)

    def hashes(self) -> tuple[str, ...]:
        """Return the hashes, oldest first."""
        return tuple(self._kept)
