"""Servers on one real Redis: what one counts the other knows, and a Redis that hangs keeps nobody waiting."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.redis_servers import RedisServer
from tests.server.serving import Files, Serving, pod, serving
from webhook.cli.apiserver import Ask

pytest_plugins = ("tests.redis_servers.fixtures",)

CALLERS = 8
PATIENTLY = ("--store-deadline", "30s")
"""For what is not about time."""
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: closed
  failureMode: Closed
  match: {namespaces: [closed]}
  quota: {windows: [{window: 1h, hard: {pods: 100000}}]}
- name: open
  failureMode: Open
  match: {namespaces: [open]}
  quota: {windows: [{window: 1h, hard: {pods: 100000}}]}
- name: few
  failureMode: Closed
  match: {namespaces: [few]}
  quota: {windows: [{window: 1h, hard: {pods: 3}}]}
  breaker: {quotaExceeded: {count: 3, within: 1m, countBy: Request}, openFor: 30s}
"""
_numbers = iter(range(10**9))


def on(server: RedisServer) -> list[str]:
    return ["--store", server.url]


def new(namespace: str) -> Ask:
    return Ask(pod(), namespace, f"uid-{next(_numbers)}", "alice")


async def create(server: Serving, namespace: str) -> dict[str, Any]:
    return await server.create(new(namespace))


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
        assert status["store"] == {"kind": "redis", "healthy": True, "error": None}


@pytest.mark.parametrize("away", ["hanging", "gone"])
async def test_while_redis_is_away_each_service_goes_by_its_own_rule_and_afterwards_all_is_well(
    tmp_path: Path, own_redis_server: RedisServer, away: str
) -> None:
    answers: dict[str, Counter[str]] = {"closed": Counter(), "open": Counter()}
    async with serving(Files.create(tmp_path, POLICY), *on(own_redis_server)) as server:

        async def ask(namespace: str) -> None:
            while True:
                answer = await create(server, namespace)
                word = "admitted" if answer["allowed"] else answer["status"]["message"].partition(":")[0]
                answers[namespace][word] += 1

        async def more(namespace: str, word: str) -> None:
            wanted = answers[namespace][word] + 20
            async with asyncio.timeout(60):
                while answers[namespace][word] < wanted:  # noqa: ASYNC110  what is waited for is another process
                    await asyncio.sleep(0.01)

        load = [asyncio.create_task(ask(namespace)) for namespace in answers for _ in range(CALLERS // 2)]
        await more("closed", "admitted")
        await more("open", "admitted")
        own_redis_server.pause() if away == "hanging" else own_redis_server.kill()
        for _ in range(3):
            await more("closed", "StoreUnavailable")
            await more("open", "admitted")
        assert (await server.get("/readyz"))[0] == 200
        shown = json.loads((await server.get("/status"))[1])["store"]
        assert shown["healthy"] is False
        assert ("no answer within 50 ms" in shown["error"]) is (away == "hanging")
        assert await server.metric("podgate_store_up") == 0
        own_redis_server.resume() if away == "hanging" else own_redis_server.start()
        await more("closed", "admitted")
        for task in load:
            task.cancel()
        await asyncio.gather(*load, return_exceptions=True)
        assert set(answers["closed"]) == {"admitted", "StoreUnavailable"}
        assert set(answers["open"]) == {"admitted"}
        assert await server.metric('podgate_uncounted_total{service="open"}') >= 60
        assert await server.metric("podgate_store_up") == 1
