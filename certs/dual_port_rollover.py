"""Client certificate rollover over two Service ports: the steps that are due, without I/O.

Why there are two: docs/design/two-ports.md.

When kube-apiserver sees that its client certificate has changed, it closes all connections that it made with it, and
requests in flight on them are lost. But it has one certificate per port of the Service. So a new certificate is written
for the port that is not in use, and the webhooks switch to that port once every API server has read it.

    write     the newest certificate for a port that is not in use, or whose certificate is not valid
    note      that a port is in use, or no longer is
    switch    all webhooks to the port that has had the newest certificate for long enough
"""

from dataclasses import dataclass, field, replace
from typing import TypeAlias

SETTLED_SECONDS = 330
"""The node agent reads the Secret at least every 20 s, kube-apiserver its files every five minutes."""
QUIET_SECONDS = 60
"""Time after a switch until the last requests are answered, and all API servers have observed the change."""
_LAST_SECONDS = 20
"""Remaining lifetime for a switch to a port that has not settled: if the switch waited, all calls would fail."""
RENEWAL_LIFETIME_SECONDS_MIN = 450
"""Least remaining lifetime at a renewal. It covers QUIET_SECONDS, as the webhooks may just have left the other port,
SETTLED_SECONDS and the last seconds, and for each of these steps the pause between two passes of the leader. Two
renewals must be as far apart, too: otherwise the second one replaces a certificate that no webhook has used yet."""
PORT_DEFAULT = 443


@dataclass(frozen=True, slots=True)
class PortCertificate:
    """The client certificate for one port. Times are in seconds since the Unix epoch."""

    pem: bytes = field(repr=False)
    """Certificate and key."""
    ends_at: int
    """When that certificate expires."""
    written_at: int
    closed_at: int | None = None
    """Since when no webhook calls this port; None while one does."""


@dataclass(frozen=True, slots=True)
class PortState:
    """The input of a decision. `in_use` has the indexes, 0 and 1, of the ports that webhooks call."""

    newest: PortCertificate
    """The newest certificate, as it would be written now."""
    ports: tuple[PortCertificate | None, PortCertificate | None]
    in_use: frozenset[int]
    is_elsewhere: bool = False
    """Some webhook calls neither port."""


@dataclass(frozen=True, slots=True)
class WritePort:
    """Store the certificate for the port with index `at`."""

    at: int
    certificate: PortCertificate
    text: str


@dataclass(frozen=True, slots=True)
class SwitchPort:
    """Have all webhooks call the port with index `to`."""

    to: int


Step: TypeAlias = WritePort | SwitchPort


def find_due_step(state: PortState, now: int) -> Step | None:
    """Return the step that is due, None if there is none."""
    for at, port in enumerate(state.ports):
        if port is None:
            return WritePort(at, state.newest, "there was none")
        if (noted := _note_use(port, now, is_used=at in state.in_use)) != port:
            return WritePort(at, noted, "the port is in use" if at in state.in_use else "the port is not in use")
    ports = [port for port in state.ports if port is not None]
    stale = [at for at, port in enumerate(ports) if port.pem != state.newest.pem]
    for at in stale:
        if reason := _find_replacement_reason(ports[at], state, now):
            return WritePort(at, replace(state.newest, closed_at=ports[at].closed_at), reason)
    return _choose_switch(state, ports, stale, now)


def _note_use(port: PortCertificate, now: int, *, is_used: bool) -> PortCertificate:
    if is_used:
        return replace(port, closed_at=None)
    return port if port.closed_at is not None and port.closed_at <= now else replace(port, closed_at=now)


def _find_replacement_reason(port: PortCertificate, state: PortState, now: int) -> str:
    """Return why its certificate may be replaced, "" if it may not."""
    if state.is_elsewhere:
        return "webhooks call other ports"
    if port.ends_at <= now:
        return "the former one has expired"
    if port.closed_at is not None and now - port.closed_at >= QUIET_SECONDS:
        return "renewed while the port is not in use"
    return ""


def _choose_switch(state: PortState, ports: list[PortCertificate], stale: list[int], now: int) -> SwitchPort | None:
    if state.is_elsewhere or not state.in_use:
        return None
    settled = [at for at in (0, 1) if at not in stale and now - ports[at].written_at >= SETTLED_SECONDS]
    used = min(state.in_use)
    if len(state.in_use) > 1:  # a switch was interrupted, or one of the configurations was applied again
        return SwitchPort((settled or [at for at in (0, 1) if at in stale] or [used])[0])
    # The port in use has not settled if the webhooks were applied in their first form just after it was rewritten.
    is_last_moment = used in stale and 1 - used not in stale and ports[used].ends_at - now < _LAST_SECONDS
    return SwitchPort(1 - used) if used not in settled and (1 - used in settled or is_last_moment) else None
