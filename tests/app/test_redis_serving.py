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

from tests.harness.server_process import Files, Serving, pod, serving
from tests.harness.stall_meter import spinning
from tests.redis_servers import RedisServer, usual_names
from tests.timeouts import HANG_SECONDS
from webhook.core.admission.decision import Half
from webhook.errors import UserError
from webhook.offline.simulator import Ask, admission_review, as_sent_to_mutate, as_sent_to_validate, patched
from webhook.settings import parse

pytest_plugins = ("tests.redis_servers.fixtures",)

SOAK = os.environ.get("PODGATE_TEST_STANDSTILL", "") == "soak"
"""`make soak` stops Redis for 10 s under 200 admissions a second, three times over, and looks at the times."""

RUNS, STOPPED_SECONDS, BEFORE_SECONDS, ADMISSIONS_A_SECOND = (3, 10.0, 4.0, 200) if SOAK else (1, 1.0, 0.5, 60)
MOST_UNDER_WAY = 32
DEADLINE_SECONDS = 0.05
"""The server's own default."""

PATIENTLY = ("--store-deadline", "30s")
"""For what is not about time."""

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


def on(server: RedisServer) -> list[str]:
    return ["--store", server.url]


async def create(server: Serving, namespace: str) -> dict[str, Any]:
    return await server.create(Ask(pod(), namespace, f"uid-{next(_numbers)}", "alice"))


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
async def test_replicas_share_quota_and_breaker(tmp_path: Path, redis_server: RedisServer) -> None:
    files, shared = Files.create(tmp_path, POLICY), [*on(redis_server), *PATIENTLY]
    async with serving(files, *shared) as one, serving(files, *shared) as other:
        admitted = [(await create(server, "few"))["allowed"] for server in (one, other, one, other, one)]
        assert admitted == [True, True, True, False, False]
        assert "hard 3, used 3" in (await create(other, "few"))["status"]["message"], "the third event opens it"
        for server in (one, other):
            denied = await create(server, "few")
            assert denied["status"]["message"].startswith("BreakerOpen: ")
        state = 'podgate_breaker_state{service="few",state="OPEN"}'
        await one.until(state, 1)
        await other.until(state, 1)
        status = json.loads((await one.get("/status"))[1])
        assert (status["store"]["kind"], status["store"]["healthy"], status["store"]["error"]) == ("redis", True, None)


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
async def test_isolated_replicas_divide_the_remaining_quota(tmp_path: Path, own_redis_server: RedisServer) -> None:
    files, shared = Files.create(tmp_path, POLICY), [*on(own_redis_server), *PATIENTLY, "--replicas", "2"]
    async with serving(files, *shared) as one, serving(files, *shared, "--ordinal", "1") as other:
        for server in (one, other):
            await server.get("/metrics")  # which asks the store, and so hears of it
        own_redis_server.kill()
        answers = [await create(server, "few") for server in (one, one, one, other, other)]
        assert [answer["allowed"] for answer in answers] == [True, True, False, True, False]
        message = answers[-1]["status"]["message"]
        assert message.startswith("QuotaExceeded: service few: pods in 1h: hard 1, used 1, asked 1; could pass from ")
        assert "until then these are this replica's shares of the limits" in message
        own_redis_server.start()
        booked = 'podgate_booked_total{cause="Away",service="few"}'
        await one.until(booked, 2)
        await other.until(booked, 1)
        used = 'podgate_quota_used{resource="pods",service="few",window="1h"}'
        assert await one.metric(used) == 3


def test_ordinal_beyond_the_replicas_is_an_error() -> None:
    with pytest.raises(UserError) as mistakes:
        parse({"replicas": "2", "ordinal": "2"}, {})
    assert "--ordinal: '2': write a number below --replicas, 2" in str(mistakes.value)
    with pytest.raises(UserError) as mistakes:
        parse({"replicas": "2", "ordinal": "1"}, {})
    assert "--ordinal" not in str(mistakes.value)
    with pytest.raises(UserError) as mistakes:
        parse({"ordinal": "1"}, {})
    assert "--ordinal: '1': give --replicas too, a number above it" in str(mistakes.value)


