import os
import re
import signal
import subprocess
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import pytest

from tests.cli.command_runner import BIN, TRACE, Done, run_installed
from tests.redis_servers import RedisServer, program, usual_names
from tests.timeouts import HANG_SECONDS
from webhook.demo import story

STORES = usual_names()
pytestmark = pytest.mark.usefixtures("demos")  # the demos run during the short tests

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
    r"-- Pod denied: 503 BreakerOpen: .* open until \S+ \(quotaExceeded: 3 requests",
    r"OPEN for \d+s more",
    r"OPEN for \d+s more",
    r"HALF_OPEN: openFor passed",
    r"two probes are admitted",
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


@dataclass(frozen=True)
class Demo:
    """A running demo, and the parent of its folder."""

    process: subprocess.Popen[str]
    temporary: Path

    @classmethod
    def start(cls, temporary: Path, *arguments: str, **environment: str) -> "Demo":
        """Start a demo in its own process group, as a terminal does."""
        process = subprocess.Popen(
            [BIN / "podgate", "demo", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(temporary), "PYTHONUNBUFFERED": "1", **environment},
            start_new_session=True,
        )
        return cls(process, temporary)

    def done(self) -> Done:
        out, err = self.process.communicate()
        return Done(self.process.returncode, out, err)

    def end(self) -> None:
        """Terminate the demo: its server ends with it."""
        self.process.terminate()
        with self.process:
            pass


@dataclass(frozen=True)
class Demos:
    """All complete demos, run at the same time: each mostly waits."""

    once: Demo
    staying: Demo
    in_redis: dict[str, tuple[Demo, RedisServer]]


@pytest.fixture(scope="module")
def demos(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demos]:
    """Start every demo that a selected test looks at."""
    selected = {item.name for item in request.session.items}
    names = [name for name in STORES if f"{test_story_holds_with_counters_in_redis.__name__}[{name}]" in selected]
    with ExitStack() as stack:

        def start_demo(*arguments: str, **environment: str) -> Demo:
            demo = Demo.start(tmp_path_factory.mktemp("demo"), *arguments, **environment)
            stack.callback(demo.end)
            return demo

        def start_in_redis(name: str) -> tuple[Demo, RedisServer]:
            server = stack.enter_context(RedisServer(program(name), tmp_path_factory.mktemp(name) / "server"))
            return start_demo("--once", "--redis", server.url), server

        foreign_store = "a setting of a real server, which the demo ignores"
        yield Demos(
            start_demo("--once", PODGATE_STORE=foreign_store),
            start_demo(),
            {name: start_in_redis(name) for name in names},
        )


def read_until(demo: Demo, words: str) -> str:
    """Return the output up to a line with these words, or up to its end."""
    assert demo.process.stdout is not None
    output = ""
    for line in demo.process.stdout:
        output += line
        if words in line:
            break
    assert leftovers(demo.temporary)
    return output


def assert_gone(demo: Demo, server: int) -> None:
    assert demo.process.stdout is not None
    rest = demo.process.stdout.read()
    done = demo.done()
    assert done.code in {0, 130}
    assert TRACE not in rest + done.err
    assert not Path(f"/proc/{server}").exists()
    assert leftovers(demo.temporary) == []


def test_unreachable_redis_ends_the_demo() -> None:
    done = run_installed("demo", "--once", "--redis", "redis://127.0.0.1:1")
    assert done.code == 2
    assert done.error.startswith("--redis: ")
    assert "give the URL of a Redis that answers" in done.error


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_interrupted_demo_ends_its_server_and_removes_its_folder(tmp_path: Path, number: signal.Signals) -> None:
    demo = Demo.start(tmp_path)
    read_until(demo, "alg none")
    (server,) = children_of(demo.process.pid)
    demo.process.send_signal(number)
    assert_gone(demo, server)


def test_demo_prints_its_story_in_order_and_leaves_nothing(demos: Demos) -> None:
    done = demos.once.done()
    assert "counters are in this process" in done.out
    assert_story(done)
    assert "\x1b" not in done.out, "no colours where there is no terminal"
    assert not re.search(r"_total\{.*\} 0\.0$", done.out, re.MULTILINE), "only counters above zero"
    assert leftovers(demos.once.temporary) == []


def assert_story(done: Done) -> None:
    assert (done.code, done.err) == (0, "")
    at = 0
    for fact in STORY:
        found = re.compile(fact).search(done.out, at)
        assert found, f"{fact!r} is not in, or not before:\n{done.out[at:]}"
        at = found.end()
    left = [int(seconds) for seconds in re.findall(r" OPEN for (\d+)s more", done.out)]
    assert 6 >= left[0] > left[-1], "openFor counts down, whenever a busy machine looks"


@pytest.mark.parametrize("name", STORES)
def test_story_holds_with_counters_in_redis(demos: Demos, name: str) -> None:
    demo, redis_server = demos.in_redis[name]
    done = demo.done()
    assert "counters are in Redis, for all replicas" in done.out
    assert_story(done)
    keys = redis_server.cli("KEYS", "podgate:{payment-api}:v1:demo-*")
    assert keys
    assert all(redis_server.cli("PTTL", key) > 0 for key in keys), "all keys expire"


def assert_countdown_moves(address: str) -> None:
    """Open the console as a browser would: its breaker opens, and counts down."""
    opener = build_opener(ProxyHandler({}), HTTPCookieProcessor())
    with opener.open(address) as answer:
        assert "payment-api" in answer.read().decode()
    countdowns = set[str]()
    with opener.open(address.partition("/?")[0] + "/api/v1/events?page=/", timeout=HANG_SECONDS) as events:
        while len(countdowns) < 2:
            line = events.readline().decode()
            assert line
            found = re.search(r'"payment-api/countdown":\{"text":"(\d+s)"', line)
            countdowns |= {found[1]} if found else set()


def test_enter_prints_the_address_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a browser on this machine the new address would be lost, and the one before it is void."""
    monkeypatch.setattr(webbrowser, "open", lambda _: False)
    story.open_browser("http://127.0.0.1:1/?token=x")
    assert capsys.readouterr().out.strip().endswith("console: http://127.0.0.1:1/?token=x")


def test_running_demo_shows_commands_and_ends_on_interrupt(demos: Demos) -> None:
    """A terminal's Ctrl-C reaches demo and server at once: they are one process group."""
    demo = demos.staying
    output = read_until(demo, "policy lint")
    (folder,) = leftovers(demo.temporary)
    address = re.search(r"status --server (http://\S+)", output)
    assert address, output
    status = run_installed("status", "--server", address[1])
    assert (status.code, "payment-api" in status.out) == (0, True), status
    assert run_installed("policy", "lint", folder / "policy.yaml").code == 0
    console = re.search(r"press Enter for the console in a browser, or open (http://\S+)", output)
    assert console, output
    assert_countdown_moves(console[1])
    (server,) = children_of(demo.process.pid)
    os.killpg(demo.process.pid, signal.SIGINT)
    assert_gone(demo, server)
