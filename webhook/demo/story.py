"""Scenes of the demo: rewriting, a quota and a breaker, shown with a real server and real AdmissionReviews."""

import asyncio
import signal
import uuid
import webbrowser
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import click

from webhook.commands.pages.yaml_page import format_diff
from webhook.commands.simulator import (
    Ask,
    apply_patch,
    build_admission_review,
    prepare_for_mutate,
    prepare_for_validate,
)
from webhook.commands.terminal_input import watch_enter
from webhook.core.admission.decision import Half
from webhook.demo.console import ConsoleInputs, show_console
from webhook.demo.environment import OVERRIDES, ApiServer, RunningServer, make_files, read_last_words, run_server
from webhook.errors import UserError

_PODS_A_WINDOW = 3  # as in demo_policy.yaml
_POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "payment-api-7d4b9c-", "labels": {"app": "payment-api"}},
    "spec": {
        "schedulerName": "default-scheduler",
        "containers": [
            {"name": "api", "image": "payment-api:1.4", "resources": {"requests": {"cpu": "250m", "memory": "256Mi"}}}
        ],
        "tolerations": [
            {
                "key": "node.kubernetes.io/not-ready",
                "operator": "Exists",
                "effect": "NoExecute",
                "tolerationSeconds": 300,
            }
        ],
    },
}


async def run(
    folder: Path, redis: str | None, *, once: bool, find_inputs: Callable[[Path], ConsoleInputs] | None = None
) -> None:
    """Run all scenes in a folder; unless `once`, keep the server up until a signal.

    `find_inputs` lets the console act, by the file of overrides, and judge drafts.
    """
    make_files(folder)
    _end_on_signals()
    try:
        async with run_server(folder, redis) as running:
            api = ApiServer(folder, running)
            try:
                inputs = find_inputs(folder / OVERRIDES) if find_inputs is not None else ConsoleInputs()
                await _run_story(Story(folder, running, api), running, once=once, inputs=inputs)
            except aiohttp.ClientError as error:
                raise UserError(f"the server ended: {error}\n{read_last_words(folder / 'server.log')}") from None
            finally:
                await api.close()
    except asyncio.CancelledError:
        click.echo("\nThe server has drained and gone.")


async def _run_story(story: "Story", running: RunningServer, *, once: bool, inputs: ConsoleInputs) -> None:
    await story.run()
    if once:
        return
    async with show_console(running, inputs, story.create_pod) as console:
        story.print_next_steps(console.issue_address())
        watch_enter(lambda: open_browser(console.issue_address()))
        # Ctrl-C in a terminal reaches the server too, which then exits with 0; any other end is an error.
        if await running.process.wait() != 0:
            raise aiohttp.ClientConnectionError(f"it ended with {running.process.returncode}")


def open_browser(address: str) -> None:
    """Open a browser, and print the address for those who have none here: it is the only one that is good now."""
    _print_line(f"console: {address}")
    webbrowser.open(address)


def _end_on_signals() -> None:
    """End cleanly on Ctrl-C, SIGTERM and a closed terminal, so that no server and no folder are left.

    SIGINT needs a handler too: a demo that a script starts in the background inherits SIGINT as ignored.
    """
    task = asyncio.current_task()
    if task is not None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)


