"""Fixtures of the adapters of Kubernetes: a fake API server, a connection to it, and loops over both."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.kubernetes.watching import Loops
from tests.harness.fake_apiserver import FakeApiServer, fake_apiserver, wait_until
from webhook.adapters.kubernetes import connect


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    async with fake_apiserver(tmp_path) as server:
        yield server


@pytest.fixture
async def client(fake: FakeApiServer, tmp_path: Path) -> AsyncIterator[Any]:
    assert fake.url
    async with await connect(tmp_path / "kubeconfig") as connected:
        yield connected
    await wait_until(lambda: asyncio.all_tasks() == {asyncio.current_task()})  # no task is left, of client or server


@pytest.fixture
async def loops(client: Any) -> AsyncIterator[Loops]:  # noqa: ARG001  they end before it is closed
    """Return a runner of loops, which stops them at the end of the test."""
    found = Loops()
    yield found
    await found.stop()
