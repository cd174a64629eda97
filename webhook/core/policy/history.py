"""Policy history: the policy in force and recent ones, so that both calls for one Pod use the same policy."""

from webhook.core.policy.model import LoadedPolicy

REMEMBERED_US = 60_000_000


class PolicyHistory:
    """The policy in force, and those replaced within the last 60 s."""

    def __init__(self) -> None:
        self.current: LoadedPolicy | None = None
        self.since_us = 0
        """Since when the policy is in force, in microseconds; 0 without a policy."""
        self._retired: dict[str, tuple[LoadedPolicy, int]] = {}

    def take(self, loaded: LoadedPolicy, now_us: int) -> None:
        """Put a policy into force; no effect if it already is."""
        if self.current is not None and self.current.hash == loaded.hash:
            return
        if self.current is not None:
            self._retired[self.current.hash] = (self.current, now_us)
        self._retired.pop(loaded.hash, None)
        self._retired = {name: entry for name, entry in self._retired.items() if now_us - entry[1] <= REMEMBERED_US}
        self.current, self.since_us = loaded, now_us

    def by_hash(self, policy_hash: str, now_us: int) -> LoadedPolicy | None:
        """Return the policy of that hash if it is in force, or was within the last 60 s."""
        if self.current is not None and self.current.hash == policy_hash:
            return self.current
        loaded, retired_at_us = self._retired.get(policy_hash, (None, 0))
        return loaded if now_us - retired_at_us <= REMEMBERED_US else None
