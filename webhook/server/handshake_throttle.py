"""Throttle of TLS handshakes, so that failing ones do not use up the only thread, and the reasons of their failures."""

import ssl
from collections.abc import Callable
from typing import Generic, TypeVar

from webhook.core.lru_cache import LruCache

# X509_V_ERR_*: results of verifying a client's chain.
_EXPIRED, _NOT_YET_VALID, _PURPOSE = 10, 9, 26
_BY_VERIFY_CODE = {
    _EXPIRED: "handshake_certificate_expired",
    _NOT_YET_VALID: "handshake_certificate_not_yet_valid",
    _PURPOSE: "handshake_certificate_purpose",
}
_BY_SSL_REASON = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "handshake_no_certificate",
    "UNSUPPORTED_PROTOCOL": "handshake_protocol",
    "WRONG_VERSION_NUMBER": "handshake_protocol",
    "HTTP_REQUEST": "handshake_protocol",
}


def classify_failure(error: OSError) -> str:
    """Return the reason of an error; `handshake_failed` if it has no specific one."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _BY_VERIFY_CODE.get(error.verify_code, "handshake_certificate_foreign")
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        if "_ALERT_" in reason:
            return "handshake_refused_by_client"  # usually it does not trust the serving certificate: see its caBundle
        return _BY_SSL_REASON.get(reason, "handshake_failed")
    if isinstance(error, ConnectionAbortedError | TimeoutError):
        return "handshake_timeout"
    return "handshake_cut"


_BURST_MAX = 64
_PER_SECOND_MAX = 250
_SHARE_MAX = 0.15
"""Handshakes run in the only thread: failing ones may use this part of its time; what follows takes as much again."""
_UNTRUSTED_MAX = 256
"""A second's handshakes, or more on a slow machine; the first connections of an API server, opened at once, fit."""
_ADDRESSES_MAX = 64
_UNTRUSTED_EVERY = 4
"""One handshake in this many goes to an untrusted address, however many trusted ones wait."""

_T = TypeVar("_T")


class HandshakeThrottle(Generic[_T]):
    """A queue of connections with a token bucket: a handshake takes a credit; time and trusted connections return one.

    Connections from a trusted address go first and are never displaced: when certificates change, all connections of a
    known client are reopened at once. If there are too many untrusted ones, the oldest is displaced.
    """

    def __init__(self, clock_seconds: Callable[[], float], handshake_seconds: Callable[[], float]) -> None:
        """`handshake_seconds` returns the processor time of a handshake, 0 if it is not known."""
        self._clock_seconds = clock_seconds
        self._handshake_seconds = handshake_seconds
        self._credit = float(_BURST_MAX)
        self._credited_at_seconds = clock_seconds()
        self._dequeued = 0
        self._trusted_addresses: LruCache[str, bool] = LruCache(_ADDRESSES_MAX)
        self._trusted: dict[_T, None] = {}
        self._untrusted: dict[_T, None] = {}

    @property
    def waiting(self) -> int:
        return len(self._trusted) + len(self._untrusted)

    def enqueue(self, connection: _T, address: str) -> _T | None:
        """Add a connection to the queue; return the one that it displaces, if any."""
        if self._trusted_addresses.get(address) is not None:
            self._trusted[connection] = None
            return None
        displaced = self.find_oldest_untrusted() if len(self._untrusted) >= _UNTRUSTED_MAX else None
        if displaced is not None:
            self.cancel(displaced)
        self._untrusted[connection] = None
        return displaced

    def find_oldest_untrusted(self) -> _T | None:
        """Return the connection from an untrusted address that has waited longest; None if there is none."""
        return next(iter(self._untrusted), None)

    def is_trusted(self, address: str) -> bool:
        """Return whether a recent connection from this address was marked as trusted."""
        return address in self._trusted_addresses

    def cancel(self, connection: _T) -> None:
        """Remove a connection from the queue, if it is queued."""
        self._trusted.pop(connection, None)
        self._untrusted.pop(connection, None)

    def dequeue(self) -> _T | None:
        """Remove and return the next connection; None if none waits, or if there is no credit."""
        if not self.waiting or self._update_credit() < 1:
            return None
        self._dequeued += 1
        is_untrusted_turn = not self._trusted or self._dequeued % _UNTRUSTED_EVERY == 0
        first = next(iter((is_untrusted_turn and self._untrusted) or self._trusted))
        self.cancel(first)
        self._credit -= 1
        return first

    def compute_wait_seconds(self) -> float | None:
        """Return the seconds until there is a credit for the next connection; None if none waits."""
        return max(0.0, (1 - self._update_credit()) / self._per_second) if self.waiting else None

    def mark_trusted(self, address: str) -> None:
        """Trust an address from which an authenticated call was made, and return that connection's credit."""
        self._trusted_addresses.keep(address, True)  # noqa: FBT003  the value, not an option
        self._credit += 1

    @property
    def _per_second(self) -> float:
        """Return how many handshakes may begin in a second."""
        handshake_seconds = self._handshake_seconds()
        return min(_PER_SECOND_MAX, _SHARE_MAX / handshake_seconds) if handshake_seconds else _PER_SECOND_MAX

    def _update_credit(self) -> float:
        now_seconds = self._clock_seconds()
        gained = (now_seconds - self._credited_at_seconds) * self._per_second
        self._credit = min(self._credit + gained, _BURST_MAX)
        self._credited_at_seconds = now_seconds
        return self._credit
