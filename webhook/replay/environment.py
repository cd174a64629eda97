"""Environment of a replay: its virtual clock, store, policies and Namespace labels, all set by events."""

from collections.abc import Mapping
from typing import Protocol

from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.policy.model import LoadedPolicy
from webhook.ports import Clock, NamespaceLabels, PolicySource
from webhook.replay.store_switch import ReplayStore


class SettableClock(Clock, Protocol):
    """A clock that only events advance."""

    def set(self, at_us: int) -> None:
        """Set the time to `at_us`, which is never earlier than the current time."""
        ...


class SettablePolicy(PolicySource, Protocol):
    """A policy source that only events change."""

    def current(self) -> CompiledPolicy:
        """Return the current policy."""
        ...

    def set(self, loaded: LoadedPolicy) -> None:
        """Replace the current policy."""
        ...


class SettableNamespaces(NamespaceLabels, Protocol):
    """Namespace labels that only events change."""

    def update(self, labels: Mapping[str, Mapping[str, str]]) -> None:
        """Set the labels of some Namespaces."""
        ...


class ReplayEnvironment(Protocol):
    """Clock, store, policies and Namespace labels of a replay."""

    @property
    def clock(self) -> SettableClock: ...

    @property
    def policies(self) -> SettablePolicy: ...

    @property
    def namespaces(self) -> SettableNamespaces: ...

    @property
    def store(self) -> ReplayStore: ...
