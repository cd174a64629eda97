"""Sampled reviews of the mutating half, by a key that the validating half of the same Pod has, too.

The API server sets a Pod's uid between both halves. The key is the trace of their caller, or else namespace, name and
owner. Pods that one controller creates at the same moment have these in common, so that a validating half may
take the mutating one of such a sibling; a Pod with a name of its own has no siblings.
"""

from collections import deque

from webhook.core.admission.review import Request
from webhook.ports.traces import SpanReference

_SPANS_MAX = 1_000
_AGE_MAX_NS = 10_000_000_000
"""The API server calls both halves within one request, mostly within milliseconds."""

_Key = str | tuple[str, str, str]


class SampledMutations:
    """Spans that validating halves have not taken yet, the oldest first; false if there is none."""

    def __init__(self) -> None:
        self._spans: dict[_Key, deque[tuple[SpanReference, int]]] = {}
        self._count = 0

    def __bool__(self) -> bool:
        return self._count > 0

    def add(self, request: Request, parent: SpanReference | None, span: SpanReference, now_ns: int) -> None:
        """Keep the span of a mutating half."""
        key = _key(request, parent)
        if key is None:
            return
        if self._count >= _SPANS_MAX:
            self._remove(next(iter(self._spans)))
        self._spans.setdefault(key, deque()).append((span, now_ns))
        self._count += 1

    def take(self, request: Request, parent: SpanReference | None, now_ns: int) -> SpanReference | None:
        """Return the span of the mutating half of this Pod, once; None if it was not sampled here."""
        key = _key(request, parent)
        while key is not None and key in self._spans:
            span, at_ns = self._remove(key)
            if now_ns - at_ns <= _AGE_MAX_NS:
                return span
        return None

    def _remove(self, key: _Key) -> tuple[SpanReference, int]:
        """Remove the oldest span of a key, and return it."""
        spans = self._spans[key]
        oldest = spans.popleft()
        self._count -= 1
        if not spans:
            del self._spans[key]
        return oldest


def _key(request: Request, parent: SpanReference | None) -> _Key | None:
    if parent is not None:
        return parent.trace_id
    if request.pod is None or request.operation != "CREATE" or request.workload is not None:
        return None
    metadata = request.pod.metadata
    owner = metadata.owner_references[0].uid if metadata.owner_references else ""
    return request.namespace, metadata.generate_name or metadata.name, owner
