"""The policy check: equal results in and outside of its own process, which blocks no review and always ends."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.adapters.policy_file import FakeClock, Recorder, document
from tests.core.document.documents import HEAD, build_document
from tests.core.policy_changes.policy_review import GOOD, config_map, config_map_review
from tests.core.reviewing import Gate, policy_of
from tests.harness.policy_checks import ImmediateCheck
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import WallClock
from webhook.adapters.policy_process import parent
from webhook.adapters.policy_process.parent import PolicyProcess
from webhook.core.document import DocumentError, Purpose, load
from webhook.core.document.changed_services import check_document
from webhook.core.document.configmap import ConfigMap
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_changes.policy_process_codec import CheckResult, encode
from webhook.core.policy_changes.policy_review import DocumentReview, PolicyReview, review_policy
from webhook.errors import CheckFailedError
from webhook.policy_in_force.policy_receiver import PolicyReceiver
from webhook.policy_in_force.policy_webhook import PolicyWebhook
from webhook.ports import PolicyCheck

WARNED = HEAD + "services:\n- {name: a, match: {anyNamespace: true}, placement: {nodeSelector: {a: b}}}\n"
RULED = (Path(__file__).parents[2] / "docs/examples/rules.yaml").read_text()
BOMBS = (Path(__file__).parents[1] / "core/document/bad/rules.yaml").read_bytes()
"""Expressions that would take long or much memory, with others."""
BAD = build_document("  slaClass: golden\n  colour: green\n")
MANY = HEAD + "services:\n" + "".join(f"- {{name: s{n}, match: {{namespaces: [n{n}]}}}}\n" for n in range(1000))

REAL = parent._CHILD
FOREVER = "import time; time.sleep(3600)"


def build_stub_command(code: str) -> tuple[str, ...]:
    """Return the command of a process that runs other code."""
    return (sys.executable, "-c", code)


# Both implementations


@pytest.fixture(params=[ImmediateCheck, PolicyProcess])
def check(request: pytest.FixtureRequest) -> PolicyCheck:
    instance: PolicyCheck = request.param()
    return instance


@pytest.mark.parametrize("text", [GOOD, WARNED, document(5) + "# \u00fcber \U0001f680\n", MANY, RULED], ids=len)
async def test_good_document_is_loaded_as_by_lint(check: PolicyCheck, text: str) -> None:
    assert await check.load(text.encode(), Purpose.SERVE) == load(text.encode(), Purpose.SERVE).policy


@pytest.mark.parametrize("raw", [BAD.encode(), BOMBS, b"", b"\xff", b"[" * 5000, b"a" * (2 << 20)], ids=len)
async def test_bad_document_has_the_problems_that_lint_finds(check: PolicyCheck, raw: bytes) -> None:
    with pytest.raises(DocumentError) as expected:
        load(raw, Purpose.SERVE)
    with pytest.raises(DocumentError) as caught:
        await check.load(raw, Purpose.SERVE)
    assert caught.value.problems == expected.value.problems


async def test_document_is_checked_for_the_given_purpose(check: PolicyCheck) -> None:
    raw = document(5).replace("namespaces: [payments]", "namespaceSelector: {matchLabels: {a: b}}").encode()
    await check.load(raw, Purpose.SERVE)
    with pytest.raises(DocumentError, match="`serve` runs without a cluster"):
        await check.load(raw, Purpose.SERVE_ALONE)


@pytest.mark.parametrize("text", [GOOD, WARNED, BAD])
async def test_document_on_admission_is_reviewed_as_in_the_core(check: PolicyCheck, text: str) -> None:
    request = DocumentReview("review-1", "alice", build_config_map(text), build_config_map(GOOD))
    assert await check.review(request) == review_policy(request)


def build_config_map(text: str) -> ConfigMap:
    return msgspec.convert(config_map(text), ConfigMap)


# The process


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Return the processes that are started from now on."""
    processes: list[subprocess.Popen[bytes]] = []
    original = subprocess.Popen

    def record(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        processes.append(original(*arguments, **options))
        return processes[-1]

    monkeypatch.setattr(subprocess, "Popen", record)
    return processes


def list_children() -> set[int]:
    """Return the children of this process, including zombies."""
    pids = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(state[1]) == os.getpid():
            pids.add(int(stat.parent.name))
    return pids


@asynccontextmanager
async def check_no_process_left() -> AsyncIterator[None]:
    before = list_children()
    yield
    await wait_until(lambda: list_children() <= before)


async def wait_until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110  another process sets no event
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import os; os.kill(os.getpid(), 9)", "its process was ended by SIGKILL"),
        ("import sys; sys.exit('one\\n two \\n\\n')", "its process ended with exit code 1: two"),
        ("import sys; sys.exit(3)", "its process ended with exit code 3"),
        ("print('hello')", "its process returned an unreadable answer: "),
        ("", "its process returned an unreadable answer: "),
        (f"import sys; sys.stdout.buffer.write({encode(CheckResult())[:-1]!r})", "returned an unreadable answer: "),
        (f"import sys; sys.stdout.buffer.write({msgspec.msgpack.encode([1])!r})", "returned an unreadable answer: "),
        ("import sys; sys.stdin.close()", "its process returned an unreadable answer: "),
    ],
)
async def test_crashed_process_or_invalid_output_is_a_failed_check_with_its_reason(code: str, message: str) -> None:
    async with check_no_process_left():
        with pytest.raises(CheckFailedError) as caught:
            await PolicyProcess(build_stub_command(code)).load(b"#" * (1 << 20), Purpose.SERVE)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_process_that_cannot_be_started_is_a_failed_check(tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match="its process cannot be started: No such file"):
        await PolicyProcess((str(tmp_path / "nothing"),)).load(b"", Purpose.SERVE)


