"""What stands behind the ports of the offline commands: a clock that only they move, and counters in process."""

from collections.abc import Mapping

from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.draft import Compiled
from webhook.core.matching import fits
from webhook.core.policy import BUILT_IN_EXEMPT_NAMESPACES, LoadedPolicy
from webhook.interceptor import Interceptor
from webhook.observers import Observers


class Offline:
    """The evaluation over virtual time, in process: for `replay` and `review`."""

    def __init__(self, loaded: LoadedPolicy, namespaces: Mapping[str, Mapping[str, str]] | None = None) -> None:
        self.clock = VirtualClock()
        self.policies = FixedPolicy(loaded, self.clock)
        self.namespaces = FixedNamespaces(namespaces)
        self.store = MemoryStore(self.clock)
        self.interceptor = Interceptor(self.policies, self.store, self.clock, self.namespaces, Observers())

    def compiled(self, policy_hash: str = "") -> Compiled:
        """Return the policy in force, or the one that a decision was made by, which may be a moment older."""
        return self.interceptor.compiled(self.policies.by_hash(policy_hash) or self.policies.loaded)

    def misses_labels(self, namespace: str) -> bool:
        """Whether the policy asks for labels of a Namespace that are not known here: then nobody may guess."""
        compiled = self.compiled()
        exempt = (*BUILT_IN_EXEMPT_NAMESPACES, *compiled.policy.exemptions.namespaces)
        if self.namespaces.labels(namespace) is not None or any(fits(pattern, namespace) for pattern in exempt):
            return False
        return compiled.matcher.needs_labels(namespace)
