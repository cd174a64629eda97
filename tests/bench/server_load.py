"""Servers under the same load, in turns: CPU per call, as the operating system counts it."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.traffic import Traffic
from tests.harness.server_process import Files

CONNECTIONS = 16
_CPU_OF_PROCESS = 2
"""CPUCLOCK_SCHED: user and system time of all threads of a process, to the nanosecond."""

_WIDTH = 46

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def cpu_seconds(pid: int) -> float:
    """Return user and system time of another process: Linux' clock_getcpuclockid(3), which Python does not have."""
    return time.clock_gettime((~pid << 3) | _CPU_OF_PROCESS)


@dataclass
class Target:
    """One server under one kind of calls, its keep-alive connections, and what the rounds have cost it."""

    name: str
    pid: int
    address: str
    traffic: Traffic
    connections: list[Connection] = field(default_factory=list)
    per_cpu_second: list[float] = field(default_factory=list)

    async def connect(self, files: Files) -> None:
        host, port = self.address.split(":")
        context = files.pki.context(files.caller)
        for _ in range(CONNECTIONS):
            pair = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost")
            self.connections.append(pair)

    async def round(self, count: int, token: str) -> int:
        """Send that many calls, shared out to the connections, one at a time on each; return how many it admitted."""
        calls = self.traffic.calls(count, token)
        shares = [calls[index::CONNECTIONS] for index in range(CONNECTIONS)]
        before = cpu_seconds(self.pid)
        admitted = await asyncio.gather(
            *(send(pair, share) for pair, share in zip(self.connections, shares, strict=True))
        )
        self.per_cpu_second.append(count / (cpu_seconds(self.pid) - before))
        return sum(admitted)

    def close(self) -> None:
        for _, writer in self.connections:
            writer.close()


async def send(connection: Connection, calls: Sequence[bytes]) -> int:
    """Make calls on a connection, one after another; return how many of the Pods were admitted."""
    reader, writer = connection
    admitted = 0
    for call in calls:
        writer.write(call)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        answer = await reader.readexactly(int(length.split(b":")[1]))
        allowed = b'"allowed":true' in answer
        if not head.startswith(b"HTTP/1.1 200") or not (allowed or b"QuotaExceeded" in answer):
            raise SystemExit(f"error: answered {head!r} {answer!r}")
        admitted += allowed
    return admitted


async def take_turns(targets: Sequence[Target], files: Files, rounds: int, calls: int) -> None:
    """Measure; who goes first changes from round to round. Two rounds come before, in which caches and pools fill.

    So do quotas: from then on every Pod is admitted, or every Pod refused, as the traffic is meant to be.
    """
    for number in range(rounds + 2):
        token = files.signer.token()
        for target in targets if number % 2 else reversed(targets):
            if not target.connections:  # not before: servers do not wait long for a connection's first call
                await target.connect(files)
            admitted = await target.round(calls, token)
            if number >= 2 and admitted != (calls if target.traffic.fits else 0):
                raise SystemExit(f"error: {target.name}: admitted {admitted} of {calls}")
    for target in targets:
        del target.per_cpu_second[:2]


def report(targets: Sequence[Target]) -> list[str]:
    """Return a line for each: its reviews per CPU-second."""
    return [line(target.name, target.per_cpu_second, ".0f") for target in targets]


def ratio(own: Target, other: Target) -> str:
    """Return a line: so many times the other's reviews per CPU-second, taken round by round."""
    pairs = zip(own.per_cpu_second, other.per_cpu_second, strict=True)
    return line(f"  {own.name}", [mine / theirs for mine, theirs in pairs], ".2f")


def line(name: str, values: Sequence[float], form: str) -> str:
    """Return a line: the median, and from where to where it went."""
    shown = (statistics.median(values), min(values), max(values))
    median, lowest, highest = (format(value, form) for value in shown)
    return f"{name:{_WIDTH}} {median:>7}  (from {lowest} to {highest})"
