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
    """The policy in force, a candidate beside it, and those replaced within the last 60 s, the newest seven of them."""

    def __init__(self) -> None:
        self.current: _P | None = None
        self.canary: _P | None = None
        """The candidate's policy while a canary is in force."""
        self.since_us = 0
        """When the policy came into force, in microseconds; 0 without a policy."""
        self._retired: dict[str, tuple[_P, int]] = {}

    def take(self, policy: _P, now_us: int, canary: _P | None = None) -> None:
        """Put a policy into force, with a candidate beside it; another form of the one in force replaces it."""
        hashes = {policy.hash} if canary is None else {policy.hash, canary.hash}
        for former in (self.canary, self.current):
            if former is not None and former.hash not in hashes:
                self._retired.pop(former.hash, None)
                self._retired[former.hash] = (former, now_us)
        for policy_hash in hashes:
            self._retired.pop(policy_hash, None)
        while len(self._retired) >= POLICIES_MAX:
            del self._retired[next(iter(self._retired))]
        if self.current is None or self.current.hash != policy.hash:
            self.since_us = now_us
        self.current, self.canary = policy, canary

    def list_kept(self, now_us: int) -> tuple[_P, ...]:
        """Return the policies that `find_by_hash` may still return; older ones are forgotten."""
        self._retired = {name: entry for name, entry in self._retired.items() if now_us - entry[1] <= REMEMBERED_US}
        kept = (*(policy for policy, _ in self._retired.values()), self.canary, self.current)
        return tuple(policy for policy in kept if policy is not None)

    def find_by_hash(self, policy_hash: str, now_us: int) -> _P | None:
        """Return the policy of that hash if it is in force or a candidate, or was within the last 60 s."""
        for policy in (self.current, self.canary):
            if policy is not None and policy.hash == policy_hash:
                return policy
        retired, retired_at_us = self._retired.get(policy_hash, (None, 0))
        return retired if now_us - retired_at_us <= REMEMBERED_US else None
