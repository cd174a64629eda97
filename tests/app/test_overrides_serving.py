"""A real server with overrides in a file: they apply to the next Pod, are shown, and expire."""

import asyncio
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.harness.server_process import Files, Serving, pod, serving
from tests.timeouts import HANG_SECONDS
from webhook.offline.simulator import Ask

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {namespaces: [payments]}
  quota: {windows: [{window: 1h, hard: {pods: 1}}]}
"""
LIVE = 'podgate_override_until_timestamp_seconds{service="payment-api"}'
GOOD = "podgate_overrides_last_reload_successful"


def entry(does: str, seconds: float = 3600) -> str:
    until = (datetime.now(UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return f"- {{service: payment-api, {does}, until: {until}, reason: INC-1}}\n"


async def admitted(server: Serving) -> bool:
    response = await server.create(Ask(pod(), "payments", str(uuid4())))
    return bool(response["allowed"])


async def status(server: Serving) -> dict[str, Any]:
    _, text = await server.get("/status")
    document: dict[str, Any] = json.loads(text)
    return document


async def until(server: Serving, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    async with asyncio.timeout(HANG_SECONDS):
        while not holds(found := await status(server)):  # noqa: ASYNC110  it happens in another process
            await asyncio.sleep(0.05)
    return found


async def seen_for_a_while(
    server: Serving, path: Path, does: str, holds: Callable[[dict[str, Any]], bool]
) -> dict[str, Any]:
    """Write an entry that ends by itself; return the status with it in force, with half of its time to go at least."""
    for seconds in (4, 20, 90):  # until this machine is fast enough
        half_over = time.monotonic() + seconds / 2
        write(path, entry(does, seconds))
        while time.monotonic() < half_over:
            if holds(found := await status(server)):
                return found
            await asyncio.sleep(0.05)
    raise TimeoutError(f"{does} was never in force")


def service(document: dict[str, Any]) -> dict[str, Any]:
    [found] = document["services"]
    return dict(found)


def write(path: Path, text: str) -> None:
    path.write_text(text)


async def test_override_applies_is_shown_and_expires(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    async with serving(Files.create(tmp_path, POLICY), "--overrides", str(path)) as server:
        assert [await admitted(server), await admitted(server)] == [True, False]
        assert (await status(server))["overrides"] == {"source": str(path), "errors": [], "entries": []}
        assert await server.metric(GOOD) == 1

        write(path, entry("grant: [{window: 1h, hard: {pods: 2}}]"))
        found = service(await until(server, lambda document: bool(document["overrides"]["entries"])))
        assert found["override"]["grant"] == [{"window": "1h", "hard": {"pods": "2"}}]
        assert [window["hard"] for window in found["windows"]] == [3]
        assert [await admitted(server) for _ in range(3)] == [True, True, False]
        assert await server.metric(LIVE) > 0

        in_audit = "modes: {quota: Audit}"
        await seen_for_a_while(server, path, in_audit, lambda shown: service(shown)["modes"]["quota"] == "Audit")
        assert await admitted(server)
        await until(server, lambda document: service(document)["modes"]["quota"] == "Enforce")
        assert not await admitted(server), "nobody has touched the file"
        assert await server.metric(LIVE) == 0
        assert service(await status(server))["override"] is None


async def test_invalid_overrides_change_nothing_and_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    write(path, entry("modes: {quota: Audit}"))
    async with serving(Files.create(tmp_path, POLICY), "--overrides", str(path)) as server:
        assert service(await status(server))["modes"]["quota"] == "Audit", "in force before the first review"
        write(path, entry("modes: {quota: audit}"))
        found = await until(server, lambda document: bool(document["overrides"]["errors"]))
        assert found["overrides"]["errors"][0].startswith(f"{path}:1:41: [0].modes.quota: audit: not one of its values")
        assert await server.metric(GOOD) == 0
        assert [await admitted(server), await admitted(server)] == [True, True]
        path.unlink()
        await until(server, lambda document: service(document)["modes"]["quota"] == "Enforce")
        assert not await admitted(server)
        assert (await status(server))["overrides"]["errors"] == []


async def test_pod_labelled_before_an_override_is_evaluated_under_it(tmp_path: Path) -> None:
    """Overrides are outside the policy's hash: both halves know the Pod's policy, and what holds now holds for it."""
    path = tmp_path / "overrides.yaml"
    async with serving(Files.create(tmp_path, POLICY), "--overrides", str(path)) as server:
        first = await server.create(Ask(pod(), "payments", str(uuid4())))
        write(path, entry("quotaFactor: 2"))
        await until(server, lambda document: bool(document["overrides"]["entries"]))
        second = await server.create(Ask(pod(), "payments", str(uuid4())))
        hashes = {one["pod"]["metadata"]["annotations"]["podgate.io/policy-hash"] for one in (first, second)}
        assert (first["allowed"], second["allowed"], len(hashes)) == (True, True, 1)


async def test_overrides_are_not_shown_without_a_source(tmp_path: Path) -> None:
    async with serving(Files.create(tmp_path, POLICY)) as server:
        assert (await status(server))["overrides"] == {"source": None, "errors": [], "entries": []}
        _, text = await server.get("/metrics")
        assert GOOD not in text


async def test_reset_is_applied_once_without_a_cluster(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    async with serving(Files.create(tmp_path, POLICY), "--overrides", str(path)) as server:
        assert [await admitted(server), await admitted(server)] == [True, False]
        at = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        write(path, entry(f"quotaReset: {{at: {at}, window: 1h}}"))
        await until(server, lambda document: service(document)["windows"][0]["used"] == 0)
        assert [await admitted(server), await admitted(server)] == [True, False]
