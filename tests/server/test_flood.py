"""A thousand stalling clients and a flood of bad calls at once: valid callers are not affected.

`make soak` attacks with hundreds of clients of each kind for a minute, and checks times and memory beside an idle
spinner; `make test` checks answers and state only, and `make check` the same with fewer clients. The flood uses its own
addresses: valid clients behind the same address (a proxy, one node) would share its queue for new connections, and
could be cut.
"""

import asyncio
import os
import statistics
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from pathlib import Path

import pytest

from tests.authentication.secret_path import SECRET, Reduced, run_reduced_server
from tests.cluster.manifests import deployment
from tests.harness.attackers import Attack, run_attack
from tests.harness.identity import Signer
from tests.harness.raw_http import BODY, eventually, format_length, head, line, status
from tests.harness.server_process import TREE, Files, Serving, resident_bytes, run_server
from tests.harness.stall_meter import Gaps, run_spinner

SOAK = os.environ.get("PODGATE_TEST_FLOOD", "") == "soak"
IS_SHORT = "PODGATE_TEST_SHORT" in os.environ
STALLED, DRIPPING, BAD, SECONDS = (500, 500, 50, 60.0) if SOAK else (500, 500, 20, 5.0)
if IS_SHORT:
    STALLED, DRIPPING, BAD, SECONDS = 290, 290, 5, 1.0  # above the largest limit of connections
CALLS_A_SECOND = 100
CALLERS = 8
MIN_CALLS = 5
"""Of each caller with a kept connection, even on an overloaded machine."""
ATTACKER_ADDRESSES = [f"127.0.1.{number}" for number in range(1, 9)]
NEW_CONNECTIONS_A_SECOND = 5
MUTUAL, REDUCED = "mutual", "reduced"
REASONS = {
    MUTUAL: ("connection_limit", "authentication_signature", "authentication_expired"),
    REDUCED: ("connection_limit", "authentication_path"),
}
BAD_CALL_ANSWERS = {MUTUAL: {"bad 401", "bad 403"}, REDUCED: {"bad 404"}}
SETTLE_SECONDS = 60.0

FIRST_FLOOD_SECONDS = 10.0
"""Of a first flood: the memory after the second one is compared with the memory after this one."""

P50_RATIO_MAX = 1.5
RSS_RATIO_MAX = 1.1
NEW_CONNECTION_P95_SECONDS_MAX = 0.5
"""Connect, handshake and review, on a machine shared with the attackers: a lost SYN alone takes 1 s."""

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="looks at memory in /proc")


