"""The policy check: equal results everywhere; in its own process it blocks nothing and leaves nothing."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.adapters.test_policy_file import FakeClock, Recorder, document
from tests.core.document.documents import HEAD, with_service
from tests.core.policy_admission.test_policy_review import GOOD, config_map
from tests.core.reviewing import Gate, policy_of
from tests.harness.policy_checks import ImmediateCheck
from tests.timeouts import HANG_SECONDS
from webhook.adapters.clocks import WallClock
from webhook.adapters.policy_process import parent
from webhook.adapters.policy_process.parent import PolicyProcess
from webhook.core.document import DocumentError, LoadResult, Purpose, load
from webhook.core.document.configmap import ConfigMap
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy.model import LoadedPolicy
from webhook.core.policy_admission.policy_process_codec import CheckResult, encode
from webhook.core.policy_admission.policy_review import DocumentReview, PolicyReview, review_policy
from webhook.errors import CheckFailedError
from webhook.policy.current_policy import CurrentPolicy
from webhook.policy.policy_webhook import PolicyWebhook
from webhook.ports import PolicyCheck

WARNED = HEAD + "services:\n- {name: a, match: {anyNamespace: true}, placement: {nodeSelector: {a: b}}}\n"
BAD = with_service("  slaClass: golden\n  colour: green\n")
MANY = HEAD + "services:\n" + "".join(f"- {{name: s{n}, match: {{namespaces: [n{n}]}}}}\n" for n in range(1000))

REAL = parent._CHILD
FOREVER = "import time; time.sleep(3600)"


def stub(code: str) -> tuple[str, ...]:
    """Return the command of a process that does something else."""
    return (sys.executable, "-c", code)


# One body for both


@pytest.fixture(params=[ImmediateCheck, PolicyProcess])
def check(request: pytest.FixtureRequest) -> PolicyCheck:
    made: PolicyCheck = request.param()
    return made


@pytest.mark.parametrize("text", [GOOD, WARNED, document(5) + "# \u00fcber \U0001f680\n", MANY], ids=len)
async def test_a_good_document_comes_back_as_lint_reads_it(check: PolicyCheck, text: str) -> None:
    assert await check.load(text.encode(), Purpose.SERVE) == load(text.encode(), Purpose.SERVE)


@pytest.mark.parametrize("raw", [BAD.encode(), b"", b"\xff", b"[" * 5000, b"a" * (2 << 20)], ids=len)
async def test_a_bad_document_comes_back_with_the_problems_that_lint_finds(check: PolicyCheck, raw: bytes) -> None:
    with pytest.raises(DocumentError) as expected:
        load(raw, Purpose.SERVE)
    with pytest.raises(DocumentError) as found:
        await check.load(raw, Purpose.SERVE)
    assert found.value.problems == expected.value.problems


async def test_it_is_checked_for_who_asks(check: PolicyCheck) -> None:
    raw = document(5).replace("namespaces: [payments]", "namespaceSelector: {matchLabels: {a: b}}").encode()
    await check.load(raw, Purpose.SERVE)
    with pytest.raises(DocumentError, match="`serve` runs without a cluster"):
        await check.load(raw, Purpose.SERVE_ALONE)


@pytest.mark.parametrize("text", [GOOD, WARNED, BAD])
async def test_a_document_on_its_way_is_answered_as_the_core_does(check: PolicyCheck, text: str) -> None:
    asked = DocumentReview("review-1", "alice", at_the_door(text), at_the_door(GOOD))
    assert await check.review(asked) == review_policy(asked)


def at_the_door(text: str) -> ConfigMap:
    return msgspec.convert(config_map(text), ConfigMap)


# The process


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[asyncio.subprocess.Process]:
    """Return the processes that are started from now on."""
    processes: list[asyncio.subprocess.Process] = []
    real = asyncio.create_subprocess_exec

    async def noted(*arguments: Any, **more: Any) -> asyncio.subprocess.Process:
        processes.append(await real(*arguments, **more))
        return processes[-1]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", noted)
    return processes


def children() -> set[int]:
    """Return the children of this process, dead ones that nobody has waited for included."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        if int(state[1]) == os.getpid():
            found.add(int(stat.parent.name))
    return found


@asynccontextmanager
async def leaving_no_process() -> AsyncIterator[None]:
    before = children()
    yield
    await until(lambda: children() <= before)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110  what is waited for is another process
            await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("code", "words"),
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
async def test_crashed_process_or_invalid_output_is_a_failed_check_with_its_reason(code: str, words: str) -> None:
    async with leaving_no_process():
        with pytest.raises(CheckFailedError) as caught:
            await PolicyProcess(stub(code)).load(b"#" * (1 << 20), Purpose.SERVE)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_process_that_cannot_be_started_is_a_failed_check(tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match="its process cannot be started: No such file"):
        await PolicyProcess((str(tmp_path / "nothing"),)).load(b"", Purpose.SERVE)


