"""Calls of webhooks that failed: the API server says in a request's annotations that it went on without one."""

import re
from collections.abc import Mapping
from enum import StrEnum

from tests.chaos.checkers.faults import Faults

GRACE_SECONDS = 3.0
"""A server or API server that was away answers by then."""
TIMEOUT_SECONDS = 2.9
"""A call that took so long was given up, as on a busy machine: the timeout is 3 s, less what a clock may differ."""
_FAILED_OPEN, _LATENCY = "failed-open.", "apiserver.latency.k8s.io"
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}
_DURATION = re.compile(r"([\d.]+)(h|ms|m|s|µs|ns)")


class Calling(StrEnum):
    """A half, as annotations of the API server name it."""

    MUTATING = "mutation"
    VALIDATING = "validating"

    @property
    def failure_key(self) -> str:
        return f"{_FAILED_OPEN}{self}.webhook.admission.k8s.io/round_0_index_0"

    @property
    def latency_key(self) -> str:
        """The key that says how long the calls took, of a request that was slow."""
        return f"{_LATENCY}/{'mutating' if self is Calling.MUTATING else self}-webhook"


def was_left_out(faults: Faults, annotations: Mapping[str, str], calling: Calling, begin: float, end: float) -> bool:
    """Return whether the API server went on without this half of Podgate, for a reason that lets a call fail.

    Reasons are a fault of a server, an API server or the link between both, and that no answer came in time.
    """
    of_podgate = "mutate" if calling is Calling.MUTATING else "validate"
    prefix = f"{_FAILED_OPEN}{calling}."
    failed = any(key.startswith(prefix) and name.startswith(of_podgate) for key, name in annotations.items())
    took_seconds = parse_duration(annotations.get(calling.latency_key, ""))
    return failed and (
        took_seconds >= TIMEOUT_SECONDS
        or bool(faults.list_active(begin, end, after=GRACE_SECONDS, of=faults.is_of_calls))
    )


def parse_duration(text: str) -> float:
    """Return the seconds of a duration as Go writes it, such as 1m2.5s; 0 of an empty one."""
    return sum(float(number) * _UNITS[unit] for number, unit in _DURATION.findall(text))