class GoodCallers:
    """Valid callers: some keep their connection as the API server does, others connect for each call."""

    def __init__(self, server: Serving) -> None:
        self._server = server
        self._call = good_head(server, format_length()) + BODY
        self.answers: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.new_connection_seconds: list[float] = []

    async def call_for(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        await asyncio.gather(
            *(self._call_on_kept_connection(ends_at) for _ in range(CALLERS)),
            *(self._call_on_new_connections(ends_at) for _ in range(NEW_CONNECTIONS_A_SECOND)),
        )

    async def _call_on_kept_connection(self, ends_at: float) -> None:
        calls = count()
        async with line(self._server) as connection:
            while next(calls) < MIN_CALLS or time.monotonic() < ends_at:
                started = time.perf_counter()
                connection.send(self._call)
                answer = await connection.answer()
                self.seconds.append(time.perf_counter() - started)
                self.answers[f"kept {status(answer)}"] += 1
                if b"Connection: close" in answer:
                    break
                await asyncio.sleep(CALLERS / CALLS_A_SECOND)

    async def _call_on_new_connections(self, ends_at: float) -> None:
        while time.monotonic() < ends_at:
            started = time.perf_counter()
            try:
                async with line(self._server) as connection:
                    connection.send(self._call)
                    self.answers[f"new {status(await connection.answer())}"] += 1
                self.new_connection_seconds.append(time.perf_counter() - started)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.answers[f"new {type(error).__name__}"] += 1
            await asyncio.sleep(1)


@asynccontextmanager
async def run_flooded_server(mode: str, folder: Path) -> AsyncIterator[Serving]:
    """Run a server in its own interpreter, so that its memory can be measured."""
    if mode == REDUCED:
        running = run_reduced_server(folder, "--drain", "1s", tree=TREE)
    else:
        running = run_server(Files.create(folder), "--drain", "1s", tree=TREE)
    async with running as server:
        await server.get("/metrics")  # the first scrape loads the OpenTelemetry SDK, whose memory is not the flood's
        yield server


def good_head(server: Serving, size: str) -> bytes:
    if isinstance(server.files, Reduced):
        return head(server, size, start=f"POST /{SECRET}/mutate HTTP/1.1", token="")
    return head(server, size)


def bad_heads(server: Serving, size: str) -> list[bytes]:
    files = server.files
    if isinstance(files, Reduced):
        return [head(server, size, start=f"POST {path}/mutate HTTP/1.1", token="") for path in ("", f"/{SECRET[:-1]}")]
    unknown_signer, signer = Signer(), files.signer
    tokens = [
        "x" * 8000,
        unknown_signer.token(),
        Signer(kid=signer.jwk()["kid"]).token(),
        signer.token(exp=1),
        signer.token(aud="another"),
        files.other.token(client_id="prober"),
    ]
    return [head(server, size, token=token) for token in tokens]


def attack_on(server: Serving) -> Attack:
    files = server.files
    stem = files.pki.folder / f"{files.caller.certificate.serial_number:x}"
    files.pki.context(files.caller)  # writes the files, which no caller may have written yet
    host, port = server.admission.split(":")
    size = "Content-Length: 10000"
    return Attack(
        sources=ATTACKER_ADDRESSES,
        host=host,
        port=int(port),
        certificate=str(stem.with_suffix(".crt")),
        key=str(stem.with_suffix(".key")),
        good_head=good_head(server, size).decode(),
        bad_heads=[bad.decode() for bad in bad_heads(server, size)],
        stalled=STALLED,
        dripping=DRIPPING,
        bad=BAD,
        wanted=["stalled cut", *BAD_CALL_ANSWERS[REDUCED if isinstance(files, Reduced) else MUTUAL]],
    )


def rss_bytes(server: Serving) -> int:
    return resident_bytes(server.process.pid)


def descriptors(server: Serving) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


async def peak_while(server: Serving, task: "asyncio.Task[None]") -> int:
    """Return the peak of the memory until a task is done."""
    peak = rss_bytes(server)
    while not task.done():
        await asyncio.wait((task,), timeout=0.5)
        peak = max(peak, rss_bytes(server))
    await task
    return peak


@pytest.mark.parametrize("mode", [MUTUAL, REDUCED])
async def test_valid_calls_are_answered_during_a_flood_and_its_resources_are_freed(tmp_path: Path, mode: str) -> None:
    async with run_flooded_server(mode, tmp_path) as server:
        await GoodCallers(server).call_for(0.2 if IS_SHORT else 2)
        baseline, under_flood = GoodCallers(server), GoodCallers(server)
        baseline_gaps = flood_gaps = Gaps()
        async with AsyncExitStack() as stack:
            if SOAK:
                async with run_attack(attack_on(server)):
                    await GoodCallers(server).call_for(FIRST_FLOOD_SECONDS)
                async with run_spinner() as baseline_gaps:
                    await baseline.call_for(SECONDS)
                flood_gaps = await stack.enter_async_context(run_spinner())
            before, open_before = rss_bytes(server), descriptors(server)
            answers = await stack.enter_async_context(run_attack(attack_on(server)))
            peak = await peak_while(server, asyncio.create_task(under_flood.call_for(SECONDS)))
            for reason in REASONS[mode]:
                await server.wait_for_metric(f'podgate_refused_calls_total{{reason="{reason}"}}', 1)
        ended_at = time.monotonic()
        assert set(under_flood.answers) == {"kept 200", "new 200"}, under_flood.answers
        assert under_flood.answers["kept 200"] >= CALLERS * MIN_CALLS
        assert {"stalled cut", *BAD_CALL_ANSWERS[mode]} <= set(answers), answers
        assert not {answer for answer in answers if answer.endswith(" 200")}
        await eventually(lambda: _is_at_most(descriptors, server, open_before + 5))
        await eventually(lambda: _is_at_most(rss_bytes, server, peak - 1))
        if SOAK:
            await asyncio.sleep(ended_at + SETTLE_SECONDS - time.monotonic())
            check_flood((baseline, baseline_gaps), (under_flood, flood_gaps), (before, peak, rss_bytes(server)))


@pytest.mark.parametrize("mode", [MUTUAL, REDUCED])
async def test_endless_headers_on_all_connections_stay_below_the_memory_limit(tmp_path: Path, mode: str) -> None:
    """Send as much as the server keeps on all connections, then as much as aiohttp alone would keep."""
    fields = [b"X-%d: %b\r\n" % (number, b"x" * 16_000) for number in range(62)]
    async with run_flooded_server(mode, tmp_path) as server, AsyncExitStack() as stack:
        connections_max = 512 if mode == MUTUAL else 128
        connections = [await stack.enter_async_context(line(server)) for _ in range(connections_max)]
        connections += [await stack.enter_async_context(line(server, plain=True)) for _ in range(60)]
        for part in (fields[:3], fields[3:]):
            for connection in connections:
                connection.send(b"POST / HTTP/1.1\r\nHost: podgate\r\n" if part[0] is fields[0] else b"", *part)
                with suppress(OSError):
                    await connection.writer.drain()
        answers = await asyncio.gather(*(connection.rest() for connection in connections))
        assert peak_rss_bytes(server) < memory_limit_bytes(mode)
        assert {status(answer) for answer in answers if answer} == {400}
        async with line(server) as good:
            good.send(good_head(server, format_length()), BODY)
            assert status(await good.answer()) == 200


def peak_rss_bytes(server: Serving) -> int:
    memory = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(memory.partition("VmHWM:")[2].split()[0]) << 10


def memory_limit_bytes(mode: str) -> int:
    [container] = deployment("base" if mode == MUTUAL else "overlays/reduced")["spec"]["template"]["spec"]["containers"]
    return int(container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20


async def _is_at_most(measure: Callable[[Serving], int], server: Serving, limit: int) -> bool:
    return measure(server) <= limit


def check_flood(
    baseline: tuple[GoodCallers, Gaps], under_flood: tuple[GoodCallers, Gaps], rss: tuple[int, int, int]
) -> None:
    """Print the durations of valid calls and the memory of the server, and check their limits.

    The average delay of the spinner shows how much the load of the machine adds to each duration.
    """
    p50 = []
    for name, (good, gaps) in (("without", baseline), ("in the flood", under_flood)):
        p50.append(statistics.median(good.seconds))
        late_seconds = sum(gaps.seconds) / (SECONDS / 0.001)
        print(f"{name}: p50 {p50[-1] * 1e3:.2f} ms of {len(good.seconds)}, spinner {late_seconds * 1e3:.2f} ms late")  # noqa: T201  a measurement is for people
    before, peak, after = rss
    new_connections = sorted(under_flood[0].new_connection_seconds)
    p95 = new_connections[len(new_connections) * 95 // 100]
    print(f"new connections: p95 {p95 * 1e3:.0f} ms, at most {new_connections[-1] * 1e3:.0f} ms")  # noqa: T201  a measurement is for people
    print(f"RSS: {before >> 20} MiB before, {peak >> 20} at its peak, {after >> 20} a minute later")  # noqa: T201  a measurement is for people
    assert p50[1] <= P50_RATIO_MAX * p50[0] + late_seconds
    assert p95 <= NEW_CONNECTION_P95_SECONDS_MAX
    assert after <= RSS_RATIO_MAX * before
