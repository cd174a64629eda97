"""Servers on one real Redis: shared counters, and no delay from a Redis that hangs."""

import asyncio
import json
import os
import statistics
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import cycle
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
from webhook.errors import UserError
from webhook.settings import parse

pytest_plugins = ("tests.redis_servers.fixtures",)

SOAK = os.environ.get("PODGATE_TEST_STANDSTILL", "") == "soak"
"""`make soak` pauses Redis three times for 10 s under 200 admissions a second, and checks the times."""

RUNS, STOPPED_SECONDS, BEFORE_SECONDS, ADMISSIONS_A_SECOND = (3, 10.0, 4.0, 200) if SOAK else (1, 1.0, 0.5, 60)
IN_FLIGHT_MAX = 32
DEADLINE_SECONDS = 0.05
"""The server's default."""

LONG_DEADLINE = ("--store-deadline", "30s")
"""For tests that do not depend on time."""

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: local
  failureMode: Closed
  match: {namespaces: [local]}
  quota: {windows: [{window: 1h, hard: {pods: 100000}}]}
- name: allow
  failureMode: Closed
  match: {namespaces: [allow]}
  quota: {windows: [{window: 1h, hard: {pods: 100000}}], whenStoreUnavailable: Allow}
- name: deny
  failureMode: Open
  match: {namespaces: [deny]}
  quota: {windows: [{window: 1h, hard: {pods: 100000}}], whenStoreUnavailable: Deny}
- name: free
  match: {namespaces: [free]}
- name: few
  failureMode: Closed
  match: {namespaces: [few]}
  quota: {windows: [{window: 1h, hard: {pods: 3}}]}
  breaker: {quotaExceeded: {count: 3, within: 1m, countBy: Request}, openFor: 30s}
