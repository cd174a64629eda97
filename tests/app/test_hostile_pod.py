"""A hostile Pod through a real server: the API server refuses its name later, but it is in our records and logs."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import Done, podgate
from tests.harness.hostile_values import FORGED, HOSTILE
from tests.harness.server_process import Files, Serving, run_server
from webhook.commands.simulator import Ask

DENIED = "00000000-0000-4000-8000-0000000000a2"
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: web
  match: {namespaces: [shop]}
  placement: {nodeSelector: {disk: ssd}}
  quota: {windows: [{window: 1h, hard: {pods: 1}}]}
"""


def hostile_pod(**spec: Any) -> dict[str, Any]:
    metadata = {"name": HOSTILE, "labels": {"app": HOSTILE, HOSTILE: HOSTILE}, "annotations": {"a": HOSTILE}}
    containers = [{"name": HOSTILE, "image": HOSTILE}]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": containers, **spec}}


def assert_harmless(text: str) -> None:
    for line in text.splitlines():
        assert line.isprintable(), ascii(line)
        assert not line.startswith(FORGED), text


@pytest.fixture(autouse=True)
def unstripped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print what a terminal would get, without our own colours."""
    monkeypatch.setattr("click.utils.should_strip_ansi", lambda *_: False)
    monkeypatch.setattr("click.style", lambda text, **_: text)


async def create(server: Serving) -> list[dict[str, Any]]:
    """Create a Pod that is admitted, and one that its own selector denies, in whose denial it is quoted."""
    pods = {"u1": hostile_pod(), DENIED: hostile_pod(nodeSelector={"disk": HOSTILE})}
    return [await server.create(Ask(pod, "shop", uid, HOSTILE)) for uid, pod in pods.items()]


async def run(*command: str) -> Done:
    return await asyncio.to_thread(podgate, *command)


async def test_answers_records_pages_and_log_have_no_control_character(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path, POLICY), "--log-sample", "1") as server:
        admitted, denied = await create(server)
        assert (admitted["allowed"], denied["allowed"]) == (True, False)
        assert "a\\x1b[2J" in denied["status"]["message"]
        assert_harmless(denied["status"]["message"])
        for form in ("table", "wide", "json", "yaml"):
            done = await run("decisions", "--server", f"http://{server.decisions}", "-o", form)
            assert "a\\x1b[2J" in done.out or "a\\u001b[2J" in done.out or "a\\e[2J" in done.out, done.out
            assert_harmless(done.out + done.err)
        found = json.loads((await run("decisions", "--server", f"http://{server.decisions}", "-o", "json")).out)
        assert {record["name"] for record in found} == {HOSTILE}
        for form in ("text", "json", "yaml"):
            where = ("--server", f"http://{server.decisions}", "--kubeconfig", f"{tmp_path}/none")
            explained = await run("explain", DENIED, "-n", "shop", *where, "-o", form)
            assert explained.code == 3, explained.err
            assert_harmless(explained.out + explained.err)
        assert_harmless((await run("status", "--server", f"http://{server.plain}", "-o", "table")).out)
        for path in ("/status", "/metrics"):
            assert_harmless((await server.get(path))[1])
    assert_harmless(server.log.read_text())
    assert "a\\u001b[2J" in server.log.read_text()
