"""Beginning and end of overload, also for a simulated server that cannot carry its load."""

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from webhook.core.overload import SLICES, OverloadCause, OverloadDetector, OverloadLimits

LIMITS = OverloadLimits()
SLICE_US = LIMITS.window_us // SLICES
FAST_NS, SLOW_NS = 1_000_000, 1_200_000_000


class Stepped:
    """A detector and a clock that moves by slices."""

    def __init__(self) -> None:
        self.detector = OverloadDetector(LIMITS)
        self.now_us = 0
        self.trouble = ""

    def run_slice(self, *, fast: int = 0, slow: int = 0, failed: int = 0) -> list[str]:
        """Review this many Pods, end the slice, and return the causes."""
        for _ in range(fast):
            self.detector.count_review(FAST_NS, has_failed=False)
        for _ in range(slow):
            self.detector.count_review(SLOW_NS, has_failed=False)
        for _ in range(failed):
            self.detector.count_review(FAST_NS, has_failed=True)
        self.now_us += SLICE_US
        self.detector.advance(self.now_us, self.trouble)
        return sorted(self.detector.causes)

    def count_slices_until_over(self, **reviews: int) -> int:
        for count in range(1, 1000):
            if not self.run_slice(**reviews):
                return count
        pytest.fail("the overload does not end")


@pytest.mark.parametrize(
    ("reviews", "causes"),
    [
        ({"slow": 1}, []),
        ({"slow": 4}, []),
        ({"fast": 20, "slow": 5}, ["latency"]),
        ({"fast": 495, "slow": 5}, []),  # 1 %
        ({"fast": 494, "slow": 5}, ["latency"]),
        ({"failed": 4}, []),
        ({"fast": 95, "failed": 5}, []),  # 5 %
        ({"fast": 94, "failed": 5}, ["failures"]),
        ({"fast": 10, "slow": 5, "failed": 5}, ["failures", "latency"]),
        ({"fast": 100_000}, []),
        ({}, []),
    ],
)
def test_overload_needs_a_share_and_a_number_of_bad_reviews(reviews: dict[str, int], causes: list[str]) -> None:
    assert Stepped().run_slice(**reviews) == causes


def test_bad_reviews_of_the_whole_window_count_and_then_no_longer() -> None:
    stepped = Stepped()
    assert [stepped.run_slice(slow=1, fast=1) for _ in range(5)] == [[], [], [], [], ["latency"]]
    apart = Stepped()
    assert not any(apart.run_slice(slow=number % 3 == 0, fast=1) for number in range(100)), "four in each window"


def test_the_cause_is_told_with_its_figures() -> None:
    stepped = Stepped()
    stepped.run_slice(fast=50, slow=7)
    assert stepped.detector.causes == {
        OverloadCause.LATENCY: "P99 of reviews 1.2 s above 800 ms over 10 s",
    }
    failing = Stepped()
    failing.run_slice(fast=50, failed=50)
    assert failing.detector.causes == {OverloadCause.FAILURES: "50 % of reviews failed, above 5 %, over 10 s"}


def test_p99_is_that_of_all_reviews() -> None:
    detector = OverloadDetector(LIMITS)
    for milliseconds in [1] * 985 + [*range(1100, 2600, 100)]:
        detector.count_review(milliseconds * 1_000_000, has_failed=False)
    detector.advance(SLICE_US, "")
    # Of 1,000 reviews the 990th: 1,100 ms is the 986th.
    assert detector.causes[OverloadCause.LATENCY] == "P99 of reviews 1.5 s above 800 ms over 10 s"


def test_overload_ends_when_reviews_were_below_the_limits_for_a_window() -> None:
    stepped = Stepped()
    stepped.run_slice(fast=10, slow=10)
    # The slow reviews leave the window after ten slices; then it is calm for another ten.
    assert stepped.count_slices_until_over(fast=2) == 2 * SLICES
    assert not stepped.detector.is_busy


def test_one_slow_probe_prolongs_the_overload() -> None:
    stepped = Stepped()
    stepped.run_slice(fast=10, slow=10)
    assert all(stepped.run_slice(fast=2) for _ in range(15))
    stepped.run_slice(slow=1)
    assert stepped.count_slices_until_over(fast=2) == 2 * SLICES


def test_overload_ends_without_any_reviews() -> None:
    stepped = Stepped()
    stepped.run_slice(slow=10)
    assert stepped.count_slices_until_over() == 2 * SLICES


def test_overload_does_not_end_while_pods_are_gated_and_none_is_measured() -> None:
    stepped = Stepped()
    stepped.run_slice(slow=10)
    for _ in range(300):  # each probe takes longer than the window
        stepped.detector.takes_probe()
        assert stepped.run_slice()
    assert stepped.count_slices_until_over(fast=1) == SLICES + 1


