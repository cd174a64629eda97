"""Operations of a lane that wait for their results."""

import asyncio
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from webhook.adapters.redis_store.operations import ScriptOperation
from webhook.errors import NoStoreAnswerError, StoreFailure

Waiting = tuple[ScriptOperation, "asyncio.Future[Any]", float, float]
"""An operation, its result, its deadline by the loop's clock, and its timeout in seconds.

A plain tuple, because it is made for each acquire.
"""

_PATIENT_MAX, _PATIENT_KEYS_MAX = 64, 200
"""The most operations that are not urgent in one call, and the most keys that they have: a key is some 25 us of work.
So admissions, also those of other servers, wait for a few milliseconds."""


def fail_all(batch: Sequence[Waiting], failure: StoreFailure, *, sent: bool) -> None:
    """Fail operations; `sent`: a call has carried them. Those that have already failed learn that no answer comes."""
    for _, future, _, _ in batch:
        if future.done():
            tell_late(future, None)
        else:
            future.set_exception(NoStoreAnswerError(*failure, sent=sent))


def tell_late(future: "asyncio.Future[Any]", charged_us: int | None) -> None:
    """Tell the caller of an operation that failed at its deadline its late result."""
    error = None if future.cancelled() else future.exception()
    if isinstance(error, NoStoreAnswerError) and error.charged_us is not None and not error.charged_us.done():
        error.charged_us.set_result(charged_us)


def take_pending(queue: list[Waiting], most: int) -> list[Waiting]:
    """Remove and return the first operations, without those that have timed out."""
    pending = [waiting for waiting in queue if not waiting[1].done()]
    queue[:] = pending[most:]
    return pending[:most]


def take_patient(queue: list[Waiting]) -> list[Waiting]:
    """Remove and return the first operations that are not urgent: the fewer, the more keys they have; at least one."""
    pending = [waiting for waiting in queue if not waiting[1].done()]
    keys = accumulate(len(operation.keys) for operation, _, _, _ in pending[:_PATIENT_MAX])
    return take_pending(queue, max(1, sum(total <= _PATIENT_KEYS_MAX for total in keys)))
