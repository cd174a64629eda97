"""A real server with manual breaker states from an overrides file: effect, display, end."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.app.test_overrides_serving import entry, seen_for_a_while, service, status, until, write
from tests.cli.command_runner import podgate
from tests.harness.server_process import Files, Serving, pod, serving
from webhook.offline.simulator import Ask

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: payment-api
  match: {namespaces: [payments]}
  modes: {breaker: Warn, quota: Enforce}
  quota: {windows: [{window: 1h, hard: {pods: 3}}]}
  breaker: {quotaExceeded: {count: 1}, openFor: 1h}
"""
TRANSITIONS = "podgate_breaker_transitions_total"


async def asked(server: Serving) -> dict[str, Any]:
    return await server.create(Ask(pod(), "payments", str(uuid4())))


def state(document: dict[str, Any]) -> str:
    return str(service(document)["breaker"]["state"])


async def test_one_opened_manually_refuses_at_once_though_the_policy_only_warns_and_ends_by_itself(
    tmp_path: Path,
) -> None:
    path = tmp_path / "overrides.yaml"
    async with serving(Files.create(tmp_path, POLICY), "--overrides", str(path)) as server:
        assert (await asked(server))["allowed"]
        open_now = "breaker: ForcedOpen"
        shown = await seen_for_a_while(server, path, open_now, lambda document: state(document) == "FORCED_OPEN")
        found = service(shown)
        refused = await asked(server)
        assert (refused["allowed"], refused["status"]["code"]) == (False, 503)
        assert "was forced open until " in refused["status"]["message"]
        assert "(INC-1)" in refused["status"]["message"]
        assert (found["breaker"]["reason"], found["modes"]["breaker"]) == ("INC-1", "Enforce")
        assert found["breaker"]["openRemainingSeconds"] > 0
        assert await server.metric('podgate_breaker_state{service="payment-api",state="FORCED_OPEN"}') == 1

        await until(server, lambda document: state(document) == "CLOSED")
        assert (await asked(server))["allowed"], "nobody has touched the file"
        labels = 'from="CLOSED",reason="forced",service="payment-api",to="FORCED_OPEN"'
        forced = await server.metric(f"{TRANSITIONS}{{{labels}}}")
        labels = 'from="FORCED_OPEN",reason="released",service="payment-api",to="CLOSED"'
        assert 0 < forced == await server.metric(f"{TRANSITIONS}{{{labels}}}") <= 3  # each time that it was written


async def test_a_breaker_that_tripped_is_closed_manually_listed_and_reset_once(tmp_path: Path) -> None:
    path = tmp_path / "overrides.yaml"
    policy = POLICY.replace("breaker: Warn", "breaker: Enforce").replace("pods: 3", "pods: 1")
    async with serving(Files.create(tmp_path, policy), "--overrides", str(path)) as server:
        assert [(await asked(server))["allowed"] for _ in range(2)] == [True, False]
        assert (await asked(server))["status"]["code"] == 503
        tripped = service(await status(server))["breaker"]
        assert (tripped["state"], tripped["trippedBy"]) == ("OPEN", tripped["reason"])

        write(path, entry("breaker: ForcedClosed, modes: {quota: Audit}"))
        await until(server, lambda document: state(document) == "FORCED_CLOSED")
        assert (await asked(server))["allowed"]
        listed = podgate("breaker", "list", "--server", f"http://{server.plain}")
        [row] = json.loads(listed.out)
        assert (row["service"], row["state"], row["reason"]) == ("payment-api", "FORCED_CLOSED", "INC-1")

        write(path, "[]")
        await until(server, lambda document: state(document) == "CLOSED")
        assert (await asked(server))["status"]["code"] == 429
        await until(server, lambda document: state(document) == "OPEN")
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        write(path, entry(f"breaker: Automatic, resetAt: {now}"))
        await until(server, lambda document: state(document) == "CLOSED")
        assert (await asked(server))["status"]["code"] == 429, "by quota, and it trips as ever"
        await until(server, lambda document: state(document) == "OPEN")