async def test_process_without_an_answer_is_stopped() -> None:
    async with leaving_no_process():
        with pytest.raises(CheckFailedError, match=r"not done after 0.1 s, and stopped"):
            await PolicyProcess(stub(FOREVER), timeout_seconds=0.1).load(b"", Purpose.SERVE)


@pytest.mark.parametrize("code", [FOREVER, "import sys\nwhile True: sys.stdout.write('x' * 9999)"])
async def test_a_caller_that_gives_up_takes_its_process_along(
    started: list[asyncio.subprocess.Process], code: str
) -> None:
    async with leaving_no_process():
        asking = asyncio.create_task(PolicyProcess(stub(code)).load(b"#" * (1 << 20), Purpose.SERVE))
        await until(lambda: bool(started))
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
    assert [process.returncode for process in started] == [-9]


@pytest.mark.parametrize("ticks", range(8))
async def test_a_caller_that_gives_up_at_once_leaves_no_process_either(ticks: int) -> None:
    async with leaving_no_process():
        asking = asyncio.create_task(PolicyProcess(stub(FOREVER)).load(b"#" * (1 << 20), Purpose.SERVE))
        for _ in range(ticks):
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking


async def test_there_is_one_process_at_a_time(started: list[asyncio.subprocess.Process]) -> None:
    check = PolicyProcess(stub("print('hello')"))
    alive_at_most = 0

    async def ask() -> None:
        nonlocal alive_at_most
        with pytest.raises(CheckFailedError):
            await check.load(b"", Purpose.SERVE)
        alive_at_most = max(alive_at_most, sum(process.returncode is None for process in started))

    asking = [asyncio.create_task(ask()) for _ in range(4)]
    await until(lambda: bool(started))
    assert [process.returncode for process in started] in ([None], [0])
    await asyncio.gather(*asking)
    assert len(started) == 4
    assert alive_at_most <= 1


async def test_cancelled_waiting_check_starts_no_process(started: list[asyncio.subprocess.Process]) -> None:
    check = PolicyProcess(stub(FOREVER))
    first, second = (asyncio.create_task(check.load(b"", Purpose.SERVE)) for _ in range(2))
    await until(lambda: bool(started))
    for task in (second, first):
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    assert len(started) == 1


async def test_it_gets_nothing_of_the_environment_that_it_does_not_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODGATE_STORE", "redis://:secret@redis")
    with pytest.raises(CheckFailedError) as caught:
        await PolicyProcess(stub("import os, sys; sys.exit(str(sorted(os.environ)))")).load(b"", Purpose.SERVE)
    assert "PYTHONPATH" in str(caught.value)
    assert "PODGATE" not in str(caught.value)


