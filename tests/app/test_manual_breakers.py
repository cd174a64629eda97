"""A real server with manual breaker states from an overrides file: effect, display, end."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.app.manual_breakers import POLICY
from tests.app.overrides_serving import entry, service, status, wait_for_end, wait_until, write
from tests.cli.command_runner import podgate
from tests.harness.server_process import Files, Serving, pod, run_server
from webhook.commands.simulator import Ask

TRANSITIONS = "podgate_breaker_transitions_total"


async def create(server: Serving) -> dict[str, Any]:
    return await server.create(Ask(pod(), "payments", str(uuid4())))


def state(document: dict[str, Any]) -> str:
    return str(service(document)["breaker"]["state"])


async def test_breaker_forced_open_denies_despite_mode_warn_and_closes_when_the_override_expires(
    tmp_path: Path,
) -> None:
    path = tmp_path / "overrides.yaml"
    async with run_server(Files.create(tmp_path, POLICY), "--overrides", str(path)) as server:
        assert (await create(server))["allowed"]
        write(path, entry("breaker: ForcedOpen"))
        shown_service = service(await wait_until(server, lambda document: state(document) == "FORCED_OPEN"))
        denied = await create(server)
        assert (denied["allowed"], denied["status"]["code"]) == (False, 503)
        assert "was forced open until " in denied["status"]["message"]
        assert "(INC-1)" in denied["status"]["message"]
        assert (shown_service["breaker"]["reason"], shown_service["modes"]["breaker"]) == ("INC-1", "Enforce")
        assert shown_service["breaker"]["openRemainingSeconds"] > 0
        assert await server.metric('podgate_breaker_state{service="payment-api",state="FORCED_OPEN"}') == 1

        await wait_for_end(server, path, "breaker: ForcedOpen", lambda document: state(document) == "CLOSED")
        assert (await create(server))["allowed"], "the override expired, the file is unchanged"
        labels = 'from="CLOSED",reason="forced",service="payment-api",to="FORCED_OPEN"'
        forced = await server.metric(f"{TRANSITIONS}{{{labels}}}")
        labels = 'from="FORCED_OPEN",reason="released",service="payment-api",to="CLOSED"'
        assert forced == await server.metric(f"{TRANSITIONS}{{{labels}}}") == 1, "its new end is no transition"


async def test_a_breaker_that_tripped_is_closed_manually_listed_and_reset_once(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    policy = POLICY.replace("breaker: Warn", "breaker: Enforce").replace("pods: 3", "pods: 1")
    async with run_server(Files.create(tmp_path, policy), "--overrides", str(path)) as server:
        assert [(await create(server))["allowed"] for _ in range(2)] == [True, False]
        assert (await create(server))["status"]["code"] == 503
        tripped = service(await status(server))["breaker"]
        assert (tripped["state"], tripped["trippedBy"]) == ("OPEN", tripped["reason"])

        write(path, entry("breaker: ForcedClosed, modes: {quota: Audit}"))
        await wait_until(server, lambda document: state(document) == "FORCED_CLOSED")
        assert (await create(server))["allowed"]
        listed = await asyncio.to_thread(podgate, "breaker", "list", "--server", f"http://{server.plain}")
        [row] = json.loads(listed.out)
        assert (row["service"], row["state"], row["reason"]) == ("payment-api", "FORCED_CLOSED", "INC-1")

        write(path, "[]")
        await wait_until(server, lambda document: state(document) == "CLOSED")
        assert (await create(server))["status"]["code"] == 429
        await wait_until(server, lambda document: state(document) == "OPEN")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        write(path, entry(f"breaker: Automatic, resetAt: {now}"))
        await wait_until(server, lambda document: state(document) == "CLOSED")
        assert (await create(server))["status"]["code"] == 429, "denied by the quota, which trips the breaker again"
        await wait_until(server, lambda document: state(document) == "OPEN")
