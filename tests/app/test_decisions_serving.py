"""Decisions of real servers: from the ring, from Redis after their server has died, and without the right to write."""

import asyncio
import json
from pathlib import Path
from socket import create_server
from typing import Any

from aiohttp import ClientConnectionError

from tests.harness.server_process import Files, Serving, pod, run_server
from tests.redis_servers import RedisServer, names, program
from tests.redis_servers.access import acl_file, user
from tests.timeouts import HANG_SECONDS
from webhook.commands.simulator import Ask
from webhook.core.admission.decision import Half

PRIVATE = "hunter2"
WITHOUT_STREAM = user("users", "old").replace(" +xadd +xrevrange", "")


def private_pod() -> dict[str, Any]:
    environment = [{"name": "PASSWORD", "value": PRIVATE}]
    container = {"name": "c", "image": f"registry/{PRIVATE}", "args": [PRIVATE], "env": environment}
    return pod(containers=[container], volumes=[{"name": PRIVATE, "emptyDir": {}}])


async def create(server: Serving, *uids: str) -> None:
    for uid in uids:
        await server.create(Ask(private_pod(), "payments", uid, "alice"))


async def decisions(server: Serving, query: str = "") -> dict[str, Any]:
    async with server.session.get(f"http://{server.decisions}/api/v1/decisions?{query}") as response:
        assert response.status == 200
        text = await response.text()
    assert PRIVATE not in text
    found: dict[str, Any] = json.loads(text)
    return found


async def uids(server: Serving) -> list[str]:
    return [decision["uid"] for decision in (await decisions(server))["decisions"] if decision["half"] == "validate"]


async def status(server: Serving) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((await server.get("/status"))[1])["decisions"]
    return found


async def test_without_redis_decisions_come_from_the_ring(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path)) as server:
        await create(server, "u1", "u2", "u3", "u4")
        assert await uids(server) == ["u4", "u3", "u2", "u1"]
        [denied] = (await decisions(server, "denied=true"))["decisions"]
        [limit] = denied["limits"]
        assert (limit["hard"], limit["used"], limit["asked"]) == (3, 3, 1)
        assert f"hard {limit['hard']}, used {limit['used']}, asked {limit['asked']}" in denied["status"]["message"]
        async with server.session.get(f"http://{server.decisions}/api/v1/policies/{denied['policy']}") as response:
            assert await response.text() == server.files.policy.read_text()
        assert await status(server) == {"kept": 8, "written": None, "dropped": 0, "error": None}


async def test_pages_show_each_review_as_soon_as_it_is_answered_also_under_load(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path)) as server:

        async def load() -> None:
            while True:
                await server.ask(Half.MUTATE, free, free.pod)
                await asyncio.sleep(0.005)  # beyond 1,000 reviews a second not all are recorded

        free, mine = Ask(pod(), "free", "", "alice"), Ask(pod(), "payments", "", "alice")
        others = [asyncio.create_task(load()) for _ in range(4)]
        labels = 'decision="Admit",half="mutate",operation="CREATE",service="payment-api"'
        counted, found = list[float](), list[int]()
        for _ in range(10):
            await server.ask(Half.MUTATE, mine, mine.pod)
            found.append(len((await decisions(server, "service=payment-api"))["decisions"]))
            counted.append(await server.metric(f"podgate_reviews_total{{{labels}}}"))
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
    assert counted == found == list(range(1, 11))


async def test_decisions_are_served_once_another_process_has_left_their_port(tmp_path: Path) -> None:
    with create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        async with run_server(Files.create(tmp_path), "--decision-listen", address) as server:
            assert server.decisions == ""
            await create(server, "u1")
            other.close()
            server.decisions = address
            async with asyncio.timeout(HANG_SECONDS):
                while not await answers(server):  # noqa: ASYNC110 - there is no event
                    await asyncio.sleep(0.05)
            assert await uids(server) == ["u1"]


async def answers(server: Serving) -> bool:
    try:
        await decisions(server)
    except ClientConnectionError:
        return False
    return True


async def test_decisions_of_a_dead_server_come_from_redis(tmp_path: Path) -> None:
    with RedisServer(program(names()[-1]), tmp_path / "redis") as redis:
        flags = ("--store", f"redis://127.0.0.1:{redis.port}/0")
        files = Files.create(tmp_path)
        async with run_server(files, *flags) as survivor:
            async with run_server(files, *flags) as other:
                await create(other, "u1", "u2")
                await other.wait_for_metric('podgate_decision_records_total{result="written"}', 4)
                await other.kill()
            await create(survivor, "u3")
            assert await uids(survivor) == ["u3", "u2", "u1"]
            stream = redis.cli("XRANGE", "podgate:v1:default:decisions", "-", "+")
            assert PRIVATE not in str(stream)


async def test_without_the_right_to_write_only_shared_decisions_are_missing(tmp_path: Path) -> None:
    users = acl_file(tmp_path / "users.acl", WITHOUT_STREAM)
    with RedisServer(program(names()[0]), tmp_path / "redis", "--aclfile", str(users)) as redis:
        flags = ("--store", f"redis://podgate:old@127.0.0.1:{redis.port}/0")
        async with run_server(Files.create(tmp_path), *flags) as server:
            await create(server, "u1", "u2")
            await server.wait_for_metric('podgate_decision_records_total{result="dropped"}', 4)
            assert (await status(server))["error"].startswith("authentication: ")
            found = await decisions(server)
            assert "only decisions of this server" in found["error"]
            assert len(found["decisions"]) == 4
            assert await server.metric("podgate_store_up") == 1
            await create(server, "u3", "u4")
            lines = [line for line in server.log.read_text().splitlines() if "decision records are not" in line]
            assert len(lines) == 1
