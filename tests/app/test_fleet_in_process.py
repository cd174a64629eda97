"""A server with --store memory rejects policies with `per: Fleet` quotas."""

import json
from pathlib import Path
from typing import Any

from tests.harness.server_process import POLICY, Files, Serving, run_server

FLEET = POLICY.replace("quota: {windows", "quota: {scope: Fleet, windows")
REASON = "services[0].quota.scope: Fleet: `serve --store memory` counts only its own Pods: give it --store redis://"


async def test_fleet_is_refused_at_the_start(tmp_path: Path) -> None:
    files = Files.create(tmp_path, FLEET)
    async with run_server(files) as server:
        code, text = await server.get("/readyz")
        assert code == 503
        assert REASON in text


async def test_policy_change_to_fleet_is_rejected_and_the_policy_in_force_stays(tmp_path: Path) -> None:
    files = Files.create(tmp_path)
    async with run_server(files) as server:
        before = await status(server)
        files.policy.write_text(FLEET)
        await server.wait_for_metric('podgate_policy_reloads_total{result="failure"}', 1)
        after = await status(server)
        assert (await server.get("/readyz"))[0] == 200
    assert after["policy"]["hash"] == before["policy"]["hash"]
    [error] = after["policy"]["errors"]
    assert REASON in error


async def status(server: Serving) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((await server.get("/status"))[1])
    return document
