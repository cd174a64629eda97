"""Sources that hold what they were given: a policy and Namespace labels for the commands that work offline."""

from collections.abc import Mapping

from webhook.core.policy import LoadedPolicy


class FixedPolicy:
    """A PolicySource that changes only when told to, and remembers what it held before."""

    def __init__(self, loaded: LoadedPolicy) -> None:
        self.loaded = loaded
        self._known = {loaded.hash: loaded}

    def current(self) -> LoadedPolicy | None:
        return self.loaded

    def by_hash(self, policy_hash: str) -> LoadedPolicy | None:
        return self._known.get(policy_hash)

    async def refresh(self) -> None:
        """Do nothing: there is no other place to read from."""

    def set(self, loaded: LoadedPolicy) -> None:
        self.loaded = loaded
        self._known[loaded.hash] = loaded


class FixedNamespaces:
    """NamespaceLabels by name; what was not given is not known."""

    def __init__(self, labels: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self._labels = dict(labels or {})

    def labels(self, namespace: str) -> Mapping[str, str] | None:
        return self._labels.get(namespace)

    def update(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        self._labels.update(labels)