@dataclass
class Load:
    """Admissions at a steady pace, whoever is late: what was answered, and how long each took, by phase.

    The validating half alone is asked: it is the one that asks the store. One caller has one token.
    """

    server: Serving
    bodies: dict[str, bytes] = field(default_factory=dict)
    token: str = ""
    phase: str = "warm-up"
    answers: dict[str, Counter[str]] = field(default_factory=lambda: {name: Counter() for name in RULES})
    """By service: `admitted`, or the first word of the refusal."""
    by_phase: dict[str, Counter[tuple[str, str]]] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)
    under_way: set[asyncio.Task[None]] = field(default_factory=set)

    async def warm_up(self) -> None:
        """Rewrite a Pod for each service, and make the connections."""
        self.token = self.server.files.signer.token()
        for namespace in ("free", *RULES):
            ask = Ask(pod(), namespace, _UID, "alice")
            before = as_sent_to_mutate(ask)
            after = as_sent_to_validate(ask, patched(before, await self.server.ask(Half.MUTATE, ask, before)))
            self.bodies[namespace] = json.dumps(admission_review(ask, after, Half.VALIDATE)).encode()
        for _ in range(3):
            await asyncio.gather(*(self._ask("free") for _ in range(MOST_UNDER_WAY)))

    async def _ask(self, namespace: str) -> dict[str, Any]:
        body = self.bodies[namespace].replace(_UID.encode(), f"uid-{next(_numbers)}".encode())
        status, text = await self.server.post("/validate?timeout=10s", body, token=self.token)
        assert status == 200, text
        response: dict[str, Any] = json.loads(text)["response"]
        return response

    async def run(self) -> None:
        """Go on until cancelled; then wait for those under way."""
        loop, begun, sent, names = asyncio.get_running_loop(), time.monotonic(), 0, cycle(RULES)
        try:
            while True:
                due = int((time.monotonic() - begun) * ADMISSIONS_A_SECOND)
                while sent < due and len(self.under_way) < MOST_UNDER_WAY:
                    task = loop.create_task(self._one(next(names), self.phase))
                    self.under_way.add(task)
                    task.add_done_callback(self.under_way.discard)
                    sent += 1
                sent = due  # a machine that cannot keep up makes no queue
                await asyncio.sleep(1 / ADMISSIONS_A_SECOND)
        finally:
            await asyncio.gather(*self.under_way)

    async def pass_for(self, seconds: float, phase: str) -> None:
        """Let a phase last so long, and until each service was answered a few times in it."""
        self.phase = phase
        await asyncio.sleep(seconds)
        async with asyncio.timeout(HANG_SECONDS):
            while len(self.seconds.get(phase, ())) < 4 * len(RULES):  # noqa: ASYNC110  it happens in another process
                await asyncio.sleep(0.05)

    async def until_admitted(self, namespace: str, phase: str) -> None:
        async with asyncio.timeout(HANG_SECONDS):
            while not self.by_phase[phase][namespace, "admitted"]:  # noqa: ASYNC110  as above
                await asyncio.sleep(0.05)

    async def _one(self, namespace: str, phase: str) -> None:
        begun = time.monotonic()
        answer = await self._ask(namespace)
        self.seconds.setdefault(phase, []).append(time.monotonic() - begun)
        word = "admitted" if answer["allowed"] else answer["status"]["message"].partition(":")[0]
        self.answers[namespace][word] += 1
        self.by_phase.setdefault(phase, Counter())[namespace, word] += 1


async def standstill(server: Serving, redis_server: RedisServer) -> Load:
    """Stop Redis under load and let it go on; return what came of it."""
    load = Load(server)
    await load.warm_up()
    running = asyncio.create_task(load.run())
    try:
        await load.pass_for(BEFORE_SECONDS, "warm-up")
        await load.pass_for(BEFORE_SECONDS, "before")
        load.phase = "stopping"
        redis_server.pause()
        await server.until('podgate_store_fallback{rule="Deny",service="deny"}', 1)
        await load.pass_for(STOPPED_SECONDS, "stopped")
        await _mode_is_visible(server)
        load.phase = "going on"
        await asyncio.gather(*load.under_way)  # those of before have met a Redis that stands still
        redis_server.resume()
        await _all_shared(server)
        await load.pass_for(BEFORE_SECONDS, "after")
        await load.until_admitted("deny", "after")
    finally:
        running.cancel()
        await asyncio.wait([running])
    await _all_shared(server)
    return load


async def _mode_is_visible(server: Serving) -> None:
    assert await server.metric("podgate_store_up") == 0
    for service, rule in RULES.items():
        assert await server.metric(f'podgate_store_fallback{{rule="{rule}",service="{service}"}}') == 1
    shown = json.loads((await server.get("/status"))[1])["store"]
    assert (shown["healthy"], shown["error"]) == (False, "timeout: no answer within 50 ms")
    assert (await server.get("/readyz"))[0] == 200


async def _all_shared(server: Serving) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        for service, rule in RULES.items():
            line = f'podgate_store_fallback{{rule="{rule}",service="{service}"}}'
            while await server.metric(line):  # noqa: ASYNC110  it happens in another process
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("redis_program", usual_names(), indirect=True)
async def test_stalled_redis_applies_each_failure_mode_and_counters_converge_later(
    tmp_path: Path, own_redis_server: RedisServer
) -> None:
    times = []
    async with serving(Files.create(tmp_path, POLICY), *on(own_redis_server)) as server:
        admitted: Counter[str] = Counter()
        for _ in range(RUNS):
            async with spinning() as gaps:
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
                # What was done for nobody is given back.
                while await server.metric(used) != admitted[service]:  # noqa: ASYNC110  it happens in another process
                    await asyncio.sleep(0.1)
        await server.until("podgate_store_up", 1)
        assert await server.metric('podgate_local_admitted_total{service="local"}') > 0
        assert await server.metric('podgate_uncounted_total{service="allow"}') > 0
    check_answer_times(times)


def check_answer_times(times: list[tuple[dict[str, list[float]], float]]) -> None:
    """Print how long admissions took, by phase, beside the spinner's largest gap; `make soak` holds them to it."""
    over = []
    for seconds, gap in times:
        own_work = statistics.quantiles(seconds["before"], n=100)[98]
        slowest = max(*seconds["stopping"], *seconds["stopped"])
        over.append(slowest - (DEADLINE_SECONDS + own_work + gap))
        for phase, taken in seconds.items():
            figures = f"median {statistics.median(taken) * 1e3:.1f} ms, largest {max(taken) * 1e3:.1f} ms"
            print(f"{phase:>9}: {len(taken):5} admissions, {figures}")  # noqa: T201  a measurement is for people
        print(f"  spinner: largest gap {gap * 1e3:.1f} ms; own work (p99 before) {own_work * 1e3:.1f} ms")  # noqa: T201  as above
    if SOAK:
        stopped = [len(seconds["stopped"]) for seconds, _ in times]
        assert statistics.median(stopped) > 0.9 * STOPPED_SECONDS * ADMISSIONS_A_SECOND, "the load was not kept up"
        assert statistics.median(over) <= 0, "an admission waited longer than the deadline and its own work"
