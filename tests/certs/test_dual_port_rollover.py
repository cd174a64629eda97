"""Rollover of the API server's certificate on two ports: over virtual time, with failures."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from certs.dual_port_rollover import (
    RENEWAL_LIFETIME_SECONDS_MIN,
    PortCertificate,
    PortState,
    Step,
    SwitchPort,
    WritePort,
    find_due_step,
)
from tests.core.strategies import examples

START = 1_800_000_000
LIFETIME_SECONDS = 2 * RENEWAL_LIFETIME_SECONDS_MIN
"""The shortest that the controller accepts with two ports."""
PASS_SECONDS_MAX = 11
"""The leader pauses for up to 10 s between two passes, and a pass itself takes a moment."""
NODE_DELAY_SECONDS, READ_DELAY_SECONDS = 25, 300
"""Maximum delay until the writer on the node reads the Secret, and until the API server then reads the files."""


@dataclass
class PortSimulation:
    """The Secret, the ports of the webhooks, and the certificates of the slowest API server for each port."""

    lifetime: int = LIFETIME_SECONDS
    pass_seconds: int = 10
    now: int = START
    newest: PortCertificate = field(init=False)
    ports: list[PortCertificate | None] = field(default_factory=lambda: [None, None])
    webhooks: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Index of the port of each configuration."""
    api_server_pems: list[bytes] = field(default_factory=lambda: [b"0", b"0"])
    written: list[list[tuple[int, bytes]]] = field(default_factory=lambda: [[], []])
    lost_calls: int = 0
    """How often an API server's certificate changed while calls used it: those calls were lost."""
    expiry_by_pem: dict[bytes, int] = field(default_factory=dict)
    used_at: list[int] = field(default_factory=lambda: [START, 0])

    def __post_init__(self) -> None:
        self.issue(b"0")

    def step(self) -> Step | None:
        first, second = self.ports
        newest = replace(self.newest, written_at=self.now)  # not when it was issued: a port may get it later
        return find_due_step(PortState(newest, (first, second), frozenset(self.webhooks)), self.now)

    def apply(self, step: Step, parts: int = 3) -> None:
        """Apply a step; a switch changes the first `parts` configurations only, as an interrupted process does."""
        match step:
            case WritePort(at, port, _):
                former = self.ports[at]
                if former is None or former.pem != port.pem:
                    self.written[at].append((self.now, port.pem))
                    # The fastest API server reads it at once, while the last calls may still be in flight.
                    self.lost_calls += former is not None and self.now - self.used_at[at] < 30
                self.ports[at] = port
            case SwitchPort(to):
                self.webhooks = [to] * parts + self.webhooks[parts:]

    def reconcile(self) -> None:
        """Make a pass of the leader, which renews the certificate first."""
        if self.now >= self.newest.ends_at - RENEWAL_LIFETIME_SECONDS_MIN:
            self.renew()
        for _ in range(20):
            if (step := self.step()) is None:
                return
            self.apply(step)
        raise AssertionError("the steps do not end")

    def renew(self) -> None:
        self.issue(str(int(self.newest.pem) + 1).encode())

    def issue(self, pem: bytes) -> None:
        self.newest = PortCertificate(pem, self.now + self.lifetime, self.now)
        self.expiry_by_pem[pem] = self.newest.ends_at

    def advance_one_second(self) -> None:
        """Advance the clock by a second: API servers read what was written before their delay."""
        self.now += 1
        for at in (0, 1):
            if at in self.webhooks:
                self.used_at[at] = self.now
            delayed = [
                pem
                for written_at, pem in self.written[at]
                if written_at + NODE_DELAY_SECONDS + READ_DELAY_SECONDS <= self.now
            ]
            if delayed and delayed[-1] != self.api_server_pems[at]:
                self.lost_calls += self.now - self.used_at[at] < 30
                self.api_server_pems[at] = delayed[-1]

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            if (self.now - START) % self.pass_seconds == 0:
                self.reconcile()
            self.advance_one_second()

    def check(self) -> None:
        for at in set(self.webhooks):
            assert self.expiry_by_pem[self.api_server_pems[at]] > self.now, (
                "an API server calls with an expired certificate"
            )


def test_first_round_writes_one_certificate_to_both_ports_and_switches_none() -> None:
    simulation = PortSimulation()
    simulation.reconcile()
    assert [port.pem for port in simulation.ports if port is not None] == [b"0", b"0"]
    assert simulation.webhooks == [0, 0, 0]


