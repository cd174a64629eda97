"""`podgate policy impact` judges the decisions that a real server keeps."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.cli.command_runner import Done, podgate
from tests.harness.server_process import POLICY, Files, Serving, pod, run_server
from webhook.commands.simulator import Ask

FREE = "- name: free\n  match: {namespaces: [free]}\n"


async def impact(server: Serving, candidate: Path, *options: str) -> Done:
    files = ("--before", str(server.files.policy), "--server", f"http://{server.decisions}")
    return await asyncio.to_thread(podgate, "policy", "impact", candidate, *files, *options)


async def create(server: Serving, namespace: str, *uids: str) -> None:
    for uid in uids:
        named: dict[str, Any] = {**pod(), "metadata": {"name": uid}}
        await server.create(Ask(named, namespace, uid, "alice"))


async def test_impact_by_the_decisions_of_a_server(tmp_path: Path) -> None:
    candidate = tmp_path / "candidate.yaml"
    candidate.write_text(
        POLICY.replace("pods: 3", "pods: 1").replace(FREE, FREE + "  placement: {nodeSelector: {a: b}}\n")
    )
    async with run_server(Files.create(tmp_path)) as server:
        await create(server, "payments", "p1", "p2", "p3", "p4")
        await create(server, "free", "f1")
        done = await impact(server, candidate, "-o", "json", "--fail-on", "denials")
        same = await impact(server, server.files.policy, "--fail-on", "changes")
        table = await impact(server, candidate)
    assert done.code == 3
    report = json.loads(done.out)
    assert (report["requests"], report["leftOut"]) == (5, {})
    payments, free = report["services"]
    assert (payments["service"], payments["requests"]) == ("payment-api", 4)
    assert (payments["deniedBefore"], payments["deniedAfter"]) == (1, 3)
    assert payments["differences"] == {"denied": 2, "findings": 2}
    [example] = payments["examples"]
    assert example["pod"] == "payments/p2"
    assert example["after"].startswith("Deny: QuotaExceeded: service payment-api: pods in 1h: hard 1, used 1, asked 1")
    assert (free["service"], free["differences"]) == ("free", {"placement": 1})
    assert (same.code, same.out.splitlines()[-1]) == (0, "unchanged: free, payment-api")
    assert table.code == 0
    assert "payment-api: payments/p2: denied, findings" in table.out.splitlines()
