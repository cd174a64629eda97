"""Fixed sources of a policy and of Namespace labels, for the offline commands."""

from collections.abc import Mapping

from webhook.core.policy.history import PolicyHistory
from webhook.core.policy.model import LoadedPolicy
from webhook.ports import Clock


class FixedPolicy:
    """A PolicySource that changes only by `set`."""

    def __init__(self, loaded: LoadedPolicy, clock: Clock) -> None:
        self._clock = clock
        self._history = PolicyHistory()
        self.set(loaded)

    def current(self) -> LoadedPolicy | None:
        return self._history.current

    def by_hash(self, policy_hash: str) -> LoadedPolicy | None:
        return self._history.by_hash(policy_hash, self._clock.now_us())

    async def refresh(self) -> None:
        """Do nothing: there is no source to read."""

    def set(self, loaded: LoadedPolicy) -> None:
        self.loaded = loaded
        self._history.take(loaded, self._clock.now_us())


class FixedNamespaces:
    """A NamespaceLabels with the given labels only."""

    def __init__(self, labels: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._labels = dict(labels or {})

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        return self._labels.get(namespace)

    async def lookup(self, namespace: str) -> Mapping[str, str] | None:
        return self.labels(namespace)

    def update(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        self._labels.update(labels)
