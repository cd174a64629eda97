"""Fixed sources of a policy and of Namespace labels, for the offline commands."""

from collections.abc import Mapping

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy.history import PolicyHistory
from webhook.core.policy.model import LoadedPolicy
from webhook.ports import Clock


class FixedPolicy:
    """A PolicySource that changes only by `set`, which compiles. There are no overrides."""

    def __init__(self, loaded: LoadedPolicy, clock: Clock) -> None:
        self._clock = clock
        self._history: PolicyHistory[CompiledPolicy] = PolicyHistory()
        self.set(loaded)

    def get_current(self) -> CompiledPolicy:
        return self._current

    def find_by_hash(self, policy_hash: str) -> CompiledPolicy | None:
        return self._history.find_by_hash(policy_hash, self._clock.now_us())

    async def refresh(self) -> None:
        """Do nothing: there is no source to read."""

    def set(self, loaded: LoadedPolicy) -> None:
        self._current = CompiledPolicy(loaded)
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
