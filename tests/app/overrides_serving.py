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


async def status_under_override(
    server: Serving, path: Path, fields: str, holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Write an override that expires; return a status under it while at least half of its time remains."""
    for seconds in (4, 20, 90):  # more time on a slow machine
        half_over = time.monotonic() + seconds / 2
        write(path, entry(fields, seconds))
        while time.monotonic() < half_over:
            if holds(document := await status(server)):
                return document
            await asyncio.sleep(0.05)
    raise TimeoutError(f"{fields} was never in force")


def service(document: dict[str, Any]) -> dict[str, Any]:
    [shown_service] = document["services"]
    return dict(shown_service)


def write(path: Path, text: str) -> None:
    path.write_text(text)
