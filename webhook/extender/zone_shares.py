"""Zone shares: what Pods take of each NUMA zone of one node, by uid and together, and until when."""

from collections import Counter
from math import inf

from webhook.core.scheduling.numa import Amounts


class ZoneShares:
    """Each ends at a time of its own."""

    def __init__(self) -> None:
        self.pods: dict[str, Amounts] = {}
        self._until_seconds: dict[str, float] = {}
        self.ends_seconds = inf
        """When the first of them ends."""
        self.taken = Counter[str]()

    def add(self, uid: str, amounts: Amounts, until_seconds: float) -> None:
        """Reserve for a Pod that has no reservation."""
        self.pods[uid] = amounts
        self.taken.update(amounts)
        self.prolong(uid, until_seconds)

    def prolong(self, uid: str, until_seconds: float) -> None:
        """Set when the reservation of a Pod ends."""
        self._until_seconds[uid] = until_seconds
        self._find_end()

    def remove(self, uid: str) -> None:
        self.taken.subtract(self.pods.pop(uid))
        del self._until_seconds[uid]
        self._find_end()

    def list_expired(self, now_seconds: float) -> list[str]:
        """Return the Pods for which the time is over."""
        return [uid for uid, until_seconds in self._until_seconds.items() if now_seconds > until_seconds]

    def _find_end(self) -> None:
        self.ends_seconds = min(self._until_seconds.values(), default=inf)
