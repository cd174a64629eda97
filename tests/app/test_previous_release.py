"""Servers of the last release and of this tree on one Redis: an upgrade fails no admission and counts each Pod once."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from itertools import count, cycle
from pathlib import Path
from typing import Any

import pytest

from tests.harness.revisions import check_out, find_last_release
from tests.harness.server_process import Files, Serving, pod, run_server
from tests.redis_servers import RedisServer
from tests.timeouts import HANG_SECONDS
from webhook.commands.simulator import Ask, apply_patch, prepare_for_mutate, prepare_for_validate
from webhook.core.admission.decision import Half

pytest_plugins = ("tests.redis_servers.fixtures",)

ADMITTED_BY_EACH_PAIR = 60
CALLERS = 8
HARD = 20
DENIALS = 20
"""So many that the record of a breaker has the field that 0.1.0 does not know."""
SERVER_FLAGS = ("--store-deadline", "30s")  # no result depends on time

POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: ample
  failureMode: Closed
  match: {{namespaces: [ample]}}
  placement: {{schedulerName: podgate-scheduler}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 100000}}}}]}}
- name: scarce
  failureMode: Closed
  match: {{namespaces: [scarce]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: {HARD}}}}}]}}
- name: broken
  failureMode: Closed
  match: {{namespaces: [broken]}}
  quota: {{windows: [{{window: 1h, hard: {{pods: 1}}}}]}}
  breaker: {{quotaExceeded: {{count: {DENIALS}, within: 1m, countBy: Request}}, openFor: 5m}}
"""

_numbers = count()


async def create(mutating: Serving, validating: Serving, namespace: str) -> dict[str, Any]:
    """Send a new Pod through both halves, as a Service with two endpoints may do; return the last response."""
    ask = Ask(pod(), namespace, f"uid-{next(_numbers)}", "alice")
    before = prepare_for_mutate(ask)
    answer = await mutating.ask(Half.MUTATE, ask, before)
    assert answer["allowed"], answer
    after = prepare_for_validate(ask, apply_patch(before, answer))
    return await validating.ask(Half.VALIDATE, ask, after)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.mark.parametrize("redis_program", ["redis-8.2"], indirect=True)
async def test_upgrade_under_load_fails_no_admission(
    tmp_path: Path, redis_server: RedisServer, stack: AsyncExitStack
) -> None:
    files, flags = Files.create(tmp_path, POLICY), ("--store", redis_server.url, *SERVER_FLAGS)
    previous_tree = check_out(find_last_release()[1])

    async def previous() -> Serving:
        return await stack.enter_async_context(run_server(files, *flags, tree=previous_tree))

    async def current() -> Serving:
        return await stack.enter_async_context(run_server(files, *flags))

    # The endpoints of the Service, as they are replaced one by one.
    endpoints: list[Serving] = []
    admitted = 0

    async def call(goal: int) -> None:
        nonlocal admitted
        while admitted < goal:
            number = next(_numbers)
            first, second = (endpoints[(number + half) % len(endpoints)] for half in range(2))
            answer = await create(first, second, "ample")
            assert answer["allowed"], answer
            admitted += 1

    async def load() -> None:
        goal = admitted + ADMITTED_BY_EACH_PAIR
        await asyncio.wait_for(asyncio.gather(*(call(goal) for _ in range(CALLERS))), HANG_SECONDS)

    old, new = await previous(), await current()
    for now in ([old], [old, new], [new, old], [new]):
        endpoints = now
        await load()

    for server in (old, new):
        assert await has_counted(server, "ample", admitted)


@pytest.mark.parametrize("redis_program", ["redis-8.2"], indirect=True)
async def test_both_releases_share_quota_and_breaker(
    tmp_path: Path, redis_server: RedisServer, stack: AsyncExitStack
) -> None:
    files, flags = Files.create(tmp_path, POLICY), ("--store", redis_server.url, *SERVER_FLAGS)
    old = await stack.enter_async_context(run_server(files, *flags, tree=check_out(find_last_release()[1])))
    new = await stack.enter_async_context(run_server(files, *flags))
    pairs = cycle([(old, new), (new, old)])

    answers = await asyncio.gather(*(create(*next(pairs), "scarce") for _ in range(2 * HARD)))
    assert sum(answer["allowed"] for answer in answers) == HARD
    for server in (old, new):
        assert await has_counted(server, "scarce", HARD)

    for _ in range(1 + DENIALS):  # the first is admitted
        await create(*next(pairs), "broken")
    for server in (old, new):
        await server.wait_for_metric('podgate_breaker_state{service="broken",state="OPEN"}', 1)
    answer = await create(old, new, "broken")
    assert answer["status"]["message"].startswith("BreakerOpen")


async def has_counted(server: Serving, service: str, expected: int) -> bool:
    """Wait until a server shows this many Pods in the window of a service; return whether it shows no more."""
    series = f'podgate_quota_used{{resource="pods",service="{service}",window="1h"}}'
    await server.wait_for_metric(series, expected)
    return await server.metric(series) == expected
