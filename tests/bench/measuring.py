"""Servers under the same load, in turns: what a call costs each of them in CPU, as the operating system counts it."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.bench.traffic import Traffic
from tests.server.serving import Files

CONNECTIONS = 16
_CPU_OF_PROCESS = 2
"""CPUCLOCK_SCHED: user and system time of all threads of a process, to the nanosecond."""

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def cpu_seconds(pid: int) -> float:
    """Return user and system time of another process: Linux' clock_getcpuclockid(3), which Python does not have."""
    return time.clock_gettime((~pid << 3) | _CPU_OF_PROCESS)


@dataclass
class Target:
    """One server, its keep-alive connections, and what the rounds have cost it."""

    name: str
    pid: int
    connections: list[Connection] = field(default_factory=list)
    per_cpu_second: list[float] = field(default_factory=list)

    async def connect(self, address: str, files: Files) -> None:
        host, port = address.split(":")
        context = files.pki.context(files.caller)
        for _ in range(CONNECTIONS):
            pair = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost")
            self.connections.append(pair)

    async def round(self, calls: Sequence[bytes]) -> None:
        """Send `calls`, shared out to the connections; one at a time on each."""
        shares = [calls[index::CONNECTIONS] for index in range(CONNECTIONS)]
        before = cpu_seconds(self.pid)
        await asyncio.gather(*(_send(pair, share) for pair, share in zip(self.connections, shares, strict=True)))
        self.per_cpu_second.append(len(calls) / (cpu_seconds(self.pid) - before))

    def close(self) -> None:
        for _, writer in self.connections:
            writer.close()


async def _send(connection: Connection, calls: Sequence[bytes]) -> None:
    reader, writer = connection
    for call in calls:
        writer.write(call)
        head = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        answer = await reader.readexactly(int(length.split(b":")[1]))
        if not head.startswith(b"HTTP/1.1 200") or b'"allowed":true' not in answer:
            raise SystemExit(f"error: answered {head!r} {answer!r}")


async def take_turns(targets: Sequence[Target], traffic: Traffic, files: Files, rounds: int, calls: int) -> None:
    """Measure; who goes first changes from round to round. Two rounds come before, in which caches and pools fill."""
    for number in range(rounds + 2):
        token = files.signer.token()
        for target in targets if number % 2 else reversed(targets):
            await target.round(traffic.calls(calls, token))
    for target in targets:
        del target.per_cpu_second[:2]


def report(targets: Sequence[Target], baseline: Target) -> list[str]:
    """Return a line for each server, and one for its ratio to `baseline`, round by round."""
    lines = [_line(target.name, target.per_cpu_second, ".0f") for target in (*targets, baseline)]
    for target in targets:
        pairs = zip(target.per_cpu_second, baseline.per_cpu_second, strict=True)
        lines.append(_line(f"ratio: {target.name}", [own / other for own, other in pairs], ".2f"))
    return lines


def _line(name: str, values: Sequence[float], form: str) -> str:
    shown = (statistics.median(values), min(values), max(values))
    median, lowest, highest = (format(value, form) for value in shown)
    return f"{name:32} {median:>7}  (from {lowest} to {highest})"
