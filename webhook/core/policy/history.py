"""Policy history: the policy in force and recent ones, so that both calls for one Pod use the same policy."""

from typing import Generic, Protocol, TypeVar

REMEMBERED_US = 60_000_000
POLICIES_MAX = 8
"""Policies kept, including the one in force: each is compiled again whenever overrides change."""


class HashedPolicy(Protocol):
    """A policy in any form, with the hash of its document."""

    @property
    def hash(self) -> str: ...


_P = TypeVar("_P", bound=HashedPolicy)


class PolicyHistory(Generic[_P]):
    """The policy in force, and those replaced within the last 60 s, the newest seven of them."""

    def __init__(self) -> None:
        self.current: _P | None = None
        self.since_us = 0
        """When the policy came into force, in microseconds; 0 without a policy."""
        self._retired: dict[str, tuple[_P, int]] = {}

    def take(self, policy: _P, now_us: int) -> None:
        """Put a policy into force; no effect if it already is."""
        if self.current is not None and self.current.hash == policy.hash:
            return
        if self.current is not None:
            self._retired[self.current.hash] = (self.current, now_us)
        self._retired.pop(policy.hash, None)
        while len(self._retired) >= POLICIES_MAX:
            del self._retired[next(iter(self._retired))]
        self.current, self.since_us = policy, now_us

    def list_kept(self, now_us: int) -> tuple[_P, ...]:
        """Return the policies that `find_by_hash` may still return; older ones are forgotten."""
        self._retired = {name: entry for name, entry in self._retired.items() if now_us - entry[1] <= REMEMBERED_US}
        retired = tuple(policy for policy, _ in self._retired.values())
        return retired if self.current is None else (*retired, self.current)

    def find_by_hash(self, policy_hash: str, now_us: int) -> _P | None:
        """Return the policy of that hash if it is in force, or was within the last 60 s."""
        if self.current is not None and self.current.hash == policy_hash:
            return self.current
        policy, retired_at_us = self._retired.get(policy_hash, (None, 0))
        return policy if now_us - retired_at_us <= REMEMBERED_US else None
