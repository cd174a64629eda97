"""Rollover of the API server's certificate on two ports: over virtual time, with failures."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs.dual_port_rollover import PortCertificate, PortState, Step, SwitchPort, WritePort, due
from tests.core.strategies import examples

START = 1_800_000_000
LIFE_SECONDS, RENEWED_SECONDS = 720, 360
LOOK_SECONDS = 10
NODE_LATE_SECONDS, READ_LATE_SECONDS = 25, 300
"""A node's writer sees the Secret so late, and the API server its files so much later."""


@dataclass
class World:
    """The Secret, where webhooks lead, and what the slowest API server has for each door."""

    now: int = START
    newest: PortCertificate = field(default_factory=lambda: PortCertificate(b"0", START + LIFE_SECONDS, START))
    doors: list[PortCertificate | None] = field(default_factory=lambda: [None, None])
    webhooks: list[int] = field(default_factory=lambda: [0, 0, 0])
    """To which door each configuration leads."""
    seen: list[bytes] = field(default_factory=lambda: [b"0", b"0"])
    written: list[list[tuple[int, bytes]]] = field(default_factory=lambda: [[], []])
    changed_in_use: int = 0
    """How often an API server has seen the certificate change that calls came with: they were lost."""
    ends: dict[bytes, int] = field(default_factory=lambda: {b"0": START + LIFE_SECONDS})
    used_at: list[int] = field(default_factory=lambda: [START, 0])

    def step(self) -> Step | None:
        first, second = self.doors
        return due(PortState(self.newest, (first, second), frozenset(self.webhooks)), self.now)

    def take(self, step: Step, parts: int = 3) -> None:
        """Take a step; of a turn as many configurations as are written before a kill."""
        match step:
            case WritePort(at, port, _):
                former = self.doors[at]
                if former is None or former.pem != port.pem:
                    self.written[at].append((self.now, port.pem))
                    # The fastest API server sees it at once, while the last calls may still be under way.
                    self.changed_in_use += former is not None and self.now - self.used_at[at] < 30
                self.doors[at] = port
            case SwitchPort(to):
                self.webhooks = [to] * parts + self.webhooks[parts:]

    def look(self) -> None:
        for _ in range(20):
            if (step := self.step()) is None:
                return
            self.take(step)
        raise AssertionError("two steps undo each other")

    def renew(self) -> None:
        pem = str(int(self.newest.pem) + 1).encode()
        self.newest = PortCertificate(pem, self.now + LIFE_SECONDS, self.now)
        self.ends[pem] = self.now + LIFE_SECONDS

    def second(self) -> None:
        """Let a second pass: API servers see what was written so long ago."""
        self.now += 1
        for at in (0, 1):
            if at in self.webhooks:
                self.used_at[at] = self.now
            late = [pem for when, pem in self.written[at] if when + NODE_LATE_SECONDS + READ_LATE_SECONDS <= self.now]
            if late and late[-1] != self.seen[at]:
                self.changed_in_use += self.now - self.used_at[at] < 30
                self.seen[at] = late[-1]

    def live(self, seconds: int) -> None:
        for _ in range(seconds):
            if self.now >= self.newest.ends_at - LIFE_SECONDS + RENEWED_SECONDS:
                self.renew()
            if self.now % LOOK_SECONDS == 0:
                self.look()
            self.second()

    def check(self) -> None:
        for at in set(self.webhooks):
            assert self.ends[self.seen[at]] > self.now, "an API server calls with an expired certificate"


def test_first_round_writes_one_certificate_to_both_ports_and_switches_none() -> None:
    simulation = World()
    simulation.look()
    assert [port.pem for port in simulation.doors if port is not None] == [b"0", b"0"]
    assert simulation.webhooks == [0, 0, 0]


def test_many_renewals_lose_no_call_and_let_no_certificate_expire() -> None:
    simulation = World()
    for _ in range(20):
        for _ in range(36):
            simulation.live(10)
            simulation.check()
    assert int(simulation.newest.pem) >= 18
    assert simulation.changed_in_use == 0
    assert {int(pem) for _, pem in simulation.written[0]} & {int(pem) for _, pem in simulation.written[1]}


def test_between_renewals_both_ports_have_the_newest_certificate() -> None:
    simulation = World(newest=PortCertificate(b"0", START + 1000 * LIFE_SECONDS, START))
    simulation.live(1000)
    before = list(simulation.doors)
    simulation.live(1000)
    assert simulation.doors == before
    assert simulation.webhooks == [0, 0, 0]


def test_reapplied_webhooks_are_switched_to_one_port() -> None:
    simulation = World()
    simulation.live(400)
    simulation.live(400)
    assert set(simulation.webhooks) == {1}
    simulation.webhooks[1] = 0
    simulation.look()
    assert len(set(simulation.webhooks)) == 1


def test_expiring_certificate_is_abandoned_before_the_other_port_has_settled() -> None:
    simulation = World()
    simulation.live(100)
    simulation.now = START + LIFE_SECONDS - 30
    simulation.renew()
    simulation.look()
    assert set(simulation.webhooks) == {0}
    simulation.now += 11
    simulation.look()
    assert set(simulation.webhooks) == {1}


def test_expired_certificate_of_the_port_in_use_is_replaced_at_once() -> None:
    simulation = World()
    simulation.live(10)
    simulation.now = START + LIFE_SECONDS
    simulation.renew()
    simulation.look()
    assert [port.pem for port in simulation.doors if port is not None] == [b"1", b"1"]


def test_with_webhooks_elsewhere_both_ports_get_the_newest_certificate_at_once() -> None:
    simulation = World()
    simulation.look()
    simulation.renew()
    for _ in range(10):
        first, second = simulation.doors
        step = due(PortState(simulation.newest, (first, second), frozenset(), is_elsewhere=True), simulation.now)
        if step is None:
            break
        simulation.take(step)
    assert [port.pem for port in simulation.doors if port is not None] == [b"1", b"1"]
    assert simulation.webhooks == [0, 0, 0]


def test_webhooks_are_not_switched_if_one_leads_elsewhere() -> None:
    port = PortCertificate(b"0", START + LIFE_SECONDS, START, None)
    assert due(PortState(port, (port, port), frozenset({0, 1}), is_elsewhere=True), START) is None
    assert due(PortState(port, (port, port), frozenset({0, 1})), START) is not None


@examples(60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["killed", "applied", "live", "live"]), st.integers(0, 3), st.integers(1, 300)),
        max_size=15,
    )
)
def test_interruptions_lose_no_call(actions: list[tuple[str, int, int]]) -> None:
    """Nor if somebody applies a configuration as it was first, but while a certificate is on its way to both doors."""
    simulation = World()
    simulation.look()
    for action, parts, seconds in actions:
        if action == "killed" and (step := simulation.step()) is not None:
            simulation.take(step, parts)
        if action == "applied" and all(
            port is not None and port.pem == simulation.newest.pem for port in simulation.doors
        ):
            simulation.live(400)
            if simulation.newest.pem == simulation.seen[0] == simulation.seen[1]:
                simulation.webhooks[parts % 3] = 0
        simulation.live(seconds)
        simulation.check()
    assert simulation.changed_in_use == 0


@pytest.mark.parametrize("closed_at", [None, START + 1000])
def test_unused_port_is_recorded_with_the_current_time(closed_at: int | None) -> None:
    port = PortCertificate(b"0", START + LIFE_SECONDS, START, closed_at)
    step = due(PortState(port, (replace(port, closed_at=None), port), frozenset({0})), START)
    assert isinstance(step, WritePort)
    assert step.certificate.closed_at == START
