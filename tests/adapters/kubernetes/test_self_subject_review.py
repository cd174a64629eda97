"""The user of a client, as the API server reports it, and the failures before."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.harness.fake_apiserver import FakeApiServer, drop, fake_apiserver, refuse, say, wait_until
from webhook.adapters.kubernetes import OwnUser, connect

REVIEW = {"kind": "SelfSubjectReview", "status": {"userInfo": {"username": "kubernetes-admin"}}}


@pytest.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeApiServer]:
    async with fake_apiserver(tmp_path) as fake:
        yield fake


@pytest.fixture
async def client(fake: FakeApiServer, tmp_path: Path) -> AsyncIterator[Any]:
    assert fake.url
    async with await connect(tmp_path / "kubeconfig") as client:
        yield client


async def test_own_user_is_asked_for_until_the_api_server_answers(fake: FakeApiServer, client: Any) -> None:
    troubles: list[str] = []
    fake.fail_next("create", refuse(503, "starting"), refuse(503, "starting"), drop, say(json.dumps(REVIEW).encode()))
    own = OwnUser(client, on_trouble=troubles.append, again_seconds=0.001)
    assert own.name == ""
    running = asyncio.create_task(own.run())
    await wait_until(lambda: own.name != "")
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert (own.name, len(fake.seen)) == ("kubernetes-admin", 4)
    assert len(troubles) == 2, "the same failure is reported once"
    assert "HTTP 503: starting" in troubles[0]
