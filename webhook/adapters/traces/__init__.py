"""Trace spans of sampled reviews, created after the review: a span for each would cost as much as the decision itself.

A breaker transition has its own span, and is also an event of the review that caused it if that review is sampled.

A parent may come from a tenant: an API server without tracing forwards the `traceparent` of the client that creates a
Pod.

The SDK is imported only if an endpoint is set: it takes longer to load than the whole command line.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from webhook.core.breaker import Transition
from webhook.core.overrides import Override
from webhook.core.policy.model import LoadedPolicy
from webhook.ports import Review

if TYPE_CHECKING:
    from webhook.adapters.traces.spans import Spans

RATIO = 0.01
FOLLOWED_PER_SECOND_MAX = 10
"""Reviews traced because of a sampled parent. Beyond them, the ratio applies as without a parent."""
_SIGNAL_PATH = "/v1/traces"

# https://www.w3.org/TR/trace-context/#traceparent-header: ids of only zeros and version ff are invalid.
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 0x01
_SECOND_NS = 1_000_000_000


class Traces:
    """An Observer that traces `ratio` of the reviews. If it `follows`, a caller's parent span decides instead.

    If it does not, the spans form a separate trace with a link to the parent.
    """

    def __init__(
        self,
        spans: "Spans",
        ratio: float = RATIO,
        draw: Callable[[], float] = random.random,
        *,
        follows: bool = True,
    ) -> None:
        self._spans = spans
        self._ratio = ratio
        self._draw = draw
        self._follows = follows
        self._second = 0
        self._room = FOLLOWED_PER_SECOND_MAX
        self._followed = self._limited = 0

    def sampled_parents(self) -> Mapping[str, int]:
        """Return the number of reviews with a sampled parent, by result."""
        return {"followed": self._followed, "limited": self._limited}

    def reviewed(self, review: Review) -> None:
        parent = _parent(review.traceparent) if review.traceparent else None
        if parent is not None and self._follows:
            if not int(parent[4], 16) & _SAMPLED:
                return
            if self._has_room(review.started_ns):
                self._spans.add_review(review, parent, is_followed=True)
                return
        if self._draw() < self._ratio:
            self._spans.add_review(review, parent, is_followed=False)

    def _has_room(self, now_ns: int) -> bool:
        """Return whether one more sampled parent may be followed in this second; count the result."""
        second = now_ns // _SECOND_NS
        if second != self._second:
            self._second, self._room = second, FOLLOWED_PER_SECOND_MAX
        has_room = self._room > 0
        self._room -= has_room
        self._followed += has_room
        self._limited += not has_room
        return has_room

    def transitioned(self, transition: Transition) -> None:
        """Create a span for every transition: they are few, and the causing review may not be sampled."""
        self._spans.add_transition(transition)

    def refused(self, reason: str, detail: str) -> None:
        """Do nothing: rejected callers must not cause traces."""

    def policy_loaded(self, loaded: LoadedPolicy) -> None:
        """Do nothing: logs and metrics report it."""

    def policy_failed(self, errors: Sequence[str]) -> None:
        """Do nothing: logs and metrics report it."""

    def policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        """Do nothing: logs and metrics report it."""

    def overrides_loaded(self, live: Sequence[Override]) -> None:
        """Do nothing: logs and metrics report it."""

    def overrides_failed(self, errors: Sequence[str]) -> None:
        """Do nothing: logs and metrics report it."""

    def override_changed(self, service: str, former: Override | None, now: Override | None) -> None:
        """Do nothing: logs and metrics report it."""

    def webhooks_outdated(self, outdated: Sequence[str]) -> None:
        """Do nothing: logs and metrics report it."""

    def shutdown(self) -> None:
        """Send the pending spans. Blocks until they are sent or given up: call it last, not on the event loop."""
        self._spans.shutdown()


def open_traces(
    endpoint: str | None, ratio: float = RATIO, version: str = "", *, follows: bool = True
) -> Traces | None:
    """Return Traces that send OTLP over HTTP, or None without an endpoint. A URL without a path gets `/v1/traces`."""
    if endpoint is None:
        return None
    from webhook.adapters.traces.spans import open_spans

    if urlsplit(endpoint).path in ("", "/"):
        endpoint = endpoint.rstrip("/") + _SIGNAL_PATH
    return Traces(open_spans(endpoint, version), ratio, follows=follows)


def _parent(traceparent: str) -> "re.Match[str] | None":
    """Parse the header; None if it is invalid. Only versions above 00 may have additional fields at the end."""
    found = _TRACEPARENT.fullmatch(traceparent)
    return None if found is None or (found[1] == "00" and found[5]) else found
