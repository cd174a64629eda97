"""`make bench`: the cost of a decision, as ratios to baselines of the same run.

First a large Pod, in typed decodes of it, and what a breaker costs a review: a closed one beside none, and a refusal by
an open one beside an admission. Then the longest turns of the loop, beside an idle process. Then one acquire at the
counters, beside what others take for it on the same
Redis. Then reviews per server-CPU-second, beside an empty aiohttp handler: all serve TLS 1.3 with client certificates
on uvloop; 16 keep-alive connections send the validating call of a typical 6 KB Pod, in turns; once of a service with
room for every Pod, and once of one whose quota is used up, which refuses every Pod. Then new connections, one
review each. `--before REVISION` measures the server of another commit, too. Podgate has everything switched
on: tokens, quota, breaker, metrics, sampled logs and traces. The CPU is each server process's own, from the operating
system: clients, and what receives the traces, cost nothing.
"""

import argparse
import json
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvloop
from aiohttp import web

from tests.bench import breaker_cost, evaluation, loop_stalls, pods
from tests.bench.acquires import acquires
from tests.bench.baseline_server import empty_server
from tests.bench.connection_cost import connections
from tests.bench.server_load import CONNECTIONS, Target, ratio, report, take_turns
from tests.bench.traffic import ADMITTED, POLICY, REFUSED, Traffic
from tests.harness.server_process import TREE, Files, serving
from tests.redis_servers import RedisServer, program

ROUNDS = 15
CALLS = 3_200
PODS = 800
OPENED = 100
"""New connections of one round."""


@dataclass(frozen=True)
class Variant:
    """One way to run the server; `tree` is a checkout that holds it, where it is not this one."""

    name: str
    arguments: tuple[str, ...] = ()
    tree: Path | None = None


MEMORY = Variant("podgate, counters in memory")
REDIS = "redis-8.2"


@contextmanager
def real_redis() -> Iterator[RedisServer]:
    """Run one until the block ends."""
    with (
        tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder,
        RedisServer(program(REDIS), Path(folder) / "redis") as redis,
    ):
        yield redis


def variants(redis: RedisServer, before: Variant | None = None) -> tuple[Variant, ...]:
    """Return what is measured; an answer of Redis that is late on a busy machine is still one."""
    shared = ("--store", redis.url, "--store-deadline", "10s")
    return MEMORY, Variant(f"podgate, counters in {REDIS}", shared), *([before] if before else [])


@contextmanager
def checked_out(revision: str | None) -> Iterator[Variant | None]:
    """Return the server of another commit, to be measured beside today's."""
    if revision is None:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="podgate-bench-") as folder:
        archive = subprocess.run(["git", "archive", revision, "webhook", "certs"], check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", folder], check=True, input=archive.stdout)
        yield Variant(f"podgate of {revision[:12]}, counters in memory", tree=Path(folder))


async def bench(variants: Sequence[Variant], rounds: int, calls: int, opened: int = OPENED) -> list[str]:
    """Return what there is to print; `opened` are the new connections of one round."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="podgate-bench-")))
        files = Files.create(folder, POLICY)
        common = ("--otlp-endpoint", await stack.enter_async_context(_trace_receiver()), "--max-connection-age", "1h")
        policy_hash = ""
        admitted, refused = [], []
        for variant in variants:
            server = serving(files, *common, *variant.arguments, tree=variant.tree or TREE)
            running = await stack.enter_async_context(server)
            policy_hash = json.loads((await running.get("/status"))[1])["policy"]["hash"]
            pid, address = running.process.pid, running.admission
            admitted.append(Target(variant.name, pid, address, Traffic(policy_hash, ADMITTED)))
            refused.append(Target(f"{variant.name}, refused", pid, address, Traffic(policy_hash, REFUSED)))
        empty = Target(
            "empty aiohttp handler",
            *await stack.enter_async_context(empty_server(folder)),
            Traffic(policy_hash, ADMITTED),
        )
        own = [*admitted, *refused]
        for target in (*own, empty):
            stack.callback(target.close)
        await take_turns([*own, empty], files, rounds, calls)
        opening = await connections([*admitted, empty], files, rounds, opened)
        load = f"{rounds} rounds of {calls} reviews of {empty.traffic.body_bytes} bytes over {CONNECTIONS} connections"
        return [
            *(f"reviews per server-CPU-second, {load}", *report([*own, empty])),
            *(f"times {empty.name}", *(ratio(target, empty) for target in own)),
            *(
                "times the same with room for every Pod",
                *(ratio(*pair) for pair in zip(refused, admitted, strict=True)),
            ),
            *opening,
        ]


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
    parser.add_argument("--pods", type=int, default=PODS, help="acquires of one round")
    parser.add_argument("--watched", type=int, default=pods.WATCHED, help="Pods that the controller watches")
    parser.add_argument("--before", metavar="REVISION", help="measure the server of another commit, too")
    chosen = parser.parse_args(arguments)
    print("\n".join(evaluation.measured(chosen.rounds)))
    print("\n".join(breaker_cost.measured(chosen.rounds)))
    print("\n".join(loop_stalls.measured()))
    with real_redis() as redis, checked_out(chosen.before) as before:
        print("\n".join(uvloop.run(acquires(redis, chosen.rounds, chosen.pods))))
        print("\n".join(uvloop.run(bench(variants(redis, before), chosen.rounds, chosen.calls))))
        print("\n".join(uvloop.run(pods.watched(redis, chosen.watched, pods.ROUNDS, pods.QUIET_SECONDS))))


if __name__ == "__main__":
    main()
