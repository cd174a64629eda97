"""Breaker state shared by two servers on one real Redis, through failures of each of the three."""

import asyncio
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.harness.server_process import Files, Serving, pod, run_server
from tests.harness.stall_meter import run_spinner
from tests.redis_servers import RedisServer, usual_names
from tests.timeouts import HANG_SECONDS
from webhook.commands.simulator import (
    Ask,
    apply_patch,
    build_admission_review,
    prepare_for_mutate,
    prepare_for_validate,
)
from webhook.core.admission.decision import Half

pytest_plugins = ("tests.redis_servers.fixtures",)
pytestmark = pytest.mark.parametrize("redis_program", usual_names(), indirect=True)  # the stores' own tests run on all

TRIPS = int(os.environ.get("PODGATE_TEST_TRIPS", "0"))
"""Number of trips that `make soak` measures; otherwise the test makes a few and checks no times."""

MEDIAN_SECONDS, WORST_SECONDS = 0.15, 1.0
LONG_DEADLINE = ("--store-deadline", "30s")
_numbers = iter(range(10**9))

EDGE = "edge"
PUSHED_POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: api
  match: {{namespaces: [api]}}
  breaker:
    outcomes: {{source: Pushed, reporters: [{EDGE}]}}
    errorRate: {{interval: 200ms, consecutive: 1, minimumOutcomes: 3}}
    openFor: OPEN_FOR
    halfOpen: HALF_OPEN
"""


def render_pushed_policy(open_for: str, half_open: str) -> str:
    return PUSHED_POLICY.replace("OPEN_FOR", open_for).replace("HALF_OPEN", half_open)


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Wait for a state of another process."""
    async with asyncio.timeout(HANG_SECONDS):
        while not await holds():  # noqa: ASYNC110  another process sets no event
            await asyncio.sleep(0.05)


async def create(server: Serving, namespace: str) -> dict[str, Any]:
    return await server.create(Ask(pod(), namespace, f"uid-{next(_numbers)}", "alice"))


async def push(server: Serving, *, ok: bool) -> None:
    """Report five requests as the gateway does."""
    body = json.dumps([{"service": "api", "ok": ok, "latency": 0.1}] * 5).encode()
    pki, token = server.files.pki, server.files.other.token(client_id=EDGE)
    status, text = await server.post("/v1/outcomes", body, token=token, context=pki.context(pki.client("prober")))
    assert status == 200, text


async def breaker(server: Serving) -> dict[str, Any]:
    (service,) = json.loads((await server.get("/status"))[1])["services"]
    breaker_status: dict[str, Any] = service["breaker"] or {}
    return breaker_status


async def state(server: Serving) -> str:
    return str((await breaker(server)).get("state"))


async def trip(server: Serving) -> None:
    async def is_open_after_push() -> bool:
        await push(server, ok=False)
        return await state(server) in {"OPEN", "HALF_OPEN"}  # a slow poll may miss an OPEN of one second

    await eventually(is_open_after_push)


async def test_killed_prober_blocks_others_no_longer_than_its_lease(tmp_path: Path, redis_server: RedisServer) -> None:
    files = Files.create(tmp_path, render_pushed_policy("1s", "{probes: 1, probeTimeout: 3s}"))
    shared = ("--store", redis_server.url, *LONG_DEADLINE)
    async with run_server(files, *shared) as first, run_server(files, *shared) as second:
        await trip(first)
        denials = []
        while not (answer := await create(first, "api"))["allowed"]:  # the first one after `openFor` is the probe
            denials.append(answer)
        await first.kill()
        while not (answer := await create(second, "api"))["allowed"]:
            denials.append(answer)
        codes = [answer["status"]["message"].partition(":")[0] for answer in denials]
        assert set(codes) <= {"BreakerOpen", "BreakerProbing"}
        await second.wait_for_metric('podgate_breaker_probes_expired_total{service="api"}', 1)

        async def is_closed_by_the_second_probe() -> bool:
            await push(second, ok=True)
            return await state(second) == "CLOSED"

        await eventually(is_closed_by_the_second_probe)


async def test_open_breaker_is_written_again_to_an_emptied_redis(tmp_path: Path, own_redis_server: RedisServer) -> None:
    files = Files.create(tmp_path, render_pushed_policy("10m", "{probes: 1, probeTimeout: 3s}"))
    shared = ("--store", own_redis_server.url)
    async with run_server(files, *shared) as first, run_server(files, *shared) as second:
        await trip(first)
        opened = 'podgate_breaker_state{service="api",state="OPEN"}'
        await wait_until_open(first, second)
        own_redis_server.kill()
        for server in (first, second):
            assert (await create(server, "api"))["status"]["message"].startswith("BreakerOpen: ")
            assert await state(server) == "OPEN", "the status shows the server's own state while Redis is unavailable"
        own_redis_server.start()
        for server in (first, second):
            assert (await create(server, "api"))["status"]["message"].startswith("BreakerOpen: ")
            await server.wait_for_metric(opened, 1)
        # A new server has no state of its own to continue from if Redis answers late.
        async with run_server(files, *shared, *LONG_DEADLINE) as third:
            await third.wait_for_metric(opened, 1)
            assert (await create(third, "api"))["status"]["message"].startswith("BreakerOpen: ")