@pytest.mark.parametrize("pass_seconds", range(1, PASS_SECONDS_MAX + 1))
def test_many_renewals_lose_no_call_and_let_no_certificate_expire(pass_seconds: int) -> None:
    simulation = PortSimulation(pass_seconds=pass_seconds)
    for _ in range(20 * RENEWAL_LIFETIME_SECONDS_MIN // 10):
        simulation.run(10)
        simulation.check()
    assert int(simulation.newest.pem) >= 18
    assert simulation.lost_calls == 0
    assert {int(pem) for _, pem in simulation.written[0]} & {int(pem) for _, pem in simulation.written[1]}


def test_between_renewals_both_ports_have_the_newest_certificate() -> None:
    simulation = PortSimulation(lifetime=1000 * LIFETIME_SECONDS)
    simulation.run(1000)
    before = list(simulation.ports)
    simulation.run(1000)
    assert simulation.ports == before
    assert simulation.webhooks == [0, 0, 0]


def test_reapplied_webhooks_are_switched_to_one_port() -> None:
    simulation = PortSimulation()
    simulation.run(400)
    simulation.run(400)
    assert set(simulation.webhooks) == {1}
    simulation.webhooks[1] = 0
    simulation.reconcile()
    assert len(set(simulation.webhooks)) == 1


def test_expiring_certificate_is_abandoned_before_the_other_port_has_settled() -> None:
    simulation = PortSimulation()
    simulation.run(100)
    simulation.now = START + LIFETIME_SECONDS - 30
    simulation.renew()
    simulation.reconcile()
    assert set(simulation.webhooks) == {0}
    simulation.now += 11
    simulation.reconcile()
    assert set(simulation.webhooks) == {1}


def test_expired_certificate_of_the_port_in_use_is_replaced_at_once() -> None:
    simulation = PortSimulation()
    simulation.run(10)
    simulation.now = START + LIFETIME_SECONDS
    simulation.renew()
    simulation.reconcile()
    assert [port.pem for port in simulation.ports if port is not None] == [b"1", b"1"]


def test_with_webhooks_elsewhere_both_ports_get_the_newest_certificate_at_once() -> None:
    simulation = PortSimulation()
    simulation.reconcile()
    simulation.renew()
    for _ in range(10):
        first, second = simulation.ports
        step = find_due_step(
            PortState(simulation.newest, (first, second), frozenset(), is_elsewhere=True), simulation.now
        )
        if step is None:
            break
        simulation.apply(step)
    assert [port.pem for port in simulation.ports if port is not None] == [b"1", b"1"]
    assert simulation.webhooks == [0, 0, 0]


def test_webhooks_are_not_switched_if_one_leads_elsewhere() -> None:
    port = PortCertificate(b"0", START + LIFETIME_SECONDS, START, None)
    assert find_due_step(PortState(port, (port, port), frozenset({0, 1}), is_elsewhere=True), START) is None
    assert find_due_step(PortState(port, (port, port), frozenset({0, 1})), START) is not None


@examples(60)
@given(
    st.integers(LIFETIME_SECONDS, 4 * LIFETIME_SECONDS),
    st.integers(1, PASS_SECONDS_MAX),
    st.lists(
        st.tuples(st.sampled_from(["killed", "applied", "live", "live"]), st.integers(0, 3), st.integers(1, 300)),
        max_size=15,
    ),
)
@example(LIFETIME_SECONDS, 10, [("live", 0, LIFETIME_SECONDS), ("killed", 0, 55), ("killed", 0, 300)])
@example(LIFETIME_SECONDS, 11, [("live", 0, RENEWAL_LIFETIME_SECONDS_MIN - 5), ("applied", 1, LIFETIME_SECONDS)])
def test_interruptions_lose_no_call(lifetime: int, pass_seconds: int, actions: list[tuple[str, int, int]]) -> None:
    """Applying the original configuration loses no call either, unless a new certificate is not yet on both ports."""
    simulation = PortSimulation(lifetime, pass_seconds)
    simulation.reconcile()
    for action, parts, seconds in actions:
        if action == "killed" and (step := simulation.step()) is not None:
            simulation.apply(step, parts)
        if action == "applied" and set(simulation.api_server_pems) == {simulation.newest.pem}:
            simulation.webhooks[parts % 3] = 0
        simulation.run(seconds)
        simulation.check()
    assert simulation.lost_calls == 0


@pytest.mark.parametrize("closed_at", [None, START + 1000])
def test_unused_port_is_recorded_with_the_current_time(closed_at: int | None) -> None:
    port = PortCertificate(b"0", START + LIFETIME_SECONDS, START, closed_at)
    step = find_due_step(PortState(port, (replace(port, closed_at=None), port), frozenset({0})), START)
    assert isinstance(step, WritePort)
    assert step.certificate.closed_at == START
