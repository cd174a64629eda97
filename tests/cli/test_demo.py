import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.running import BIN, TRACE, Done, installed
from tests.redis_servers import RedisServer

pytest_plugins = ("tests.redis_servers.fixtures",)

STORY = (
    r"without a client certificate: no TLS connection",
    r"with the certificate, without a token: 401",
    r"with a token of alg none: 401",
    r"\+  schedulerName: podgate-scheduler",
    r"\+    disk-type: ssd",
    r"\+          - key: topology.kubernetes.io/region",
    r"ok asked again with the result: no further patch",
    r"ok Pod admitted",
    r"ok Pod admitted",
    r"ok Pod admitted",
    r"-- Pod denied: 429 QuotaExceeded: .* hard 3, used 3, asked 1; could pass from",
    r"the window slides .*: \d+s",
    r"ok Pod admitted",
    r"-- Pod denied: 503 BreakerOpen: .* open for \d+s more \(quotaExceeded: 3 requests",
    r"OPEN for [4-6]s more",
    r"OPEN for [1-3]s more",
    r"HALF_OPEN: openFor passed",
    r"two probes are let in",
    r"ok Pod admitted",
    r"ok Pod admitted",
    r"ok CLOSED: 2 probes succeeded",
    r'podgate_breaker_transitions_total\{.*from="CLOSED".*to="OPEN"\} 1',
    r'podgate_breaker_state\{service="payment-api",state="CLOSED"\} 1',
)


def leftovers(temporary: Path) -> list[Path]:
    return list(temporary.glob("podgate-demo-*"))


def children_of(parent: int) -> list[int]:
    listed = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(number) for number in listed.split()]


def test_the_demo_tells_its_story_in_order_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv("PODGATE_STORE", "a setting of some real server, none of the demo's business")
    done = installed("demo", "--once")
    assert "counters are in this process" in done.out
    assert_story(done)
    assert "\x1b" not in done.out, "no colours where there is no terminal"
    assert leftovers(tmp_path) == []


def assert_story(done: Done) -> None:
    assert (done.code, done.err) == (0, "")
    at = 0
    for fact in STORY:
        found = re.compile(fact).search(done.out, at)
        assert found, f"{fact!r} is not in, or not before:\n{done.out[at:]}"
        at = found.end()


def test_the_same_story_comes_true_in_redis(redis_server: RedisServer) -> None:
    done = installed("demo", "--once", "--redis", redis_server.url)
    assert "counters are in Redis, for all replicas" in done.out
    assert_story(done)
    keys = redis_server.cli("KEYS", "podgate:{payment-api}:v1:demo-*")
    assert keys
    assert all(redis_server.cli("PTTL", key) > 0 for key in keys), "all of it is gone by itself"


def test_a_redis_that_does_not_answer_ends_the_demo() -> None:
    done = installed("demo", "--once", "--redis", "redis://127.0.0.1:1")
    assert done.code == 2
    assert done.error.startswith("--redis: ")
    assert "give the URL of a Redis that answers" in done.error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_a_demo_that_is_interrupted_takes_its_server_and_its_folder_along(
    tmp_path: Path, number: signal.Signals
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [BIN / "podgate", "demo"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    assert process.stdout is not None
    with process, process.stdout as said:
        for line in said:
            if "alg none" in line:
                break
        assert leftovers(tmp_path)
        (server,) = children_of(process.pid)
        process.send_signal(number)
        rest = said.read()
    assert process.returncode in {0, 130}
    assert TRACE not in rest
    assert not Path(f"/proc/{server}").exists()
    assert leftovers(tmp_path) == []


def test_a_demo_that_stays_up_says_what_to_try_and_ends_cleanly(tmp_path: Path) -> None:
    """A terminal's Ctrl-C reaches demo and server at once: they are one process group."""
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [BIN / "podgate", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )
    assert process.stdout is not None
    with process, process.stdout as said:
        told = ""
        for line in said:
            told += line
            if "policy lint" in line:
                break
        (folder,) = leftovers(tmp_path)
        address = re.search(r"status --server (http://\S+)", told)
        assert address, told
        status = installed("status", "--server", address[1])
        assert (status.code, "payment-api" in status.out) == (0, True), status
        assert installed("policy", "lint", folder / "policy.yaml").code == 0
        (server,) = children_of(process.pid)
        os.killpg(process.pid, signal.SIGINT)
        rest = said.read()
    assert process.returncode in {0, 130}
    assert TRACE not in rest
    assert not Path(f"/proc/{server}").exists()
    assert leftovers(tmp_path) == []