async def test_process_without_an_answer_is_stopped() -> None:
    async with check_no_process_left():
        with pytest.raises(CheckFailedError, match=r"not done after 0.1 s, and stopped"):
            await PolicyProcess(build_stub_command(FOREVER), timeout_seconds=0.1).load(b"", Purpose.SERVE)


@pytest.mark.parametrize("code", [FOREVER, "import sys\nwhile True: sys.stdout.write('x' * 9999)"])
async def test_cancelled_check_ends_its_process(started: list[subprocess.Popen[bytes]], code: str) -> None:
    async with check_no_process_left():
        checking = asyncio.create_task(PolicyProcess(build_stub_command(code)).load(b"#" * (1 << 20), Purpose.SERVE))
        await wait_until(lambda: bool(started))
        checking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await checking
    assert [process.returncode for process in started] == [-9]


@pytest.mark.parametrize("ticks", range(8))
async def test_check_cancelled_at_once_leaves_no_process(ticks: int) -> None:
    async with check_no_process_left():
        checking = asyncio.create_task(PolicyProcess(build_stub_command(FOREVER)).load(b"#" * (1 << 20), Purpose.SERVE))
        for _ in range(ticks):
            await asyncio.sleep(0)
        checking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await checking


async def test_there_is_one_process_at_a_time(started: list[subprocess.Popen[bytes]]) -> None:
    check = PolicyProcess(build_stub_command("print('hello')"))
    running_max = 0

    async def check_once() -> None:
        nonlocal running_max
        with pytest.raises(CheckFailedError):
            await check.load(b"", Purpose.SERVE)
        running_max = max(running_max, sum(process.returncode is None for process in started))

    checks = [asyncio.create_task(check_once()) for _ in range(4)]
    await wait_until(lambda: bool(started))
    assert [process.returncode for process in started] in ([None], [0])
    await asyncio.gather(*checks)
    assert len(started) == 4
    assert running_max <= 1


async def test_cancelled_waiting_check_starts_no_process(started: list[subprocess.Popen[bytes]]) -> None:
    check = PolicyProcess(build_stub_command(FOREVER))
    first, second = (asyncio.create_task(check.load(b"", Purpose.SERVE)) for _ in range(2))
    await wait_until(lambda: bool(started))
    for task in (second, first):
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert len(started) == 1


async def test_process_gets_no_settings_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODGATE_STORE", "redis://:secret@redis")
    with pytest.raises(CheckFailedError) as caught:
        await PolicyProcess(build_stub_command("import os, sys; sys.exit(str(sorted(os.environ)))")).load(
            b"", Purpose.SERVE
        )
    assert "PYTHONPATH" in str(caught.value)
    assert "PODGATE" not in str(caught.value)