"""
RULES = {"local": "Local", "allow": "Allow", "deny": "Deny"}
_UID = "THE-UID"
_numbers = iter(range(10**9))


def store_flags(server: RedisServer) -> list[str]:
    return ["--store", server.url]


async def create(server: Serving, namespace: str) -> dict[str, Any]:
    return await server.create(Ask(pod(), namespace, f"uid-{next(_numbers)}", "alice"))


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
async def test_replicas_share_quota_and_breaker(tmp_path: Path, redis_server: RedisServer) -> None:
    files, shared = Files.create(tmp_path, POLICY), [*store_flags(redis_server), *LONG_DEADLINE]
    async with run_server(files, *shared) as first, run_server(files, *shared) as second:
        admitted = [(await create(server, "few"))["allowed"] for server in (first, second, first, second, first)]
        assert admitted == [True, True, True, False, False]
        assert "hard 3, used 3" in (await create(second, "few"))["status"]["message"], (
            "the third denial opens the breaker"
        )
        for server in (first, second):
            denied = await create(server, "few")
            assert denied["status"]["message"].startswith("BreakerOpen: ")
        state = 'podgate_breaker_state{service="few",state="OPEN"}'
        await first.wait_for_metric(state, 1)
        await second.wait_for_metric(state, 1)
        status = json.loads((await first.get("/status"))[1])
        assert (status["store"]["kind"], status["store"]["healthy"], status["store"]["error"]) == ("redis", True, None)


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
async def test_isolated_replicas_divide_the_remaining_quota(tmp_path: Path, own_redis_server: RedisServer) -> None:
    files, shared = Files.create(tmp_path, POLICY), [*store_flags(own_redis_server), *LONG_DEADLINE, "--replicas", "2"]
    async with run_server(files, *shared) as first, run_server(files, *shared, "--ordinal", "1") as second:
        for server in (first, second):
            await server.get("/metrics")  # this page reads the store, so the server knows its state
        own_redis_server.kill()
        answers = [await create(server, "few") for server in (first, first, first, second, second)]
        assert [answer["allowed"] for answer in answers] == [True, True, False, True, False]
        message = answers[-1]["status"]["message"]
        assert message.startswith("QuotaExceeded: service few: pods in 1h: hard 1, used 1, asked 1; could pass from ")
        assert "until then these are this replica's shares of the limits" in message
        own_redis_server.start()
        booked = 'podgate_booked_total{cause="Away",service="few"}'
        await first.wait_for_metric(booked, 2)
        await second.wait_for_metric(booked, 1)
        used = 'podgate_quota_used{resource="pods",service="few",window="1h"}'
        assert await first.metric(used) == 3


def test_ordinal_beyond_the_replicas_is_an_error() -> None:
    with pytest.raises(UserError) as error:
        parse({"replicas": "2", "ordinal": "2"}, {})
    assert "--ordinal: '2': write a number below --replicas, 2" in str(error.value)
    with pytest.raises(UserError) as error:
        parse({"replicas": "2", "ordinal": "1"}, {})
    assert "--ordinal" not in str(error.value)
    with pytest.raises(UserError) as error:
        parse({"ordinal": "1"}, {})
    assert "--ordinal: '1': give --replicas too, a number above it" in str(error.value)


@dataclass
class Load:
    """Admissions at a constant rate, with their results and durations by phase.

    It calls only /validate, which charges the store. All calls send the same token.
    """

    server: Serving
    bodies: dict[str, bytes] = field(default_factory=dict)
    token: str = ""
    phase: str = "warm-up"
    answers: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in RULES})
    """By service: `admitted`, or the code of the denial."""
    by_phase: dict[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    in_flight: set[asyncio.Task[None]] = field(default_factory=set)

    async def warm_up(self) -> None:
        """Rewrite a Pod for each service, and make the connections."""
        self.token = self.server.files.signer.token()
        for namespace in ("free", *RULES):
            ask = Ask(pod(), namespace, _UID, "alice")
            before = prepare_for_mutate(ask)
            after = prepare_for_validate(ask, apply_patch(before, await self.server.ask(Half.MUTATE, ask, before)))
            self.bodies[namespace] = json.dumps(build_admission_review(ask, after, Half.VALIDATE)).encode()
        for _ in range(3):
            await asyncio.gather(*(self._validate("free") for _ in range(IN_FLIGHT_MAX)))

    async def _validate(self, namespace: str) -> dict[str, Any]:
        body = self.bodies[namespace].replace(_UID.encode(), f"uid-{next(_numbers)}".encode())
        status, text = await self.server.post("/validate?timeout=10s", body, token=self.token)
        assert status == 200, text
        response: dict[str, Any] = json.loads(text)["response"]
        return response

    async def run(self) -> None:
        """Send requests until cancelled; then wait for those in flight."""
        loop, started, sent, names = asyncio.get_running_loop(), time.monotonic(), 0, cycle(RULES)
        try:
            while True:
                due = int((time.monotonic() - started) * ADMISSIONS_A_SECOND)
                while sent < due and len(self.in_flight) < IN_FLIGHT_MAX:
                    task = loop.create_task(self._admit(next(names), self.phase))
                    self.in_flight.add(task)
                    task.add_done_callback(self.in_flight.discard)
                    sent += 1
                sent = due  # a slow machine skips requests instead of queueing them
                await asyncio.sleep(1 / ADMISSIONS_A_SECOND)
        finally:
            await asyncio.gather(*self.in_flight)

    async def run_phase(self, seconds: float, phase: str) -> None:
        """Run a phase for some seconds, and until each service has a few answers in it."""
        self.phase = phase
        await asyncio.sleep(seconds)
        async with asyncio.timeout(HANG_SECONDS):
            while len(self.seconds.get(phase, ())) < 4 * len(RULES):  # noqa: ASYNC110  another process sets no event
                await asyncio.sleep(0.05)

    async def wait_until_admitted(self, namespace: str, phase: str) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while not self.by_phase[phase][namespace, "admitted"]:  # noqa: ASYNC110  as above
                await asyncio.sleep(0.05)

    async def _admit(self, namespace: str, phase: str) -> None:
        started = time.monotonic()
        answer = await self._validate(namespace)
        self.seconds.setdefault(phase, []).append(time.monotonic() - started)
        result = "admitted" if answer["allowed"] else answer["status"]["message"].partition(":")[0]
        self.answers[namespace][result] += 1
        self.by_phase.setdefault(phase, Counter())[namespace, result] += 1


async def standstill(server: Serving, redis_server: RedisServer) -> Load:
    """Pause Redis under load and resume it; return the load with its results."""
    load = Load(server)
    await load.warm_up()
    running = asyncio.create_task(load.run())
    try:
        await load.run_phase(BEFORE_SECONDS, "warm-up")
        await load.run_phase(BEFORE_SECONDS, "before")
        load.phase = "stopping"
        redis_server.pause()
        await server.wait_for_metric('podgate_store_fallback{rule="Deny",service="deny"}', 1)
        await load.run_phase(STOPPED_SECONDS, "stopped")
        await _check_fallback_is_visible(server)
        load.phase = "going on"
        await asyncio.gather(*load.in_flight)  # these have been sent while Redis was paused
        redis_server.resume()
        await _wait_until_counters_are_shared(server)
        await load.run_phase(BEFORE_SECONDS, "after")
        await load.wait_until_admitted("deny", "after")
    finally:
        running.cancel()
        await asyncio.wait([running])
    await _wait_until_counters_are_shared(server)
    return load


async def _check_fallback_is_visible(server: Serving) -> None:
    assert await server.metric("podgate_store_up") == 0
    for service, rule in RULES.items():
        assert await server.metric(f'podgate_store_fallback{{rule="{rule}",service="{service}"}}') == 1
    shown = json.loads((await server.get("/status"))[1])["store"]
    assert (shown["healthy"], shown["error"]) == (False, "timeout: no answer within 50 ms")
    assert (await server.get("/readyz"))[0] == 200


async def _wait_until_counters_are_shared(server: Serving) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        for service, rule in RULES.items():
            line = f'podgate_store_fallback{{rule="{rule}",service="{service}"}}'
            while await server.metric(line):  # noqa: ASYNC110  another process sets no event
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
async def test_stalled_redis_applies_each_failure_mode_and_counters_converge_later(
    tmp_path: Path, own_redis_server: RedisServer
) -> None:
    times = []
    async with run_server(Files.create(tmp_path, POLICY), *store_flags(own_redis_server)) as server:
        admitted: Counter[str] = Counter()
        for _ in range(RUNS):
            async with run_spinner() as gaps:
                load = await standstill(server, own_redis_server)
            times.append((load.seconds, gaps.largest))
            stopped = load.by_phase["stopped"]
            assert {key for key in stopped if stopped[key]} == {
                ("local", "admitted"),
                ("allow", "admitted"),
                ("deny", "StoreUnavailable"),
            }
            admitted.update({name: answers["admitted"] for name, answers in load.answers.items()})
        for service in RULES:
            used = f'podgate_quota_used{{resource="pods",service="{service}",window="1h"}}'
            async with asyncio.timeout(HANG_SECONDS):
                # Charges of requests that timed out are refunded.
                while await server.metric(used) != admitted[service]:  # noqa: ASYNC110  another process sets no event
                    await asyncio.sleep(0.1)
        await server.wait_for_metric("podgate_store_up", 1)
        assert await server.metric('podgate_local_admitted_total{service="local"}') > 0
        assert await server.metric('podgate_uncounted_total{service="allow"}') > 0
    check_answer_times(times)


def check_answer_times(times: list[tuple[dict[str, list[float]], float]]) -> None:
    """Print durations of admissions by phase, and the spinner's largest gap; `make soak` limits them."""
    excess_seconds = []
    for seconds, gap in times:
        own_work = statistics.quantiles(seconds["before"], n=100)[98]
        slowest = max(*seconds["stopping"], *seconds["stopped"])
        excess_seconds.append(slowest - (DEADLINE_SECONDS + own_work + gap))
        for phase, durations in seconds.items():
            figures = f"median {statistics.median(durations) * 1e3:.1f} ms, largest {max(durations) * 1e3:.1f} ms"
            print(f"{phase:>9}: {len(durations):5} admissions, {figures}")  # noqa: T201  a measurement is for people
        print(f"  spinner: largest gap {gap * 1e3:.1f} ms; own work (p99 before) {own_work * 1e3:.1f} ms")  # noqa: T201  as above
    if SOAK:
        stopped = [len(seconds["stopped"]) for seconds, _ in times]
        assert statistics.median(stopped) > 0.9 * STOPPED_SECONDS * ADMISSIONS_A_SECOND, (
            "the rate of requests was too low"
        )
        assert statistics.median(excess_seconds) <= 0, "an admission waited longer than the deadline and its own work"
