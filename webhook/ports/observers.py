"""Who is told of what happened."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from webhook.core.admission.decision import Decision
from webhook.core.admission.review import Request
from webhook.core.breaker import Transition
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy
from webhook.ports.callers import Caller


class Review(Struct, frozen=True):
    """One finished review for the observers: the decision, who asked, and how long each stage took."""

    decision: Decision
    caller: Caller | None
    started_ns: int
    """Wall clock, nanoseconds since the Unix epoch."""
    duration_ns: int
    stages: tuple[tuple[str, int], ...] = ()
    """Stage name and its end, in nanoseconds after the start, in order."""
    traceparent: str | None = None
    request: Request | None = None
    """What was asked, by reference: it may hold secrets of a tenant."""


class Observer(Protocol):
    """Told of what happened, after it happened: metrics, logs and traces are siblings. Must not raise or block."""

    def reviewed(self, review: Review) -> None: ...

    def transitioned(self, transition: Transition) -> None: ...

    def refused(self, reason: str, detail: str) -> None:
        """Say that a call was turned away before any decision; `reason` labels a metric, `detail` is for our log."""
        ...

    def policy_loaded(self, loaded: LoadedPolicy) -> None: ...

    def policy_failed(self, errors: Sequence[str]) -> None: ...

    def policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        """Say that `user` wants to store a `document`, a policy or overrides.

        It was refused for `errors`, admitted where there are none.
        """
        ...

    def overrides_loaded(self, live: Sequence[Override]) -> None:
        """Say that the newest document of overrides is in force, and what in it is live."""
        ...

    def overrides_failed(self, errors: Sequence[str]) -> None:
        """Say that the newest document of overrides is refused: the last good one stays."""
        ...

    def override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        """Say of one of a service's entries that it began (without a former one), ended (with none now) or changed."""
        ...


@dataclass(frozen=True, slots=True)
class WatchReports:
    """Whom a watch tells how it fares. A trouble is told once, with the same words when it is over."""

    on_contact: Callable[[], None]
    on_trouble: Callable[[str], None]
    on_over: Callable[[str], None]