async def test_it_runs_our_code_wherever_the_server_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("webhook", "json", "yaml"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not ours')")
    monkeypatch.chdir(tmp_path)
    assert await PolicyProcess().load(GOOD.encode(), Purpose.SERVE) == load(GOOD.encode(), Purpose.SERVE)


async def test_a_document_that_takes_too_much_memory_is_a_bad_one() -> None:
    large = HEAD + "exemptions: {usernames: [" + "a, " * 200_000 + "]}\n"
    little = (
        "import pathlib, re, sys; from webhook.adapters.policy_process import child;"
        "taken = int(re.search(r'VmData:\\s*(\\d+)', pathlib.Path('/proc/self/status').read_text())[1]) << 10;"
        "child.DATA_BYTES_MAX = taken + (8 << 20); child.main(*sys.argv[1:])"
    )
    with pytest.raises(DocumentError) as caught:
        await PolicyProcess((sys.executable, "-P", "-c", little)).load(large.encode(), Purpose.SERVE)
    [problem] = caught.value.problems
    assert problem.reason.startswith("checking it takes more than ")


# Who asks


class Answering:
    """A check that fails as long as it is told to."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.asked = 0

    async def load(self, raw: bytes, purpose: Purpose) -> LoadResult:
        self.asked += 1
        if self.trouble is not None:
            raise CheckFailedError(self.trouble)
        return load(raw, purpose)

    async def review(self, asked: DocumentReview) -> PolicyReview:
        self.asked += 1
        if self.trouble is not None:
            raise CheckFailedError(self.trouble)
        return review_policy(asked)


async def test_a_check_that_failed_changes_nothing_is_reported_once_and_made_again() -> None:
    recorder, check = Recorder(), Answering()
    keeper = CurrentPolicy(recorder, FakeClock(), check)
    assert await keeper.on_document(document(5).encode(), "policy.yaml")
    before = keeper.current()
    check.trouble = "its process was ended by SIGKILL"
    for _ in range(3):
        assert not await keeper.on_document(document(6).encode(), "policy.yaml")
    told = f"policy.yaml: the policy could not be checked: {check.trouble}: it is tried again when it is read again"
    assert recorder.failed == [(told,)]
    assert keeper.last_errors() == (told,)
    assert keeper.current() is before
    assert check.asked == 4
    check.trouble = "not done after 60 s, and stopped"
    await keeper.on_document(document(6).encode(), "policy.yaml")
    assert len(recorder.failed) == 2
    check.trouble = None
    assert await keeper.on_document(document(6).encode(), "policy.yaml")
    assert keeper.last_errors() == ()
    assert keeper.current() is not before


async def test_a_document_that_was_checked_is_not_checked_again() -> None:
    check = Answering()
    keeper = CurrentPolicy(Recorder(), FakeClock(), check)
    for text in (document(5), document(5), BAD, BAD):
        await keeper.on_document(text.encode(), "policy.yaml")
    assert check.asked == 2


def no_policy() -> LoadedPolicy | None:
    return None


class Door(Recorder):
    """Hears of policies on their way."""

    def __init__(self) -> None:
        super().__init__()
        self.judged: list[tuple[str, Sequence[str]]] = []
        self.documents: list[str] = []

    def policy_judged(self, user: str, errors: Sequence[str], document: str) -> None:
        self.judged.append((user, errors))
        self.documents.append(document)


def asking(text: str, **more: Any) -> bytes:
    request = {
        "uid": "review-1",
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "namespace": "podgate-system",
        "name": "podgate-policy",
        "operation": "CREATE",
        "userInfo": {"username": "alice"},
        "object": config_map(text),
        **more,
    }
    return msgspec.json.encode({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request})


async def test_requests_without_a_policy_are_answered_without_a_process() -> None:
    door, check = Door(), Answering()
    reviewer = PolicyWebhook(door, check, no_policy, WallClock())
    for more in ({"name": "another"}, {"oldObject": config_map(BAD), "operation": "UPDATE"}):
        response = msgspec.json.decode(await reviewer.review(asking(BAD, **more)))["response"]
        assert response["allowed"] is True
    with pytest.raises(BadReviewError):
        await reviewer.review(b"{}")
    assert (check.asked, door.judged) == (0, [])


async def test_policy_that_could_not_be_checked_gets_no_answer() -> None:
    door, check = Door(), Answering()
    check.trouble = "its process was ended by SIGKILL"
    with pytest.raises(CheckFailedError, match="SIGKILL"):
        await PolicyWebhook(door, check, no_policy, WallClock()).review(asking(GOOD))
    assert door.judged == []


async def test_a_policy_on_admission_is_judged_in_a_process_of_its_own(
    started: list[asyncio.subprocess.Process],
) -> None:
    door = Door()
    response = msgspec.json.decode(
        await PolicyWebhook(door, PolicyProcess(), no_policy, WallClock()).review(asking(BAD))
    )["response"]
    assert response["status"]["message"].startswith("PolicyInvalid: the policy has 2 errors")
    [(user, errors)] = door.judged
    assert (user, len(errors)) == ("alice", 2)
    assert len(started) == 1


async def test_reviews_are_answered_while_a_policy_is_checked_and_its_answer_is_then_in_force(tmp_path: Path) -> None:
    """The real check of a large policy, held at its start until the reviews are through."""
    held = (
        f"import os, pathlib, sys, time\nwhile not pathlib.Path({str(tmp_path / 'go')!r}).exists(): time.sleep(0.01)\n"
        f"os.execv({REAL[0]!r}, [*{list(REAL)!r}, *sys.argv[1:]])"
    )
    gate = Gate(policy_of("- {name: web, match: {anyNamespace: true}}"))
    keeper = CurrentPolicy(Recorder(), FakeClock(), PolicyProcess(stub(held)))
    offering = asyncio.create_task(keeper.on_document(MANY.encode(), "policy.yaml"))
    for _ in range(100):
        decision = await gate.mutate()
        assert decision.service == "web"
        await asyncio.sleep(0)
    assert not offering.done()
    assert keeper.current() is None
    (tmp_path / "go").touch()
    assert await offering
    loaded = keeper.loaded()
    assert loaded == load(MANY.encode(), Purpose.SERVE).policy
    reviews = 0
    offering = asyncio.create_task(keeper.on_document((MANY + "# changed\n").encode(), "policy.yaml"))
    while not offering.done():
        await gate.mutate()
        await asyncio.sleep(0)
        reviews += 1
    assert reviews > 100
    assert keeper.loaded() != loaded


async def test_overrides_are_reviewed_against_the_policy_in_force_without_a_process() -> None:
    door, check = Door(), Answering()
    good = load(GOOD.encode(), Purpose.SERVE).policy
    reviewer = PolicyWebhook(door, check, lambda: good, WallClock())
    entry = "- {service: SERVICE, quotaFactor: 2, until: 2099-01-01T00:00:00Z, reason: INC-1}\n"
    for service, is_allowed in (("a", True), ("nope", False)):
        held = {"metadata": {}, "data": {"overrides.yaml": entry.replace("SERVICE", service)}}
        answer = await reviewer.review(asking("", name="podgate-overrides", object=held))
        assert msgspec.json.decode(answer)["response"]["allowed"] is is_allowed
    assert [(user, len(errors)) for user, errors in door.judged] == [("alice", 0), ("alice", 1)]
    assert (check.asked, door.documents) == (0, ["overrides", "overrides"])
