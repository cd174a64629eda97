"""A pool in a real server, as members and operators see it."""

import asyncio
import json
from pathlib import Path

from tests.cli.command_runner import podgate
from tests.harness.server_process import Files, pod, run_server
from webhook.commands.simulator import Ask

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
pools:
- {name: prod, windows: [{window: 1h, hard: {pods: 3}}]}
services:
- name: web
  pool: prod
  match: {namespaces: [web]}
  quota: {windows: [{window: 1h, hard: {pods: 2}}]}
- name: tools
  pool: prod
  match: {namespaces: [tools]}
"""


async def test_full_pool_denies_every_member_and_is_shown_everywhere(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path, POLICY)) as server:
        for uid, namespace in (("a", "web"), ("b", "tools"), ("c", "tools")):
            assert (await server.create(Ask(pod(), namespace, uid)))["allowed"]
        for uid, namespace in (("d", "web"), ("e", "tools")):
            status = (await server.create(Ask(pod(), namespace, uid)))["status"]
            assert status["code"] == 429
            limit = "pool prod: pods in 1h: hard 3, used 3, asked 1; could pass from"
            assert f"QuotaExceeded: service {namespace}: {limit}" in status["message"]

        [pool] = json.loads((await server.get("/status"))[1])["pools"]
        assert (pool["name"], pool["members"], pool["known"]) == ("prod", ["web", "tools"], True)
        [window] = pool["windows"]
        assert (window["used"], window["hard"], window["full"]) == (3, 3, True)
        assert window["nextFree"]

        shown = await asyncio.to_thread(podgate, "status", "--server", f"http://{server.plain}", "-o", "table")
        assert "\nPOOL  WINDOW  RESOURCE  USED  HARD  NEXT FREE\nprod  1h      pods      3     3     in " in shown.out

        assert await server.metric('podgate_pool_used{pool="prod",resource="pods",window="1h"}') == 3
        assert await server.metric('podgate_pool_limit{pool="prod",resource="pods",window="1h"}') == 3
        for service in ("web", "tools"):
            labels = f'of="pool",resource="pods",service="{service}",window="1h"'
            assert await server.metric(f"podgate_quota_denied_total{{{labels}}}") == 1
