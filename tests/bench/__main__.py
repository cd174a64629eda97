"""`make bench`: reviews per server-CPU-second, as a ratio to an empty aiohttp handler measured in the same run.

Both serve TLS 1.3 with client certificates on uvloop; 16 keep-alive connections send the validating call of a typical
6 KB Pod, runs interleaved. The CPU is the server process's own, from the operating system: the client costs nothing.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

import uvloop

from tests.server.serving import Files, serving
from webhook.cli.apiserver import Ask, admission_review, as_sent_to_validate
from webhook.core.decision import Half

CONNECTIONS = 16
REQUESTS = 400
ROUNDS = 7
POD_BYTES = 6_000
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {namespaces: [payments]}
  placement:
    schedulerName: podgate-scheduler
    topology: [{level: Zone, in: [zone-b, zone-g]}]
    tolerations: [{key: dedicated, operator: Equal, value: payments, effect: NoSchedule}]
  quota: {windows: [{window: 1h, hard: {pods: 100000000, cpu: "100000000"}}]}
  breaker: {quotaExceeded: {count: 10, within: 1m}}
"""


def typical_pod() -> dict[str, object]:
    """Return a Pod as its policy wants it, of the size that Pods have."""
    zones = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-b", "zone-g"]}
    containers = [
        {
            "name": f"c{number}",
            "image": f"registry.example/payments/api-{number}:1.4.2",
            "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
            "env": [{"name": f"SETTING_{name}", "value": "x" * 40} for name in range(20)],
        }
        for number in range(3)
    ]
    pod: dict[str, object] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "payment-api-",
            "namespace": "payments",
            "labels": {"app": "payment-api", "podgate.io/service": "payment-api"},
            "annotations": {"podgate.io/policy-hash": "", "padding": ""},
        },
        "spec": {
            "schedulerName": "podgate-scheduler",
            "containers": containers,
            "tolerations": [
                {"key": "dedicated", "operator": "Equal", "value": "payments", "effect": "NoSchedule"},
            ],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [zones]}]
                    }
                }
            },
        },
    }
    annotations = pod["metadata"]["annotations"]  # type: ignore[index]
    annotations["padding"] = "x" * max(0, POD_BYTES - len(json.dumps(pod)))
    return pod


def requests(token: str, policy_hash: str, prefix: str) -> list[bytes]:
    """Return whole HTTP requests, each with a uid of its own, rendered before anything is measured."""
    pod = typical_pod()
    pod["metadata"]["annotations"]["podgate.io/policy-hash"] = policy_hash  # type: ignore[index]
    rendered = []
    for number in range(REQUESTS):
        ask = Ask(pod, "payments", f"{prefix}-{number}", "system:serviceaccount:kube-system:replicaset-controller")
        body = json.dumps(admission_review(ask, as_sent_to_validate(ask, pod), Half.VALIDATE)).encode()
        head = (
            f"POST /validate?timeout=10s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        rendered.append(head.encode() + body)
    return rendered


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"error: {head!r}")
    length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
    return await reader.readexactly(int(length.split(b":")[1]))


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process; Linux."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


class Target:
    """One server, its open connections, and what a round costs it."""

    def __init__(self, name: str, pid: int, files: Files, policy_hash: str) -> None:
        self.name = name
        self.per_cpu_second: list[float] = []
        self._pid = pid
        self._files = files
        self._hash = policy_hash
        self._connections: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def connect(self, address: str) -> None:
        host, port = address.split(":")
        context = self._files.pki.context(self._files.caller)
        for _ in range(CONNECTIONS):
            pair = await asyncio.open_connection(host, int(port), ssl=context, server_hostname="localhost")
            self._connections.append(pair)

    async def round(self, number: int) -> None:
        token = self._files.signer.token()
        work = [requests(token, self._hash, f"{self.name}-{number}-{index}") for index in range(len(self._connections))]
        before = cpu_seconds(self._pid)
        answers = await asyncio.gather(
            *(self._send(*pair, mine) for pair, mine in zip(self._connections, work, strict=True))
        )
        spent = cpu_seconds(self._pid) - before
        if any(b'"allowed":true' not in answer for answer in answers):
            raise SystemExit(f"error: {self.name} answered {answers[0]!r}")
        self.per_cpu_second.append(len(work) * REQUESTS / spent)

    async def _send(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mine: list[bytes]) -> bytes:
        answer = b""
        for request in mine:
            answer = await exchange(reader, writer, request)
        return answer


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder:
        files = Files.create(Path(folder), POLICY)
        empty = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.empty", folder, stdout=asyncio.subprocess.PIPE
        )
        assert empty.stdout is not None
        try:
            empty_address = (await empty.stdout.readline()).decode().strip()
            async with serving(files, "--log-sample", "100") as running:
                policy_hash = json.loads((await running.get("/status"))[1])["policy"]["hash"]
                targets = [
                    Target("podgate", running.process.pid, files, policy_hash),
                    Target("empty aiohttp handler", empty.pid, files, policy_hash),
                ]
                await targets[0].connect(running.admission)
                await targets[1].connect(empty_address)
                for number in range(ROUNDS + 1):
                    for target in targets:
                        await target.round(number)
                report(targets)
        finally:
            empty.terminate()
            await empty.wait()


def report(targets: list[Target]) -> None:
    """Print medians with spread; the first round only warms up."""
    for target in targets:
        kept = target.per_cpu_second[1:]
        print(f"{target.name:24} {statistics.median(kept):8.0f} reviews per server-CPU-second  ({_spread(kept)})")
    ratios = [a / b for a, b in zip(*(target.per_cpu_second[1:] for target in targets), strict=True)]
    print(f"{'ratio':24} {statistics.median(ratios):8.2f}  ({_spread(ratios)})")


def _spread(values: list[float]) -> str:
    return f"{min(values):.4g} to {max(values):.4g}, {len(values)} rounds of {CONNECTIONS * REQUESTS}"


uvloop.run(main())
