"""Helpers of the `overrides_serving` tests that other tests use, too."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.harness.server_process import Serving
from tests.timeouts import HANG_SECONDS

_LAST_SECONDS = 4.0


def entry(fields: str, seconds: float = 3600) -> str:
    until = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"- {{service: payment-api, {fields}, until: {until}, reason: INC-1}}\n"


async def status(server: Serving) -> dict[str, Any]:
    _, text = await server.get("/status")
    document: dict[str, Any] = json.loads(text)
    return document


async def wait_until(server: Serving, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    async with asyncio.timeout(HANG_SECONDS):
        while not holds(document := await status(server)):  # noqa: ASYNC110  another process sets no event
            await asyncio.sleep(0.05)
    return document


async def wait_for_end(server: Serving, path: Path, fields: str, is_over: Callable[[dict[str, Any]], bool]) -> None:
    """Let an override that is in force last for only a few seconds more; wait until it is over, which is not earlier.

    What a test looks at under the override comes before: a busy machine may take longer for it.
    """
    until = time.time() + _LAST_SECONDS
    write(path, entry(fields, _LAST_SECONDS))
    await wait_until(server, is_over)
    assert time.time() >= until


def service(document: dict[str, Any]) -> dict[str, Any]:
    [shown_service] = document["services"]
    return dict(shown_service)


def write(path: Path, text: str) -> None:
    path.write_text(text)
