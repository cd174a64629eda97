"""Traces of sampled reviews: their places in a trace, and the calls that are timed for them."""

from collections.abc import Callable
from contextvars import ContextVar
from enum import StrEnum
from time import perf_counter_ns

from msgspec import Struct

from webhook.core.admission.decision import Half
from webhook.core.admission.review import Request
from webhook.core.quota import Acquire, Receipt
from webhook.errors import StoreFailure, StoreUnavailableError
from webhook.ports.stores import CounterStore


class TraceParent(StrEnum):
    """Handling of a caller's `traceparent`: the value of `--trace-parent`."""

    FOLLOW = "Follow"
    """The caller's sampling decision applies, and Podgate's spans are part of its trace."""
    LINK = "Link"
    """`--trace-ratio` decides; Podgate's spans are a separate trace with a link to the caller's."""
    IGNORE = "Ignore"
    """`--trace-ratio` decides; nothing of the caller's `traceparent` is used."""


class SpanReference(Struct, frozen=True, gc=False):
    """A span by its ids in hexadecimal, as in W3C Trace Context."""

    trace_id: str
    span_id: str
    is_sampled: bool = True


class ReviewTrace(Struct, frozen=True):
    """The root span of a sampled review: below its `parent`, or without one in a trace of its own with `links`."""

    span: SpanReference
    parent: SpanReference | None = None
    links: tuple[SpanReference, ...] = ()


class TracedPod(Struct, frozen=True, gc=False):
    """A Pod about which the controller did something that is traced."""

    service: str
    namespace: str
    name: str
    uid: str


class TimedCall(Struct, frozen=True, gc=False):
    """A call to the store or to its server, in nanoseconds after the start of the review.

    `shared_by`: number of operations of all reviews that one call to the server carried.
    """

    name: str
    started_ns: int
    ended_ns: int
    failure: StoreFailure | None = None
    server: str = ""
    shared_by: int = 0


class TimedCalls:
    """The calls of one sampled review. Times of arguments are those of `perf_counter_ns`."""

    def __init__(self, review_started_ns: int) -> None:
        self._review_started_ns = review_started_ns
        self.calls: list[TimedCall] = []

    def add(
        self,
        name: str,
        started_ns: int,
        ended_ns: int | None = None,
        *,
        failure: StoreFailure | None = None,
        server: str = "",
        shared_by: int = 0,
    ) -> None:
        """Add a call that has ended, by default now."""
        origin_ns = self._review_started_ns
        ended_ns = perf_counter_ns() if ended_ns is None else ended_ns
        self.calls.append(TimedCall(name, started_ns - origin_ns, ended_ns - origin_ns, failure, server, shared_by))


STORE = "store acquire"
REDIS = "EVALSHA"
"""Names of calls: the span of a call to a server is named after the command."""

timed_calls: ContextVar[TimedCalls | None] = ContextVar("timed_calls", default=None)
"""Where calls of the current review are added; None if it is not sampled."""


async def acquire_timed(store: CounterStore, timed: TimedCalls, asked: Acquire) -> Receipt:
    """Charge a Pod of a sampled review. StoreUnavailableError as `acquire`."""
    asked_ns = perf_counter_ns()
    try:
        receipt = await store.acquire(asked)
    except StoreUnavailableError as error:
        timed.add(STORE, asked_ns, failure=error.failure)
        raise
    timed.add(STORE, asked_ns)
    return receipt


TraceSampler = Callable[[Half, Request, str | None, int], ReviewTrace | None]
"""Decides at the start of a review, from its `traceparent` and the wall clock in nanoseconds, whether it is traced."""


def sample_none(half: Half, request: Request, traceparent: str | None, now_ns: int) -> ReviewTrace | None:  # noqa: ARG001  the protocol's
    """Return None: without an endpoint nothing is traced."""
    return None
