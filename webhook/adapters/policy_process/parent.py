"""Policy check in one child process per check, so that no review waits for it. Why: docs/design/policy-process.md."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import PIPE
from typing import NamedTuple

import webhook
from webhook.core.document import Purpose
from webhook.core.document.assembly import Assembly, AssemblyRequest
from webhook.core.document.changed_services import NEW
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.policy.model import LoadedPolicy, Service
from webhook.core.policy_changes.policy_process_codec import CheckResult, decode, decode_service, encode
from webhook.core.policy_changes.policy_review import DocumentReview, PolicyReview
from webhook.errors import CheckFailedError
from webhook.support.process_memory import defer_collection

TIMEOUT_SECONDS = 60.0
"""From the process's start. It suffices for the largest policy in a container with a tenth of a core."""

# -P: do not import from the working directory. The environment is not passed on: it holds secrets.
_CHILD = (sys.executable, "-P", "-m", "webhook.adapters.policy_process.child")
_KEPT = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")
_COMPLAINT_CHARACTERS_MAX = 200
_SERVICES_PER_TURN_MAX = 50  # services decoded per turn of the event loop: more would delay reviews


class _Former(NamedTuple):
    """The last valid policy: the child process keeps nothing, and is told what it has found."""

    services: tuple[Service, ...] = ()
    facts: bytes = b""


class PolicyProcess:
    """A `ports.PolicyCheck`: one process at a time."""

    def __init__(self, command: Sequence[str] = _CHILD, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self._command = tuple(command)
        self._timeout_seconds = timeout_seconds
        self._turn = asyncio.Lock()
        self._former = _Former()

    async def load(self, raw: bytes, purpose: Purpose) -> LoadedPolicy:
        former = self._former
        answer = await self._answer(raw + former.facts, "load", purpose, str(len(former.facts)))
        with _sense(), defer_collection():
            outcome = decode(answer, CheckResult)
            services = await _decode_services(outcome, former.services)
        loaded = outcome.build_result(services)
        self._former = _Former(loaded.policy.services, outcome.facts) if outcome.facts else _Former()
        return loaded

    async def assemble(self, asked: AssemblyRequest) -> Assembly:
        answer = await self._answer(encode(asked), "assemble")
        with _sense():
            return decode(answer, Assembly)

    async def review(self, asked: DocumentReview) -> PolicyReview:
        answer = await self._answer(encode(asked), "review")
        with _sense():
            return decode(answer, PolicyReview)

    async def _answer(self, given: bytes, *task: str) -> bytes:
        async with self._turn:
            return await self._run(given, *task)

    async def _run(self, given: bytes, *task: str) -> bytes:
        # Not asyncio's process, for which uvloop forks: that copies the server's page tables and stops the event loop
        # meanwhile. Popen calls vfork.
        command = [*self._command, *task]
        try:
            process = subprocess.Popen(  # noqa: ASYNC220, S603  as above; the command is ours
                command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=_make_environment(), start_new_session=True
            )
        except OSError as error:
            raise CheckFailedError(f"its process cannot be started: {error.strerror or error}") from None
        exchange = asyncio.create_task(asyncio.to_thread(process.communicate, given, self._timeout_seconds))
        try:
            answer, complaint = await asyncio.shield(exchange)
        except subprocess.TimeoutExpired:
            raise CheckFailedError(f"not done after {self._timeout_seconds:g} s, and stopped") from None
        finally:
            await _end(process, exchange)
        if process.returncode:
            raise CheckFailedError(f"its process {_describe_exit(process.returncode)}{_find_last_line(complaint)}")
        return answer


async def _decode_services(outcome: CheckResult, former: Sequence[Service]) -> list[Service]:
    """Return the services of a policy: those of the one before are the same objects."""
    services: list[Service] = []
    decoded = 0
    for place in outcome.places:
        if place != NEW:
            services.append(former[place])
            continue
        services.append(decode_service(outcome.services[decoded]))
        decoded += 1
        if decoded % _SERVICES_PER_TURN_MAX == 0:
            await asyncio.sleep(0)
    return services


def _make_environment() -> dict[str, str]:
    """Return the environment with which Python finds this package, whatever the working directory."""
    kept = {name: os.environ[name] for name in _KEPT if name in os.environ}
    return {**kept, "PYTHONPATH": str(Path(webhook.__path__[0]).parent)}


async def _end(process: "subprocess.Popen[bytes]", exchange: "asyncio.Task[tuple[bytes, bytes]]") -> None:
    """Kill the process if it is running, also if the caller was cancelled, and wait for its end."""
    process.kill()  # has no effect on a process that has ended
    await asyncio.gather(exchange, return_exceptions=True)
    if process.returncode is None:
        await asyncio.to_thread(process.wait)
    with process:  # after a timeout its pipes are open
        pass


@contextmanager
def _sense() -> Iterator[None]:
    """Raise CheckFailedError if the answer cannot be decoded."""
    try:
        yield
    except (ValueError, IndexError, *UNREADABLE_JSON) as error:
        raise CheckFailedError(f"its process returned an unreadable answer: {error}") from None


def _describe_exit(code: int) -> str:
    if code > 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was ended by {signal.Signals(-code).name}"
    return f"was ended by signal {-code}"


def _find_last_line(complaint: bytes) -> str:
    lines = complaint.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f": {last[:_COMPLAINT_CHARACTERS_MAX]}" if last else ""
