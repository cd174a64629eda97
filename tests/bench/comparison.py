"""Comparison of servers in interleaved rounds: CPU time and latency per Pod."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp

from tests.bench.calls import Caller
from tests.bench.generator import Call, Credentials, Load, Measured, generate
from tests.bench.scenario import Scenario
from tests.bench.servers import SERVER, Target
from tests.bench.spread import Spread
from tests.harness.server_process import Files


@dataclass
class Row:
    """A server in a scenario, with the measurements of its rounds."""

    target: Target
    scenario: Scenario
    rounds: list[Measured] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)

    @property
    def cpu_us(self) -> list[float]:
        """Return the server's CPU time per Pod, by round."""
        return [measured.cpu_us(SERVER) for measured in self.rounds]

    @property
    def p50_us(self) -> list[float]:
        """Return the median latency, by round."""
        return [measured.latency_us.p50 for measured in self.rounds]

    def ratio(self, other: "Row") -> Spread:
        """Return the ratio of CPU time per Pod to that of another row."""
        return Spread.from_ratios(self.cpu_us, other.cpu_us)

    def p50_ratio(self, other: "Row") -> Spread:
        """Return the ratio of the median latency to that of another row."""
        return Spread.from_ratios(self.p50_us, other.p50_us)


@dataclass(frozen=True)
class Bench:
    """Settings of all rounds."""

    generator: Path
    files: Files
    rounds: int
    seconds: float
    warm_up_seconds: float
    seconds_at_a_rate: float
    """Longer than `seconds`, because a low rate yields few latencies."""

    async def measure(self, rows: Sequence[Row]) -> None:
        """Measure all rows in each round; the order alternates."""
        async with aiohttp.ClientSession() as session:
            for row in rows:
                row.calls = await Caller(session, self.files, row.target).calls(row.scenario)
        for number in range(self.rounds):
            for row in rows if number % 2 else reversed(rows):
                row.rounds.append(await self._turn(row))

    async def _turn(self, row: Row) -> Measured:
        scenario = row.scenario
        load = Load(
            warm_up_seconds=self.warm_up_seconds,
            seconds=self.seconds_at_a_rate if scenario.rate else self.seconds,
            rate=scenario.rate,
            new_connections=scenario.new_connections,
            connections=1 if scenario.new_connections else scenario.connections,
        )
        target, credentials = row.target, Credentials.from_files(self.files)
        try:
            return await generate(self.generator, credentials, target.addresses, row.calls, load, target.processes)
        except SystemExit as error:
            raise SystemExit(f"{error} ({row.target.name}, {scenario.name})") from None
