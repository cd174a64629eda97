"""`podgate console` beside a real server: address, pages, live countdown, and its end."""

import asyncio
import re
import signal
from pathlib import Path

import aiohttp
import msgspec

from tests.harness.console_process import start_console
from tests.harness.server_process import Files, Serving, pod, run_server, start
from tests.timeouts import HANG_SECONDS
from webhook.commands.simulator import Ask

USER = "system:serviceaccount:kube-system:replicaset-controller"


async def open_breaker(server: Serving) -> None:
    """Let the quota of payment-api run out until its breaker opens."""
    for number in range(8):
        await server.create(Ask(pod("payment-api"), "payments", f"uid-{number}", USER))


async def test_the_console_shows_an_open_breaker_whose_countdown_moves(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path)) as server:
        await open_breaker(server)
        ports = ["--server", f"http://{server.plain}", "--decisions", f"http://{server.decisions}"]
        arguments = [*ports, "--kubeconfig", str(tmp_path / "none")]
        process, address, log = await start_console(tmp_path, *arguments)
        url = address.partition("/?")[0]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            async with session.get(address) as answer:
                text = await answer.text()
                assert "Breaker open" in text
                assert "payment-api" in text
            async with session.get(url + "/api/v1/services") as answer:
                [first, _] = msgspec.json.decode(await answer.read())["rows"]
            assert (first["name"], first["trouble"], first["breaker"]["state"]) == (
                "payment-api",
                "BREAKER_OPEN",
                "OPEN",
            )
            assert sum(first["denied"]) >= 3
            countdowns: set[str] = set()
            async with session.get(url + "/api/v1/events?page=/") as answer, asyncio.timeout(HANG_SECONDS):
                while len(countdowns) < 2:
                    event = (await answer.content.readuntil(b"\n\n")).decode()
                    update = msgspec.json.decode(event.partition("data: ")[2])
                    if "payment-api/countdown" in update["cells"]:
                        countdowns.add(update["cells"]["payment-api/countdown"]["text"])
            process.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(process.wait(), HANG_SECONDS) == 0
        assert "Traceback" not in log.read_text()


async def test_a_change_of_the_pipeline_is_judged_by_the_decisions_of_the_server(tmp_path: Path) -> None:
    async with run_server(Files.create(tmp_path)) as server:
        await open_breaker(server)
        ports = ["--server", f"http://{server.plain}", "--decisions", f"http://{server.decisions}"]
        process, address, log = await start_console(tmp_path, *ports, "--kubeconfig", str(tmp_path / "none"))
        url = address.partition("/?")[0]
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            async with session.get(address) as answer:
                assert answer.status == 200
            async with session.get(url + "/policy") as answer:
                assert "In force" not in (await answer.text())
            async with session.get(url + "/policy/edit") as answer:
                text = await answer.text()
                assert "QuotaExceeded" in text
            [token, *_] = re.findall(r'name="form_token" value="([^"]+)"', text)
            form = {"form_token": token, "draft": "", "do": "mode services/0", "check": "quota", "mode": "Audit"}
            async with session.post(
                url + "/policy/edit", data=form, headers={"Sec-Fetch-Site": "same-origin"}
            ) as answer:
                text = await answer.text()
                assert "draft=" in str(answer.url)
            assert "the draft denies" in text, text
            assert "payment-api" in text.partition("Impact by service")[2]
            process.send_signal(signal.SIGINT)
            assert await asyncio.wait_for(process.wait(), HANG_SECONDS) == 0
        assert "Traceback" not in log.read_text()


async def test_a_server_without_a_cluster_shows_no_console_and_says_what_does(tmp_path: Path) -> None:
    files, log = Files.create(tmp_path), tmp_path / "log"
    process = start(["-m", "webhook", "serve", *files.arguments(), "--console-listen", "127.0.0.1:0"], log)
    assert await asyncio.wait_for(process.wait(), HANG_SECONDS) == 2
    assert log.read_text().splitlines()[-1] == (
        "error: --console-listen: there is no cluster that knows its users:"
        " leave it out: podgate console --server URL shows this server"
    )


async def test_without_a_server_the_console_does_not_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    arguments = ["--server", "http://127.0.0.1:1", "--kubeconfig", str(tmp_path / "none"), "--no-browser"]
    process = start(["-m", "webhook", "console", *arguments], log)
    assert await asyncio.wait_for(process.wait(), HANG_SECONDS) == 2
    assert "no server answers at http://127.0.0.1:1" in log.read_text()
