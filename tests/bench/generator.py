"""Runs of the load generator: plan and measurements."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.bench.cpu import GENERATOR_CORE, pin_to
from tests.bench.traffic import POD_UID, REVIEW_UID
from tests.harness.server_process import Files
from webhook.commands.simulator import GENERATED_SUFFIX


class Expect(msgspec.Struct, frozen=True):
    """The expected response."""

    echoes_uid: bool
    allowed: bool
    patch: bool
    text: str
    created: bool = False
    """By the API server, which answers with the Pod."""


class Call(msgspec.Struct, frozen=True):
    """A call for each Pod; its bodies alternate."""

    path: str
    bodies: Sequence[str]
    expect: Expect
    traceparent: str = ""
    """Header of all calls, if not empty."""


class Credentials(msgspec.Struct, frozen=True):
    """Files and token by which the generator calls a server."""

    ca: str
    certificate: str
    key: str
    token: str = ""

    @classmethod
    def from_files(cls, files: Files) -> "Credentials":
        """Return those of the API server at a webhook."""
        certificate, key = files.pki.client_files(files.caller)
        return cls(str(files.pki.paths.client_ca), str(certificate), str(key), files.signer.token())


@dataclass(frozen=True)
class Load:
    """Duration, rate and connections."""

    warm_up_seconds: float
    seconds: float
    rate: int = 0
    new_connections: bool = False
    connections: int = 1


class Latency(msgspec.Struct, frozen=True):
    p50: float
    p90: float
    p99: float
    max: float


class Measured(msgspec.Struct, frozen=True):
    """Measurements of the Pods that were answered in the window; `cpu_seconds` is by group of processes."""

    count: int
    seconds: float
    latency_us: Latency
    cpu_seconds: dict[str, float]

    def cpu_us(self, group: str) -> float:
        """Return the CPU time of a group of processes per Pod."""
        return self.cpu_seconds.get(group, 0.0) * 1e6 / self.count

    def share(self, group: str) -> float:
        """Return the share of a core that a group of processes used."""
        return self.cpu_seconds.get(group, 0.0) / self.seconds


async def generate(
    program: Path,
    credentials: Credentials,
    addresses: Sequence[str],
    calls: Sequence[Call],
    load: Load,
    processes: Mapping[str, Sequence[int]],
) -> Measured:
    """Send load to a server, or in turn to several; an unexpected response ends the benchmark."""
    plan = {
        "addresses": addresses,
        "credentials": credentials,
        "connections": load.connections,
        "new_connections": load.new_connections,
        "rate": load.rate,
        "warm_up_seconds": load.warm_up_seconds,
        "seconds": load.seconds,
        "processes": processes,
        "placeholders": {"review_uid": REVIEW_UID, "pod_uid": POD_UID, "suffix": GENERATED_SUFFIX},
        "calls": calls,
    }
    with pin_to(GENERATOR_CORE):
        process = await asyncio.create_subprocess_exec(
            program, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
    output, errors = await process.communicate(msgspec.json.encode(plan))
    if process.returncode != 0:
        raise SystemExit(f"error: {errors.decode().removeprefix('error: ').strip()}")
    return msgspec.json.decode(output, type=Measured)