def test_one_pod_of_ten_is_a_probe_and_one_in_two_slices() -> None:
    stepped = Stepped()
    stepped.run_slice(slow=10)
    assert sum(stepped.detector.takes_probe() for _ in range(1000)) == 100
    probed = []
    for _ in range(100):
        stepped.run_slice()
        probed.append(stepped.detector.takes_probe())
    assert sum(probed) == 50


def test_a_store_without_an_answer_is_shown_for_a_window_longer_and_gates_no_pod_by_itself() -> None:
    stepped = Stepped()
    stepped.trouble = "timeout"
    assert stepped.run_slice(fast=10) == ["store"]
    assert not stepped.detector.is_busy
    assert stepped.detector.causes[OverloadCause.STORE] == "the store does not respond: timeout"
    stepped.trouble = ""
    assert stepped.count_slices_until_over(fast=10) == SLICES + 1


def test_a_store_that_flaps_is_one_overload() -> None:
    stepped = Stepped()
    for number in range(100):
        stepped.trouble = "timeout" if number % 5 == 0 else ""
        assert stepped.run_slice(fast=10) == ["store"]


@dataclass
class SimulatedServer:
    """One processor that reviews in order of arrival; 256 calls at once. A gated Pod costs a twentieth."""

    full_us: int = 10_000
    gated_us: int = 500
    detector: OverloadDetector = field(default_factory=lambda: OverloadDetector(LIMITS))
    entered_s: list[float] = field(default_factory=list)
    left_s: list[float] = field(default_factory=list)
    gated: int = 0
    judged: int = 0
    refused: int = 0
    slowest_ns: int = 0
    free_us: int = 0
    finishing: deque[tuple[int, int]] = field(default_factory=deque)
    """When a review is finished, and how long it took if it is measured, else 0."""

    def run(self, seconds: int, pods_per_second: int, start_s: int = 0) -> None:
        every_us = 1_000_000 // pods_per_second
        next_us, end_us = start_s * 1_000_000, (start_s + seconds) * 1_000_000
        for slice_us in range(start_s * 1_000_000 + SLICE_US, end_us + 1, SLICE_US):
            while next_us < slice_us:
                self.finish(next_us)
                self.arrive(next_us)
                next_us += every_us
            self.finish(slice_us)
            was = bool(self.detector.causes)
            self.detector.advance(slice_us, "")
            if bool(self.detector.causes) != was:
                (self.left_s if was else self.entered_s).append(slice_us / 1e6)

    def arrive(self, now_us: int) -> None:
        if len(self.finishing) >= 256:
            self.refused += 1
            self.detector.count_review(0, has_failed=True)
            return
        is_gated = self.detector.is_busy and not self.detector.takes_probe()
        self.free_us = max(self.free_us, now_us) + (self.gated_us if is_gated else self.full_us)
        self.gated += is_gated
        self.judged += not is_gated
        self.finishing.append((self.free_us, 0 if is_gated else (self.free_us - now_us) * 1000))

    def finish(self, now_us: int) -> None:
        while self.finishing and self.finishing[0][0] <= now_us:
            _, duration_ns = self.finishing.popleft()
            if duration_ns:
                self.slowest_ns = max(self.slowest_ns, duration_ns)
                self.detector.count_review(duration_ns, has_failed=False)


def test_a_server_that_can_carry_its_load_gates_nothing() -> None:
    server = SimulatedServer()
    server.run(600, pods_per_second=90)
    assert (server.entered_s, server.gated, server.refused) == ([], 0, 0)


def test_after_a_burst_the_overload_ends() -> None:
    server = SimulatedServer()
    server.run(60, pods_per_second=50)
    server.run(60, pods_per_second=200, start_s=60)
    server.run(300, pods_per_second=50, start_s=120)
    assert server.entered_s[0] < 65
    assert len(server.left_s) == len(server.entered_s) == 2
    assert server.left_s[-1] <= 120


def test_twice_the_load_that_a_server_carries_does_not_make_it_oscillate() -> None:
    """Watch it for a quarter of an hour: in the end it is overloaded again every 95 seconds, and refuses few calls."""
    server, without = SimulatedServer(), SimulatedServer()
    server.run(900, pods_per_second=200)
    times = server.entered_s
    assert [round(after - before) for before, after in pairwise(times[3:])] == [95] * 8
    assert server.refused < 0.015 * 900 * 200
    without.detector = OverloadDetector(OverloadLimits(bad_min=10**9))
    without.run(900, pods_per_second=200)
    assert without.refused > 0.49 * 900 * 200, "without gating, half of all calls are refused"
