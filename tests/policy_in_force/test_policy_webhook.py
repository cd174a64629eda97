"""The webhook of policies on a running server."""

import asyncio
import contextlib
import itertools
import json
import os
import signal
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.core.policy_changes.policy_review import config_map_review
from tests.harness.server_process import POLICY, Files, Serving, run_server
from tests.timeouts import HANG_SECONDS


def response(text: str) -> dict[str, Any]:
    return dict(json.loads(text)["response"])


async def test_policy_is_reviewed_before_it_is_stored_and_the_one_in_force_stays(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path)) as server:
        before = json.loads((await server.get("/status"))[1])["policy"]
        status, text = await server.post("/validate-policy", config_map_review(POLICY.replace("1h", "forever")))
        assert (status, response(text)["allowed"]) == (200, False)
        assert "policy.yaml:10:30: services[0].quota.windows[0].window" in response(text)["status"]["message"]
        status, text = await server.post("/validate-policy", config_map_review(POLICY))
        assert (status, response(text)["allowed"]) == (200, True)
        assert json.loads((await server.get("/status"))[1])["policy"] == before
        assert await server.metric('podgate_policy_reviews_total{result="failure"}') == 1
        assert await server.metric('podgate_policy_reviews_total{result="success"}') == 1
    log = (tmp_path / "server-0.log").read_text()
    assert '"msg":"policy rejected on admission","user":"alice","errors":["policy.yaml:10:30' in log


async def test_only_the_api_server_may_ask_and_only_with_a_review(tmp_path: Path) -> None:
    files = Files.create(tmp_path)
    async with run_server(files) as server:
        reporter = files.pki.context(files.pki.client("prober"))
        assert (await server.post("/validate-policy", token="", context=reporter))[0] == 401
        token = files.other.token(client_id="prober")
        status, _ = await server.post("/validate-policy", config_map_review(POLICY), token=token, context=reporter)
        assert status == 403
        assert (await server.post("/validate-policy", b"{}"))[0] == 400


async def test_policy_can_be_reviewed_before_one_is_in_force(tmp_path: Path) -> None:
    files = Files.create(tmp_path)
    files.policy.unlink()
    async with run_server(files) as server:
        assert (await server.get("/readyz"))[0] == 503
        status, text = await server.post("/validate-policy", config_map_review(POLICY))
        assert (status, response(text)["allowed"]) == (200, True)


def list_children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


async def kill_a_check(server: Serving, document: str) -> tuple[int, str]:
    """Post a policy until its check is killed, and return the response: a check may end unseen, or before the kill."""
    async with asyncio.timeout(HANG_SECONDS):
        for number in itertools.count():
            posting = asyncio.create_task(server.post("/validate-policy", config_map_review(f"{document}# {number}\n")))
            while not posting.done():
                if children := list_children(server.process.pid):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(children[0], signal.SIGKILL)
                    status, text = await posting
                    if status != HTTPStatus.OK:
                        return status, text
                await asyncio.sleep(0.01)
    raise AssertionError


async def test_failure_policy_applies_when_a_check_fails(tmp_path: Path) -> None:
    many = "".join(f"\n- {{name: s{number}, match: {{namespaces: [n{number}]}}}}" for number in range(1000))
    async with run_server(Files.create(tmp_path)) as server:
        status, text = await kill_a_check(server, f"{POLICY}{many}\n")
        assert (status, "its process was ended by SIGKILL" in text) == (503, True)
        assert await server.metric('podgate_refused_calls_total{reason="policy_unchecked"}') == 1
