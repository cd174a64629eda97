"""Sampling of reviews: the ratio, a caller's sampled parent within a bound, and both halves of one Pod together."""

import math
import random
import re
from collections.abc import Callable, Mapping

from webhook.adapters.traces.sampled_mutations import SampledMutations
from webhook.core.admission.decision import Half
from webhook.core.admission.review import Request
from webhook.ports.traces import ReviewTrace, SpanReference, TraceParent

RATIO = 0.01
FOLLOWED_PER_SECOND_MAX = 10
"""Reviews traced because of a sampled parent. Beyond them, the ratio applies as without a parent."""

# https://www.w3.org/TR/trace-context/#traceparent-header: ids of only zeros and version ff are invalid.
# Only versions above 00 may have additional fields at the end.
_parse = re.compile(
    r"(?!ff|00.{53}-)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?"
).fullmatch
_FLAGS_END = 54
_SAMPLED_DIGITS = frozenset("13579bdf")
"""Last digit of the flags of a sampled parent: its lowest bit is set."""
_SECOND_NS = 1_000_000_000

_UUID = re.compile(r"([0-9a-f]{8})-([0-9a-f]{4})-([1-8][0-9a-f]{3})-([0-9a-f]{4})-([0-9a-f]{12})")
_UUID_LENGTH = 36
_DRAWN_DIGITS = 12
"""Last hexadecimal digits of a uid: random in the UUIDs of the API server, and without a dash."""


class RatioSampler:
    """Traces at least one half of `ratio` of the Pods, unless it follows a caller's parent span.

    Each half is drawn on its own, with about half the ratio, and with a mutating half the validating one is traced.

    A Pod's uid decides for all of its reviews, and for its refund in another process: the API server draws it at
    random, so no tenant can choose it. The trace has the uid as its id. The mutating half of a new Pod has no uid yet:
    its trace has an own id, and the validating half, which is then traced as well, has a link to it.
    """

    def __init__(
        self,
        ratio: float = RATIO,
        trace_parent: TraceParent = TraceParent.FOLLOW,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._share = 1 - math.sqrt(1 - ratio)
        self._uid_below = _compute_uid_bound(self._share)
        self._trace_parent = trace_parent
        self._draw = draw
        self._mutations = SampledMutations()
        self._second_ns = 0
        self._room = FOLLOWED_PER_SECOND_MAX
        self._followed = self._limited = 0

    def count_sampled_parents(self) -> Mapping[str, int]:
        """Return the number of reviews with a sampled parent, by result."""
        return {"followed": self._followed, "limited": self._limited}

    def sample(self, half: Half, request: Request, traceparent: str | None, now_ns: int) -> ReviewTrace | None:
        """Decide on one review. A parent is parsed only if it may be followed or linked: many are sent, few are."""
        if traceparent and self._trace_parent is TraceParent.FOLLOW:
            followed = self._find_followed_parent(traceparent, now_ns)
            if followed is not None:
                return ReviewTrace(SpanReference(followed.trace_id, draw_span_id()), followed)
        uid = "" if request.pod is None else request.pod.metadata.uid
        is_drawn = self.is_drawn(uid)
        may_link = half is Half.VALIDATE and bool(self._mutations)
        if not is_drawn and not may_link:
            return None
        parent = self._find_parent(traceparent)
        if parent is not None and not parent.is_sampled and self._trace_parent is TraceParent.FOLLOW:
            return None
        mutation = self._mutations.take(request, parent, now_ns) if may_link else None
        if mutation is None and not is_drawn:
            return None
        trace = ReviewTrace(
            SpanReference(find_trace_id(uid), draw_span_id()),
            links=tuple([link for link in (parent, mutation) if link is not None]),
        )
        if half is Half.MUTATE:
            self._mutations.add(request, parent, trace.span, now_ns)
        return trace

    def _find_followed_parent(self, traceparent: str, now_ns: int) -> SpanReference | None:
        """Return a sampled parent if one more may be followed in this second."""
        if traceparent[_FLAGS_END : _FLAGS_END + 1] not in _SAMPLED_DIGITS:
            return None
        found = _parse(traceparent)
        return _make_reference(found) if found is not None and self._has_room(now_ns) else None

    def _find_parent(self, traceparent: str | None) -> SpanReference | None:
        """Return the caller's span; None without one, or if it is invalid or not used."""
        if not traceparent or self._trace_parent is TraceParent.IGNORE:
            return None
        found = _parse(traceparent)
        return None if found is None else _make_reference(found)

    def is_drawn(self, uid: str) -> bool:
        """Return whether a review of the Pod with this uid is drawn; without one, at random."""
        if len(uid) == _UUID_LENGTH:
            return uid[-_DRAWN_DIGITS:] < self._uid_below
        return self._draw() < self._share

    def _has_room(self, now_ns: int) -> bool:
        """Return whether one more sampled parent may be followed in this second; count the result."""
        if not 0 <= now_ns - self._second_ns < _SECOND_NS:
            self._second_ns, self._room = now_ns - now_ns % _SECOND_NS, FOLLOWED_PER_SECOND_MAX
        if self._room > 0:
            self._room -= 1
            self._followed += 1
            return True
        self._limited += 1
        return False


def find_trace_id(uid: str) -> str:
    """Return the id of a Pod's trace: its uid without dashes; a new one if it has none."""
    found = _UUID.fullmatch(uid)
    return draw_trace_id() if found is None else "".join(found.groups())


def draw_trace_id() -> str:
    return f"{random.getrandbits(128) or 1:032x}"


def draw_span_id() -> str:
    return f"{random.getrandbits(64) or 1:016x}"


def _compute_uid_bound(share: float) -> str:
    """Return the text that the last digits of `share` of all uids are less than."""
    top = 16**_DRAWN_DIGITS
    below = round(share * top)
    return "g" if below >= top else f"{below:0{_DRAWN_DIGITS}x}"  # "g" is greater than any digit


def _make_reference(found: re.Match[str]) -> SpanReference:
    return SpanReference(found[1], found[2], is_sampled=found[3][-1] in _SAMPLED_DIGITS)
