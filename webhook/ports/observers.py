"""Observers of decisions, transitions and loaded documents."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from webhook.core.admission.decision import Decision
from webhook.core.admission.review import Request
from webhook.core.breaker import Transition
from webhook.core.overload import OverloadCause
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy
from webhook.core.rollout.changes import RolloutChange
from webhook.core.rollout.state import RolloutView
from webhook.errors import StoreFailure
from webhook.ports.callers import Caller
from webhook.ports.traces import ReviewTrace, TimedCall


class Review(Struct, frozen=True, gc=False):
    """One finished review: the decision, the caller, and the times of its stages."""

    decision: Decision
    caller: Caller | None
    started_ns: int
    """Wall clock, nanoseconds since the Unix epoch."""
    duration_ns: int
    stages: tuple[str, ...] = ()
    """The stages that ran, in order."""
    ends_ns: tuple[int, ...] = ()
    """The end of each stage, in nanoseconds after the start."""
    trace: ReviewTrace | None = None
    """Set if the review is traced."""
    calls: Sequence[TimedCall] = ()
    """Calls to the store, if the review is traced."""
    request: Request | None = None
    """The request, by reference: it may contain secrets of a tenant."""


class Observer(Protocol):
    """Observer of events after they occurred, such as metrics, logs and traces. Must not raise or block."""

    def on_reviewed(self, review: Review) -> None: ...

    def on_transition(self, transition: Transition) -> None: ...

    def on_refused(self, reason: str, detail: str) -> None:
        """Report a call rejected before any decision; `reason` labels a metric, `detail` is for Podgate's log."""
        ...

    def on_policy_loaded(self, loaded: LoadedPolicy) -> None: ...

    def on_policy_failed(self, errors: Sequence[str]) -> None: ...

    def on_policy_parts_checked(self, problems: Mapping[str, Sequence[str]]) -> None:
        """Report the parts of the policy whose newest text is not used, with their problems, when they change."""
        ...

    def on_rollout_changed(self, former: RolloutView, now: RolloutView) -> None:
        """Report what this process has in force of a rollout, and why, when either changes."""
        ...

    def on_rollout_advanced(self, change: RolloutChange) -> None:
        """Report a change of the rollout, once for all processes: the leader calls this."""
        ...

    def on_policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        """Report the review of a `document`, a policy or overrides, that `user` wants to store.

        It was denied because of `errors`, admitted if there are none.
        """
        ...

    def on_overrides_loaded(self, live: Sequence[Override]) -> None:
        """Report that the newest document of overrides is in effect, with its live entries."""
        ...

    def on_overrides_failed(self, errors: Sequence[str]) -> None:
        """Report that the newest document of overrides is rejected: the last good one stays."""
        ...

    def on_override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        """Report that an entry of a service began (no `former`), ended (no `now`) or changed."""
        ...

    def on_webhooks_outdated(self, outdated: Sequence[str]) -> None:
        """Report which webhook configurations differ from the policy's, when that changes; none: all are current."""
        ...

    def on_not_reviewed(self, service: str, pod: str) -> None:
        """Report that a Pod of a service, NAMESPACE/NAME, was admitted without a review; once a minute and service."""
        ...

    def on_overload_changed(self, former: Mapping[OverloadCause, str], now: Mapping[OverloadCause, str]) -> None:
        """Report why this server is overloaded, when causes change; `former` is empty at first, `now` at the end."""
        ...


class PartialObserver:
    """Base of observers of some events: it ignores each event that a subclass does not handle."""

    def on_reviewed(self, review: Review) -> None:
        """Ignore a review."""

    def on_transition(self, transition: Transition) -> None:
        """Ignore a transition."""

    def on_refused(self, reason: str, detail: str) -> None:
        """Ignore a rejected call."""

    def on_policy_loaded(self, loaded: LoadedPolicy) -> None:
        """Ignore a policy."""

    def on_policy_failed(self, errors: Sequence[str]) -> None:
        """Ignore a rejected policy."""

    def on_policy_parts_checked(self, problems: Mapping[str, Sequence[str]]) -> None:
        """Ignore problems of parts of the policy."""

    def on_rollout_changed(self, former: RolloutView, now: RolloutView) -> None:
        """Ignore a change of the rollout."""

    def on_rollout_advanced(self, change: RolloutChange) -> None:
        """Ignore a change that the leader has seen."""

    def on_policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        """Ignore the review of a document."""

    def on_overrides_loaded(self, live: Sequence[Override]) -> None:
        """Ignore overrides."""

    def on_overrides_failed(self, errors: Sequence[str]) -> None:
        """Ignore rejected overrides."""

    def on_override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        """Ignore a change of a service's override."""

    def on_webhooks_outdated(self, outdated: Sequence[str]) -> None:
        """Ignore webhook configurations."""

    def on_not_reviewed(self, service: str, pod: str) -> None:
        """Ignore a Pod without a review."""

    def on_overload_changed(self, former: Mapping[OverloadCause, str], now: Mapping[OverloadCause, str]) -> None:
        """Ignore an overload."""


@dataclass(frozen=True, slots=True)
class WatchReports:
    """Callbacks for the health of a watch. A problem is reported once, and its end with the same words."""

    on_contact: Callable[[], None]
    on_trouble: Callable[[str], None]
    on_over: Callable[[str], None]
    on_unread: Callable[[Mapping[str, str]], None] = lambda _: None
    """Receives the objects that cannot be read now after each change of them, with field, value and reason by name."""


@dataclass(frozen=True, slots=True)
class StoreReports:
    """Callbacks for the health of the store, as those of a watch."""

    on_contact: Callable[[], None]
    on_trouble: Callable[[StoreFailure], None]
    on_over: Callable[[StoreFailure], None]
    on_single: Callable[[StoreFailure], None] | None = None
    """Receives failures of single calls while the others succeed, whose end is not reported; None: `on_trouble`."""

    def report_single(self, failure: StoreFailure) -> None:
        (self.on_single or self.on_trouble)(failure)
