"""`make bench`: what a decision costs, as ratios to what is measured beside it in the same run.

First a large Pod, in typed decodes of it. Then reviews per server-CPU-second, beside an empty aiohttp handler: all
serve TLS 1.3 with client certificates on uvloop; 16 keep-alive connections send the validating call of a typical 6 KB
Pod, in turns. Podgate has everything switched on: tokens, quota, breaker, metrics, sampled logs and traces. The CPU is
each server process's own, from the operating system: clients, and what receives the traces, cost nothing.
"""

import argparse
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from aiohttp import web

from tests.bench import evaluation
from tests.bench.empty import empty_server
from tests.bench.measuring import CONNECTIONS, Target, report, take_turns
from tests.bench.traffic import POLICY, Traffic
from tests.redis_servers import RedisServer, program
from tests.server.serving import Files, serving

ROUNDS = 15
CALLS = 3_200


@dataclass(frozen=True)
class Variant:
    """One way to run the server."""

    name: str
    arguments: tuple[str, ...] = ()


MEMORY = Variant("podgate, counters in memory")
REDIS = "redis-8.2"


@contextmanager
def variants() -> Iterator[tuple[Variant, ...]]:
    """Yield what is measured, with a real Redis running; an answer that is late on a busy machine is still one."""
    with (
        tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder,
        RedisServer(program(REDIS), Path(folder) / "redis") as redis,
    ):
        shared = ("--store", redis.url, "--store-deadline", "10s")
        yield MEMORY, Variant(f"podgate, counters in {REDIS}", shared)


async def bench(variants: Sequence[Variant], rounds: int, calls: int) -> list[str]:
    """Return what there is to print."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podgate-bench-")))
        files = Files.create(folder, POLICY)
        common = ("--otlp-endpoint", await stack.enter_async_context(_trace_receiver()), "--max-connection-age", "1h")
        policy_hash, targets = "", []
        for variant in variants:
            running = await stack.enter_async_context(serving(files, *common, *variant.arguments))
            policy_hash = json.loads((await running.get("/status"))[1])["policy"]["hash"]
            targets.append(Target(variant.name, running.process.pid))
            await targets[-1].connect(running.admission, files)
            stack.callback(targets[-1].close)
        pid, address = await stack.enter_async_context(empty_server(folder))
        empty = Target("empty aiohttp handler", pid)
        await empty.connect(address, files)
        stack.callback(empty.close)
        traffic = Traffic(policy_hash)
        await take_turns([*targets, empty], traffic, files, rounds, calls)
        load = f"{rounds} rounds of {calls} reviews of {traffic.body_bytes} bytes over {CONNECTIONS} connections"
        return ["reviews per server-CPU-second, " + load, *report(targets, empty)]


@asynccontextmanager
async def _trace_receiver() -> AsyncIterator[str]:
    """Take spans and throw them away; the endpoint."""

    async def take(request: web.Request) -> web.Response:
        await request.read()
        return web.Response()

    application = web.Application(client_max_size=2**26)
    application.router.add_post("/v1/traces", take)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--calls", type=int, default=CALLS, help="reviews of one round")
    chosen = parser.parse_args(arguments)
    print("\n".join(evaluation.measured(chosen.rounds)))
    with variants() as measured:
        print("\n".join(uvloop.run(bench(measured, chosen.rounds, chosen.calls))))


if __name__ == "__main__":
    main()
