"""Fixed sources of a policy and of Namespace labels, for the offline commands."""

from collections.abc import Mapping

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy.history import PolicyHistory
from webhook.core.policy.model import LoadedPolicy
from webhook.core.quota.scheduled_limits import apply_schedules, find_next_change_us
from webhook.ports import Clock


class TimedPolicy:
    """A policy with the limits that its schedules put in force at a moment, compiled when they change."""

    def __init__(self, loaded: LoadedPolicy) -> None:
        self._loaded = loaded
        self._compiled: CompiledPolicy | None = None
        self.until_us: int | None = None

    @property
    def hash(self) -> str:
        return self._loaded.hash

    def get(self, at_us: int) -> CompiledPolicy:
        """Return the policy of a moment, which is never earlier than that of the former call."""
        if self._compiled is None or (self.until_us is not None and at_us >= self.until_us):
            timed = apply_schedules(self._loaded, at_us)
            self._compiled, self.until_us = CompiledPolicy(timed), find_next_change_us(timed.schedules, at_us)
        return self._compiled


class FixedPolicy:
    """A PolicySource that changes only by `set`, and by its schedules. There are no overrides."""

    def __init__(self, loaded: LoadedPolicy, clock: Clock) -> None:
        self._clock = clock
        self._history: PolicyHistory[TimedPolicy] = PolicyHistory()
        self.set(loaded)

    @property
    def next_change_us(self) -> int | None:
        """When a schedule changes limits next; None without one."""
        return self._current.until_us

    def get_current(self) -> CompiledPolicy:
        return self._current.get(self._clock.now_us())

    def find_by_hash(self, policy_hash: str) -> CompiledPolicy | None:
        now_us = self._clock.now_us()
        found = self._history.find_by_hash(policy_hash, now_us)
        return None if found is None else found.get(now_us)

    async def refresh(self) -> None:
        """Do nothing: there is no source to read."""

    def set(self, loaded: LoadedPolicy) -> None:
        self._current = TimedPolicy(loaded)
        self._history.take(self._current, self._clock.now_us())


class FixedNamespaces:
    """A NamespaceLabels with the given labels only."""

    def __init__(self, labels: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._labels = dict(labels or {})

    def find_labels(self, namespace: str) -> Mapping[str, str] | None:
        return self._labels.get(namespace)

    async def look_up_labels(self, namespace: str) -> Mapping[str, str] | None:
        return self.find_labels(namespace)

    def update(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        self._labels.update(labels)
