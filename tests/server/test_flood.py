"""A thousand stalling clients and a flood of bad calls at once: valid callers are not affected.

`make soak` attacks with hundreds of each kind for a minute, and looks at times and memory beside an idle spinner; the
short form looks at order and state only. The flood comes from addresses of its own: behind one address with those who
call well (a proxy, one node) newcomers would wait in the same line, and may be cut in it.
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
import yaml

from tests.authentication.test_secret_path import SECRET, Reduced, reduced
from tests.harness.attackers import Attack, attacking
from tests.harness.identity import Signer
from tests.harness.raw_http import BODY, eventually, head, line, sized, status
from tests.harness.server_process import TREE, Files, Serving, serving
from tests.harness.stall_meter import Gaps, spinning

SOAK = os.environ.get("PODGATE_TEST_FLOOD", "") == "soak"
STALLED, DRIPPING, BAD, SECONDS = (500, 500, 50, 60.0) if SOAK else (500, 500, 20, 5.0)
CALLS_A_SECOND = 100
CALLERS = 8
CALLS_LEAST = 5
"""Of each caller that stays, however little time a starved machine gives it."""
STRANGERS = [f"127.0.1.{number}" for number in range(1, 9)]
NEWCOMERS_A_SECOND = 5
MUTUAL, REDUCED = "mutual", "reduced"
REASONS = {
    MUTUAL: ("connection_limit", "authentication_signature", "authentication_expired"),
    REDUCED: ("connection_limit", "authentication_path"),
}
BAD_ARE_TOLD = {MUTUAL: {"bad 401", "bad 403"}, REDUCED: {"bad 404"}}
AFTERWARDS_SECONDS = 60.0

BEFORE_SECONDS = 10.0
"""Of the flood before: memory is compared with that of a server which has been through one."""

P50_TIMES_MOST = 1.5
RSS_TIMES_MOST = 1.1
NEWCOMER_P95_SECONDS_MOST = 0.5
"""With connecting, handshake and review, on a machine that the attackers share: a lost SYN alone takes 1 s."""

pytestmark = pytest.mark.skipif(not Path("/proc").exists(), reason="looks at memory in /proc")


class Good:
    """Callers that hold their connections as the API server does, and some who come anew each time."""

    def __init__(self, server: Serving) -> None:
        self._server = server
        self._call = good_head(server, sized()) + BODY
        self.answers: Counter[str] = Counter()
        self.seconds: list[float] = []
        self.newcomers_seconds: list[float] = []

    async def call_for(self, seconds: float) -> None:
        ends_at = time.monotonic() + seconds
        await asyncio.gather(
            *(self._stay(ends_at) for _ in range(CALLERS)), *(self._come(ends_at) for _ in range(NEWCOMERS_A_SECOND))
        )

    async def _stay(self, ends_at: float) -> None:
        calls = count()
        async with line(self._server) as one:
            while next(calls) < CALLS_LEAST or time.monotonic() < ends_at:
                started = time.perf_counter()
                one.send(self._call)
                answer = await one.answer()
                self.seconds.append(time.perf_counter() - started)
                self.answers[f"stayed {status(answer)}"] += 1
                if b"Connection: close" in answer:
                    break
                await asyncio.sleep(CALLERS / CALLS_A_SECOND)

    async def _come(self, ends_at: float) -> None:
        while time.monotonic() < ends_at:
            started = time.perf_counter()
            try:
                async with line(self._server) as one:
                    one.send(self._call)
                    self.answers[f"came {status(await one.answer())}"] += 1
                self.newcomers_seconds.append(time.perf_counter() - started)
            except (OSError, asyncio.IncompleteReadError) as error:
                self.answers[f"came {type(error).__name__}"] += 1
            await asyncio.sleep(1)


@asynccontextmanager
async def flooded(mode: str, folder: Path) -> AsyncIterator[Serving]:
    """Run a server of which the memory is measured: in an interpreter of its own."""
    if mode == REDUCED:
        running = reduced(folder, "--drain", "1s", tree=TREE)
    else:
        running = serving(Files.create(folder), "--drain", "1s", tree=TREE)
    async with running as server:
        yield server


def good_head(server: Serving, size: str) -> bytes:
    if isinstance(server.files, Reduced):
        return head(server, size, start=f"POST /{SECRET}/mutate HTTP/1.1", token="")
    return head(server, size)


def bad_heads(server: Serving, size: str) -> list[bytes]:
    files = server.files
    if isinstance(files, Reduced):
        return [head(server, size, start=f"POST {path}/mutate HTTP/1.1", token="") for path in ("", f"/{SECRET[:-1]}")]
    stranger, signer = Signer(), files.signer
    tokens = [
        "x" * 8000,
        stranger.token(),
        Signer(kid=signer.jwk()["kid"]).token(),
        signer.token(exp=1),
        signer.token(aud="another"),
        files.other.token(client_id="prober"),
    ]
    return [head(server, size, token=token) for token in tokens]


def attack_on(server: Serving) -> Attack:
    files = server.files
    stem = files.pki.folder / f"{files.caller.certificate.serial_number:x}"
    files.pki.context(files.caller)  # writes them, where no caller has one
    host, port = server.admission.split(":")
    size = "Content-Length: 10000"
    return Attack(
        sources=STRANGERS,
        host=host,
        port=int(port),
        certificate=str(stem.with_suffix(".crt")),
        key=str(stem.with_suffix(".key")),
        good_head=good_head(server, size).decode(),
        bad_heads=[bad.decode() for bad in bad_heads(server, size)],
        stalled=STALLED,
        dripping=DRIPPING,
        bad=BAD,
        wanted=["stalled cut", *BAD_ARE_TOLD[REDUCED if isinstance(files, Reduced) else MUTUAL]],
    )


def rss_bytes(server: Serving) -> int:
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def descriptors(server: Serving) -> int:
    return len(list(Path(f"/proc/{server.process.pid}/fd").iterdir()))


async def peak_while(server: Serving, task: "asyncio.Task[None]") -> int:
    """Return the most memory that was seen until a task was done."""
    peak = rss_bytes(server)
    while not task.done():
        await asyncio.wait((task,), timeout=0.5)
        peak = max(peak, rss_bytes(server))
    await task
    return peak


@pytest.mark.parametrize("mode", [MUTUAL, REDUCED])
async def test_valid_calls_are_answered_during_a_flood_and_it_leaves_no_trace(tmp_path: Path, mode: str) -> None:
    async with flooded(mode, tmp_path) as server:
        await Good(server).call_for(2)
        if SOAK:
            async with attacking(attack_on(server)):
                await Good(server).call_for(BEFORE_SECONDS)
        calm, stormy = Good(server), Good(server)
        async with spinning() as calm_gaps:
            await calm.call_for(SECONDS)
        before, open_before = rss_bytes(server), descriptors(server)
        async with spinning() as stormy_gaps, attacking(attack_on(server)) as answers:
            peak = await peak_while(server, asyncio.create_task(stormy.call_for(SECONDS)))
            for reason in REASONS[mode]:
                await server.until(f'podgate_refused_calls_total{{reason="{reason}"}}', 1)
        ended_at = time.monotonic()
        assert set(stormy.answers) == {"stayed 200", "came 200"}, stormy.answers
        assert stormy.answers["stayed 200"] >= CALLERS * CALLS_LEAST
        assert {"stalled cut", *BAD_ARE_TOLD[mode]} <= set(answers), answers
        assert not {answer for answer in answers if answer.endswith(" 200")}
        await eventually(lambda: _is_at_most(descriptors, server, open_before + 5))
        await eventually(lambda: _is_at_most(rss_bytes, server, peak - 1))
        if SOAK:
            await asyncio.sleep(ended_at + AFTERWARDS_SECONDS - time.monotonic())
            check_flood((calm, calm_gaps), (stormy, stormy_gaps), (before, peak, rss_bytes(server)))


@pytest.mark.parametrize("mode", [MUTUAL, REDUCED])
async def test_endless_headers_on_all_connections_stay_below_the_memory_limit(tmp_path: Path, mode: str) -> None:
    """First as much as is kept, on all of them at one time; then as much as aiohttp would keep of each."""
    fields = [b"X-%d: %b\r\n" % (number, b"x" * 16_000) for number in range(62)]
    async with flooded(mode, tmp_path) as server, AsyncExitStack() as stack:
        connections_max = 512 if mode == MUTUAL else 128
        held = [await stack.enter_async_context(line(server)) for _ in range(connections_max)]
        held += [await stack.enter_async_context(line(server, plain=True)) for _ in range(60)]
        for part in (fields[:3], fields[3:]):
            for one in held:
                one.send(b"POST / HTTP/1.1\r\nHost: podgate\r\n" if part[0] is fields[0] else b"", *part)
                with suppress(OSError):
                    await one.writer.drain()
        answers = await asyncio.gather(*(one.rest() for one in held))
        assert most_rss_bytes(server) < granted_bytes(mode)
        assert {status(answer) for answer in answers if answer} == {400}
        async with line(server) as good:
            good.send(good_head(server, sized()), BODY)
            assert status(await good.answer()) == 200


def most_rss_bytes(server: Serving) -> int:
    memory = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(memory.partition("VmHWM:")[2].split()[0]) << 10


def granted_bytes(mode: str) -> int:
    folder = Path(__file__).parents[2] / "manifests" / ("" if mode == MUTUAL else "reduced")
    [deployment] = yaml.safe_load_all((folder / "30-deployment.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    return int(container["resources"]["limits"]["memory"].removesuffix("Mi")) << 20


async def _is_at_most(measured: Callable[[Serving], int], server: Serving, most: int) -> bool:
    return measured(server) <= most


def check_flood(calm: tuple[Good, Gaps], stormy: tuple[Good, Gaps], rss: tuple[int, int, int]) -> None:
    """Print how long good calls took and what memory was held, and hold them to it.

    What the machine took from everybody, the spinner knows: how late it woke, on average.
    """
    p50 = []
    for name, (good, gaps) in (("without", calm), ("in the flood", stormy)):
        p50.append(statistics.median(good.seconds))
        late_seconds = sum(gaps.seconds) / (SECONDS / 0.001)
        print(f"{name}: p50 {p50[-1] * 1e3:.2f} ms of {len(good.seconds)}, spinner {late_seconds * 1e3:.2f} ms late")  # noqa: T201  for the note
    before, peak, after = rss
    newcomers = sorted(stormy[0].newcomers_seconds)
    p95 = newcomers[len(newcomers) * 95 // 100]
    print(f"newcomers: p95 {p95 * 1e3:.0f} ms, at most {newcomers[-1] * 1e3:.0f} ms")  # noqa: T201  for the note
    print(f"RSS: {before >> 20} MiB before, {peak >> 20} at its peak, {after >> 20} a minute later")  # noqa: T201  for the note
    assert p50[1] <= P50_TIMES_MOST * p50[0] + late_seconds
    assert p95 <= NEWCOMER_P95_SECONDS_MOST
    assert after <= RSS_TIMES_MOST * before
