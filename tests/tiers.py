"""Durations of a run by tier, with the budget and the completeness of each tier."""

import time
from collections.abc import Generator
from dataclasses import dataclass
from os import times
from pathlib import Path

import pytest

from tests.cluster.processes import sum_cpu_seconds
from tests.harness.fork_server import ForkedProcess


@dataclass
class Tier:
    """Test folders with their durations in a run, and their budget in CPU seconds.

    The budgets add up to 13 minutes on two fast cores; slow ones take three times as long.
    """

    name: str
    folders: tuple[str, ...]
    budget_seconds: int
    tests: int = 0
    skipped: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.name:<12} {self.tests:>6} tests {self.seconds:>7.0f} s"
            f" {self.cpu_seconds:>7.0f} s of CPU, of {self.budget_seconds} s"
        )


_SLOWEST_TESTS_MAX = 50
_CPU = "cpu_seconds"


class Tiers:
    """Plugin of the process that collects all reports: sums durations by tier, and lists the slowest tests."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.tiers = [
            Tier("pure", ("architecture", "core", "reviews", "contract", "simulation"), 150),
            Tier("cluster", ("chaos", "cluster", "compose", "scheduling"), 900),
            Tier("processes", (), 420),  # all other folders
        ]
        self.durations: dict[str, float] = {}
        self.started = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folder = report.nodeid.split("/")[1] if "/" in report.nodeid else ""
        tier = next((candidate for candidate in self.tiers if folder in candidate.folders), self.tiers[-1])
        self.durations[report.nodeid] = self.durations.get(report.nodeid, 0.0) + report.duration
        tier.seconds += report.duration
        tier.cpu_seconds += sum(value for name, value in report.user_properties if name == _CPU)
        tier.tests += report.when == "call"
        tier.skipped += report.skipped

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run with --all-tiers that skipped a test or ran none of a tier."""
        if self.config.getoption("--all-tiers") and session.exitstatus == pytest.ExitCode.OK and self.list_incomplete():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self.config.getoption("--all-tiers"):
            terminalreporter.section(f"tiers, {time.monotonic() - self.started:.0f} s in all")
            for line in [*map(str, self.tiers), *self.list_incomplete()]:
                terminalreporter.write_line(line)
        xml = self.config.getoption("xmlpath")
        if xml:
            Path(xml).with_suffix(".txt").write_text("\n".join([*map(str, self.tiers), *self.list_slowest()]) + "\n")

    def list_incomplete(self) -> list[str]:
        """Return an error line for each incomplete tier."""
        return [
            f"error: {tier.name}: {tier.skipped} tests skipped, {tier.tests} run"
            for tier in self.tiers
            if tier.skipped or not tier.tests
        ]

    def list_slowest(self) -> list[str]:
        ordered = sorted(self.durations.items(), key=lambda item: -item[1])
        return [f"{seconds:7.1f} s {nodeid}" for nodeid, seconds in ordered[:_SLOWEST_TESTS_MAX]]


class Cpu:
    """Plugin of a process that runs tests: records the CPU time of each test, and of background processes beside it.

    A process that is not one of `Processes` counts for the test in which it ends.
    """

    def __init__(self) -> None:
        self._before = _cpu_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.when == "teardown":
            now = _cpu_seconds()
            report.user_properties.append((_CPU, round(now - self._before, 3)))
            self._before = now
        return report


def _cpu_seconds() -> float:
    return sum(times()[:4]) + ForkedProcess.cpu_seconds + sum_cpu_seconds()