async def test_process_runs_podgates_code_in_any_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("webhook", "json", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    assert await PolicyProcess().load(GOOD.encode(), Purpose.SERVE) == load(GOOD.encode(), Purpose.SERVE).policy


async def test_of_a_changed_document_only_what_differs_is_returned() -> None:
    check = PolicyProcess()
    former = await check.load(MANY.encode(), Purpose.SERVE)
    changed = MANY.replace("[n500]}}", "[n500]}, slaClass: gold}")
    loaded = await check.load(changed.encode(), Purpose.SERVE)
    assert loaded == load(changed.encode(), Purpose.SERVE).policy
    pairs = zip(loaded.policy.services, former.policy.services, strict=True)
    assert [after.name for after, before in pairs if after is not before] == ["s500"]


async def test_the_last_valid_document_is_the_former_one() -> None:
    check = PolicyProcess()
    former = await check.load(MANY.encode(), Purpose.SERVE)
    with pytest.raises(DocumentError, match="no such SLA class"):
        await check.load(MANY.replace("[n500]}}", "[n500]}, slaClass: best}").encode(), Purpose.SERVE)
    loaded = await check.load((MANY + "# the same\n").encode(), Purpose.SERVE)
    assert loaded.policy.services[0] is former.policy.services[0]
    await check.load(GOOD.encode(), Purpose.SERVE)
    again = await check.load(MANY.encode(), Purpose.SERVE)
    assert again == former
    assert again.policy.services[0] is not former.policy.services[0]


async def test_an_answer_about_services_that_are_not_known_is_a_failed_check() -> None:
    head = check_document(GOOD.encode(), Purpose.SERVE)
    answer = encode(CheckResult.from_checked(msgspec.structs.replace(head, places=(7,), services=())))
    with pytest.raises(CheckFailedError, match="unreadable answer"):
        await PolicyProcess(build_stub_command(f"import sys; sys.stdout.buffer.write({answer!r})")).load(
            GOOD.encode(), Purpose.SERVE
        )


async def test_document_that_needs_too_much_memory_is_invalid() -> None:
    large = HEAD + "exemptions: {usernames: [" + "a, " * 200_000 + "]}\n"
    limited_child = (
        "import pathlib, re, sys; from webhook.adapters.policy_process import child;"
        "taken = int(re.search(r'VmData:\\s*(\\d+)', pathlib.Path('/proc/self/status').read_text())[1]) << 10;"
        "child.DATA_BYTES_MAX = taken + (8 << 20); child.main(*sys.argv[1:])"
    )
    with pytest.raises(DocumentError) as caught:
        await PolicyProcess((sys.executable, "-P", "-c", limited_child)).load(large.encode(), Purpose.SERVE)
    [problem] = caught.value.problems
    assert problem.reason.startswith("checking it takes more than ")


# Callers of the check


class FailingCheck:
    """A check that fails while `error` is set."""

    def __init__(self) -> None:
        self.error: str | None = None
        self.calls = 0

    async def load(self, raw: bytes, purpose: Purpose) -> LoadedPolicy:
        self.calls += 1
        if self.error is not None:
            raise CheckFailedError(self.error)
        return load(raw, purpose).policy

    async def review(self, asked: DocumentReview) -> PolicyReview:
        self.calls += 1
        if self.error is not None:
            raise CheckFailedError(self.error)
        return review_policy(asked)


async def test_failed_check_changes_nothing_is_reported_once_and_retried() -> None:
    recorder, check = Recorder(), FailingCheck()
    current_policy = PolicyReceiver(recorder, FakeClock(), check)
    assert await current_policy.on_document(document(5).encode(), "policy.yaml")
    before = current_policy.get_current()
    check.error = "its process was ended by SIGKILL"
    for _ in range(3):
        assert not await current_policy.on_document(document(6).encode(), "policy.yaml")
    message = f"policy.yaml: the policy could not be checked: {check.error}: it is checked again at its next read"
    assert recorder.failed == [(message,)]
    assert current_policy.list_errors() == (message,)
    assert current_policy.get_current() is before
    assert check.calls == 4
    check.error = "not done after 60 s, and stopped"
    await current_policy.on_document(document(6).encode(), "policy.yaml")
    assert len(recorder.failed) == 2
    check.error = None
    assert await current_policy.on_document(document(6).encode(), "policy.yaml")
    assert current_policy.list_errors() == ()
    assert current_policy.get_current() is not before


async def test_a_document_that_was_checked_is_not_checked_again() -> None:
    check = FailingCheck()
    current_policy = PolicyReceiver(Recorder(), FakeClock(), check)
    for text in (document(5), document(5), BAD, BAD):
        await current_policy.on_document(text.encode(), "policy.yaml")
    assert check.calls == 2


def find_no_policy() -> LoadedPolicy | None:
    return None


class ReviewRecorder(Recorder):
    """Records the reviewed documents."""

    def __init__(self) -> None:
        super().__init__()
        self.policy_reviews: list[tuple[str, Sequence[str]]] = []
        self.documents: list[str] = []

    def on_policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        self.policy_reviews.append((user, errors))
        self.documents.append(document)


async def test_requests_without_a_policy_are_answered_without_a_process() -> None:
    recorder, check = ReviewRecorder(), FailingCheck()
    reviewer = PolicyWebhook(recorder, check, find_no_policy, WallClock())
    for changes in ({"name": "another"}, {"oldObject": config_map(BAD), "operation": "UPDATE"}):
        response = msgspec.json.decode(await reviewer.review(config_map_review(BAD, **changes)))["response"]
        assert response["allowed"] is True
    with pytest.raises(BadReviewError):
        await reviewer.review(b"{}")
    assert (check.calls, recorder.policy_reviews) == (0, [])


async def test_policy_that_could_not_be_checked_gets_no_answer() -> None:
    recorder, check = ReviewRecorder(), FailingCheck()
    check.error = "its process was ended by SIGKILL"
    with pytest.raises(CheckFailedError, match="SIGKILL"):
        await PolicyWebhook(recorder, check, find_no_policy, WallClock()).review(config_map_review(GOOD))
    assert recorder.policy_reviews == []


async def test_policy_on_admission_is_reviewed_in_its_own_process(
    started: list[subprocess.Popen[bytes]],
) -> None:
    recorder = ReviewRecorder()
    response = msgspec.json.decode(
        await PolicyWebhook(recorder, PolicyProcess(), find_no_policy, WallClock()).review(config_map_review(BAD))
    )["response"]
    assert response["status"]["message"].startswith("PolicyInvalid: the policy has 2 errors")
    [(user, errors)] = recorder.policy_reviews
    assert (user, len(errors)) == ("alice", 2)
    assert len(started) == 1


async def test_reviews_are_answered_while_a_policy_is_checked_and_then_it_is_in_force(tmp_path: Path) -> None:
    """The real check of a large policy, paused at its start until the reviews are answered."""
    held_code = (
        f"import os, pathlib, sys, time\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)\n"
        f"os.execv({REAL[0]!r}, [*{list(REAL)!r}, *sys.argv[1:]])"
    )
    gate = Gate(policy_of("- {name: web, match: {anyNamespace: true}}"))
    current_policy = PolicyReceiver(Recorder(), FakeClock(), PolicyProcess(build_stub_command(held_code)))
    offering = asyncio.create_task(current_policy.on_document(MANY.encode(), "policy.yaml"))
    for _ in range(100):
        decision = await gate.mutate()
        assert decision.service == "web"
        await asyncio.sleep(0)
    assert not offering.done()
    assert current_policy.get_current() is None
    (tmp_path / "go").touch()
    assert await offering
    loaded = current_policy.get_loaded()
    assert loaded == load(MANY.encode(), Purpose.SERVE).policy
    reviews = 0
    offering = asyncio.create_task(current_policy.on_document((MANY + "# changed\n").encode(), "policy.yaml"))
    while not offering.done():
        await gate.mutate()
        await asyncio.sleep(0)
        reviews += 1
    assert reviews > 100
    assert current_policy.get_loaded() != loaded


async def test_overrides_are_reviewed_against_the_policy_in_force_without_a_process() -> None:
    recorder, check = ReviewRecorder(), FailingCheck()
    good = load(GOOD.encode(), Purpose.SERVE).policy
    reviewer = PolicyWebhook(recorder, check, lambda: good, WallClock())
    entry = "- {service: SERVICE, quotaFactor: 2, until: 2099-01-01T00:00:00Z, reason: INC-1}\n"
    for service, is_allowed in (("a", True), ("nope", False)):
        overrides = {"metadata": {}, "data": {"overrides.yaml": entry.replace("SERVICE", service)}}
        answer = await reviewer.review(config_map_review("", name="podgate-overrides", object=overrides))
        assert msgspec.json.decode(answer)["response"]["allowed"] is is_allowed
    assert [(user, len(errors)) for user, errors in recorder.policy_reviews] == [("alice", 0), ("alice", 1)]
    assert (check.calls, recorder.documents) == (0, ["overrides", "overrides"])