async def wait_until_open(*servers: Serving) -> None:
    """Wait until each server denies with BreakerOpen: its status and metrics may show the state earlier."""
    for server in servers:

        async def denies(server: Serving = server) -> bool:
            return await denial_codes(server, 1) == ["BreakerOpen"]

        await eventually(denies)


async def denial_codes(server: Serving, count: int) -> list[str]:
    """Create Pods; return the code of each denial, "" for an admitted Pod."""
    answers = [await create(server, "api") for _ in range(count)]
    return ["" if answer["allowed"] else answer["status"]["message"].partition(":")[0] for answer in answers]


async def test_without_redis_each_server_admits_its_share_of_probes_and_results_persist(
    tmp_path: Path, own_redis_server: RedisServer
) -> None:
    files = Files.create(tmp_path, render_pushed_policy("5s", "{probes: 3, probeTimeout: 10m}"))
    shared = ("--store", own_redis_server.url, "--replicas", "2")
    async with run_server(files, *shared) as first, run_server(files, *shared, "--ordinal", "1") as second:
        await trip(first)
        await wait_until_open(first, second)
        own_redis_server.kill()
        for server in (first, second):
            while (code := (await denial_codes(server, 1))[0]) == "BreakerOpen":
                pass
            assert [code, *await denial_codes(server, 3)] == ["", "", "BreakerProbing", "BreakerProbing"]
        for server in (first, second):
            await push(server, ok=True)

            async def admits(server: Serving = server) -> bool:
                return await denial_codes(server, 1) == [""]

            await eventually(admits)
            assert await denial_codes(server, 3) == ["", "", ""]
            assert await state(server) == "CLOSED"
        own_redis_server.start()

        async def has_shared_result() -> bool:
            return (await breaker(first)).get("reason") == (await breaker(second)).get("reason") == "2 probes succeeded"

        await eventually(has_shared_result)
        assert await state(first) == await state(second) == "CLOSED"


def services(count: int) -> str:
    """Return a policy of services whose second Pod of an hour opens their breaker, and whose Pods must be rewritten."""
    entries = [
        f"""\
- name: s{number}
  failureMode: Closed
  match: {{namespaces: [s{number}]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 1}}}}]}}
  breaker: {{quotaExceeded: {{count: 1, within: 1m, countBy: Request}}, openFor: 10m}}
"""
        for number in range(count)
    ]
    return "apiVersion: podgate.io/v1alpha1\nkind: Policy\nservices:\n" + "".join(entries)


class BreakerObserver:
    """Detects by reviews when a server knows of an open breaker.

    Its Pods are not mutated, so the server denies them without a call to the store.
    """

    def __init__(self, server: Serving, namespace: str) -> None:
        ask = Ask(pod(), namespace, "never", "alice")
        raw = prepare_for_validate(ask, prepare_for_mutate(ask))
        self._server = server
        self._body = json.dumps(build_admission_review(ask, raw, Half.VALIDATE)).encode()
        self._token = server.files.signer.token()

    async def knows_open_breaker(self) -> bool:
        status, text = await self._server.post("/validate?timeout=10s", self._body, token=self._token)
        assert status == 200, text
        response = json.loads(text)["response"]
        code = response["status"]["message"].partition(":")[0]
        assert code in {"BreakerOpen", "MutationMissing"}
        return bool(code == "BreakerOpen")

    async def wait_until_open(self) -> float:
        """Wait until the server denies with BreakerOpen; return the time."""
        async with asyncio.timeout(HANG_SECONDS):
            while not await self.knows_open_breaker():  # noqa: ASYNC110  another process sets no event
                await asyncio.sleep(0.002)
        return time.monotonic()


async def test_trip_on_one_server_is_seen_by_the_other(tmp_path: Path, redis_server: RedisServer) -> None:
    count = TRIPS or 5
    files, shared = Files.create(tmp_path, services(count)), ("--store", redis_server.url, *LONG_DEADLINE)
    seconds = []
    async with run_server(files, *shared) as first, run_server(files, *shared) as second:
        async with run_spinner() as gaps:
            for number in range(count):
                namespace = f"s{number}"
                assert (await create(first, namespace))["allowed"]
                observer = BreakerObserver(second, namespace)
                assert not await observer.knows_open_breaker()
                ask = Ask(pod(), namespace, f"uid-{next(_numbers)}", "alice")
                before = prepare_for_mutate(ask)
                after = prepare_for_validate(ask, apply_patch(before, await first.ask(Half.MUTATE, ask, before)))
                known_at = asyncio.create_task(observer.wait_until_open())
                sent_at = time.monotonic()
                answer = await first.ask(Half.VALIDATE, ask, after)
                assert answer["status"]["message"].startswith("QuotaExceeded: "), "this Pod opens the breaker"
                seconds.append(await known_at - sent_at)
        assert (await create(second, "s0"))["status"]["message"].startswith("BreakerOpen: ")
    check_trip_times(seconds, gaps.largest)


def check_trip_times(seconds: list[float], gap: float) -> None:
    """Print the times from the tripping request to its effect on the other server; `make soak` limits them."""
    median, worst = statistics.median(seconds), max(seconds)
    figures = f"median {median * 1e3:.1f} ms, worst {worst * 1e3:.1f} ms"
    print(f"  seen: {len(seconds)} trips, {figures}; spinner: largest gap {gap * 1e3:.1f} ms")  # noqa: T201  a measurement is for people
    if TRIPS:
        assert median <= MEDIAN_SECONDS + gap
        assert worst <= WORST_SECONDS + gap
