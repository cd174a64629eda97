"""The image's programs, run in containers as its user: the demo, and a server that is called over TLS from outside."""

import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

from tests.compose import sources
from tests.harness.server_process import Files, Process, Serving, pod, wait_until_listening
from tests.image.engine import Container
from webhook.commands.simulator import Ask


@asynccontextmanager
async def run_server(container: Container, folder: Path) -> AsyncIterator[Serving]:
    """Run `podgate serve` on a read-only root file system until the block ends, then end it as Kubernetes would."""
    files = Files.create(folder)
    _give_to(container.settings["User"], folder)
    arguments = [word.replace(str(folder), "/pki") for word in files.arguments()]
    command = container.read_only([*container.settings["Entrypoint"], "serve", *arguments], {"/pki": folder})
    log = folder.with_suffix(".log")
    process = Process(_start(command, log))
    async with aiohttp.ClientSession() as session:
        try:
            listening = await wait_until_listening(process, log)
            context = files.pki.context(files.caller)
            yield Serving(files, process, listening["admission"][0], listening["plain"][0], session, context, log)
        finally:
            if process.returncode is None:
                process.terminate()
            code = await process.wait()
    assert code == 0, log.read_text()
    assert "Traceback" not in log.read_text()


def _start(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as stream:
        return subprocess.Popen(command, stdout=stream, stderr=stream)


def _owner(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def _give_to(owner: str, folder: Path) -> None:
    user, group = map(int, owner.split(":"))
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user, group)


def test_version(container: Container) -> None:
    version = sources.find_own_image().partition(":")[2]
    assert container.run(*container.settings["Entrypoint"], "--version") == f"podgate {version}"


def test_demo_runs_to_its_end(container: Container) -> None:
    output = container.run(*container.settings["Entrypoint"], "demo", "--once")
    assert "podgate_breaker_state" in output


def test_commands_run_as_the_image_user(container: Container) -> None:
    assert container.run("id", "-u") == container.settings["User"].partition(":")[0] != "0"


async def test_server_reviews_over_tls_on_a_read_only_root(container: Container, tmp_path: Path) -> None:
    async with run_server(container, tmp_path / "pki") as server:
        assert (await server.get("/readyz"))[0] == 200
        answer = await server.create(Ask(pod(), "payments", "uid-1"))
        assert answer["allowed"]
        assert answer["pod"]["spec"]["schedulerName"] == "podgate-scheduler"
        assert str(_owner(server.process.pid)) == container.settings["User"].partition(":")[0]
        without = await server.post("/mutate", json.dumps({}).encode(), token="")
        assert without[0] == 401


def test_root_is_read_only_there(container: Container) -> None:
    command = container.read_only(["sh", "-c", "touch /tmp/x || echo refused"], {})
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "refused\n"