class Story:
    """The scenes of the demo, in order."""

    def __init__(self, folder: Path, running: RunningServer, api: ApiServer) -> None:
        self._folder = folder
        self._running = running
        self._api = api

    async def run(self) -> None:
        await self._show_callers()
        await self._show_rewriting()
        await self._show_quota()
        await self._show_breaker()

    async def _show_callers(self) -> None:
        _print_title("A real server, called as an API server calls it")
        _print_line(f"podgate serve answers on https://{self._running.admission} (TLS 1.3, client certificates, JWT)")
        await self._check_store()
        _print_line(f"keys, certificates, policy and log are in {self._folder} while it is up")
        review = build_admission_review(self._build_ask(), prepare_for_mutate(self._build_ask()), Half.MUTATE)
        try:
            await self._api.post("/mutate", review, certificate=False)
            _print_fact("without a client certificate: answered", holds=False)
        except aiohttp.ClientError:
            _print_fact("without a client certificate: no TLS connection", holds=True)
        for caller, token in (("without a token", ""), ("with a token of alg none", "eyJhbGciOiJub25lIn0.e30.")):
            status, _ = await self._api.post("/mutate", review, token=token)
            _print_fact(f"with the certificate, {caller}: {status}", holds=status == HTTPStatus.UNAUTHORIZED)

    async def _show_rewriting(self) -> None:
        _print_title("Rewriting: a Pod of payment-api, as its user wrote it, gets its service's placement")
        ask = self._build_ask()
        answer = await self._api.send("/mutate", build_admission_review(ask, prepare_for_mutate(ask), Half.MUTATE))
        before = prepare_for_mutate(ask)
        after = apply_patch(before, answer)
        for line in format_diff(before, after, "Pod payments/payment-api-7d4b9c-*").splitlines():
            _print_line(line)
        again = await self._api.send("/mutate", build_admission_review(ask, after, Half.MUTATE))
        is_stable = "patch" not in again
        _print_fact(f"asked again with the result: {'no further patch' if is_stable else again}", holds=is_stable)

    async def _check_store(self) -> None:
        store = (await self._api.get_status())["store"]
        if not store["healthy"]:
            raise UserError(f"--redis: {store['error']}", "give the URL of a Redis that answers, or leave it out")
        _print_line(f"counters are in {'this process' if store['kind'] == 'memory' else 'Redis, for all replicas'}")

    async def _show_quota(self) -> None:
        _print_title("Quota: never more than 3 Pods (or 2 CPUs) in any 8 seconds")
        admitted = 0
        while await self._create_pod():
            admitted += 1
        _print_fact(f"{admitted} were admitted", holds=admitted == _PODS_A_WINDOW)
        await self._wait_for_room("the window slides (a place is free after 8s, and at most 1/64 of it more)")
        _print_fact("there is room again", holds=await self._create_pod())

    async def _show_breaker(self) -> None:
        _print_title("Breaker: three denials by quota within a minute open it; then all Pods are denied for 6 seconds")
        while (await self._api.get_service())["breaker"]["state"] == "CLOSED":
            await self._create_pod()
        await self._create_pod()
        last = ""
        while last != "HALF_OPEN":
            breaker = (await self._api.get_service())["breaker"]
            last = breaker["state"]
            left = f" for {breaker['openRemainingSeconds']}s more" if last == "OPEN" else ""
            _print_line(f"{last}{left}: {breaker['reason']}")
            await asyncio.sleep(1)
        _print_line("two probes are admitted; each succeeds when its Pod is admitted and charged")
        for _ in range(2):
            await self._wait_for_room("a probe needs room in the quota, too")
            await self._create_pod()
        breaker = (await self._api.get_service())["breaker"]
        _print_fact(f"{breaker['state']}: {breaker['reason']}", holds=breaker["state"] == "CLOSED")
        _print_title("Its metrics")
        for line in (await self._api.get_metrics()).splitlines():
            shown = line.startswith(("podgate_breaker_transitions", "podgate_breaker_state", "podgate_quota_denied"))
            if shown and not ("_total{" in line and line.endswith(" 0.0")):  # counters that are still 0
                _print_line(line)

    def print_next_steps(self, console: str) -> None:
        plain = f"http://{self._running.plain}"
        _print_title("The server stays up. Try in another terminal (Ctrl-C ends it)")
        _print_line(f"press Enter for the console in a browser, or open {console}")
        for command in (
            f".venv/bin/podgate status --server {plain}",
            f"curl -s {plain}/metrics | grep podgate_breaker",
            f"$EDITOR {self._folder}/policy.yaml    # saved changes apply within about two seconds",
            f"tail -f {self._folder}/server.log",
            f".venv/bin/podgate policy lint {self._folder}/policy.yaml",
        ):
            _print_line(command)

    def _build_ask(self) -> Ask:
        user = "system:serviceaccount:kube-system:replicaset-controller"
        return Ask(_POD, "payments", str(uuid.uuid4()), user)

    async def _wait_for_room(self, why: str) -> None:
        """Wait until the quota admits one more Pod."""
        while free := (await self._api.get_service())["windows"][0]["nextFreeSeconds"]:
            _print_line(f"{why}: {free}s ...")
            await asyncio.sleep(free)

    async def create_pod(self) -> dict[str, Any]:
        """Create one Pod as the API server would, through both halves; return the answer."""
        ask = self._build_ask()
        mutated = await self._api.send("/mutate", build_admission_review(ask, prepare_for_mutate(ask), Half.MUTATE))
        pod = prepare_for_validate(ask, apply_patch(prepare_for_mutate(ask), mutated))
        return await self._api.send("/validate", build_admission_review(ask, pod, Half.VALIDATE))

    async def _create_pod(self) -> bool:
        """Create one Pod; print and return whether it was admitted."""
        answer = await self.create_pod()
        if answer["allowed"]:
            _print_line("Pod admitted", good=True)
        else:
            _print_line(f"Pod denied: {answer['status']['code']} {answer['status']['message']}", good=False)
        return bool(answer["allowed"])


def _print_title(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _print_fact(text: str, *, holds: bool) -> None:
    """Print an observation; UserError if it is not as expected."""
    _print_line(text, good=holds)
    if not holds:
        raise UserError(f"unexpected: {text}", "please report it")


def _print_line(text: str, *, good: bool | None = None) -> None:
    mark = {None: "  ", True: click.style("ok", fg="green"), False: click.style("--", fg="yellow")}[good]
    click.echo(f"  {mark} {text}")
