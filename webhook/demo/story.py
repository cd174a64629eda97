"""Scenes of the demo: rewriting, a quota and a breaker, shown with a real server and real AdmissionReviews."""

import asyncio
import signal
import uuid
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp
import click

from webhook.commands.pages.yaml_page import as_diff
from webhook.commands.simulator import Ask, admission_review, as_sent_to_mutate, as_sent_to_validate, patched
from webhook.core.admission.decision import Half
from webhook.demo.environment import ApiServer, Running, last_words, make_files, server
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


async def run(folder: Path, redis: str | None, *, once: bool) -> None:
    """Run all scenes in a folder; unless `once`, keep the server up until a signal."""
    make_files(folder)
    _end_on_signals()
    try:
        async with server(folder, redis) as running:
            api = ApiServer(folder, running)
            try:
                await _live(Story(folder, running, api), running, once=once)
            except aiohttp.ClientError as error:
                raise UserError(f"the server ended: {error}\n{last_words(folder / 'server.log')}") from None
            finally:
                await api.close()
    except asyncio.CancelledError:
        click.echo("\nThe server has drained and gone.")


async def _live(story: "Story", running: Running, *, once: bool) -> None:
    await story.run()
    if once:
        return
    story.what_next()
    # Ctrl-C in a terminal reaches the server too, which then exits with 0; any other end is an error.
    if await running.process.wait() != 0:
        raise aiohttp.ClientConnectionError(f"it ended with {running.process.returncode}")


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

    def __init__(self, folder: Path, running: Running, api: ApiServer) -> None:
        self._folder = folder
        self._running = running
        self._api = api

    async def run(self) -> None:
        await self._who_may_call()
        await self._rewriting()
        await self._quota()
        await self._breaker()

    async def _who_may_call(self) -> None:
        _title("A real server, called as an API server calls it")
        _say(f"podgate serve answers on https://{self._running.admission} (TLS 1.3, client certificates, JWT)")
        await self._store()
        _say(f"keys, certificates, policy and log are in {self._folder} while it is up")
        review = admission_review(self._ask(), as_sent_to_mutate(self._ask()), Half.MUTATE)
        try:
            await self._api.post("/mutate", review, certificate=False)
            _fact("without a client certificate: answered", holds=False)
        except aiohttp.ClientError:
            _fact("without a client certificate: no TLS connection", holds=True)
        for caller, token in (("without a token", ""), ("with a token of alg none", "eyJhbGciOiJub25lIn0.e30.")):
            status, _ = await self._api.post("/mutate", review, token=token)
            _fact(f"with the certificate, {caller}: {status}", holds=status == HTTPStatus.UNAUTHORIZED)

    async def _rewriting(self) -> None:
        _title("Rewriting: a Pod of payment-api, as its user wrote it, gets its service's placement")
        ask = self._ask()
        answer = await self._api.send("/mutate", admission_review(ask, as_sent_to_mutate(ask), Half.MUTATE))
        before = as_sent_to_mutate(ask)
        after = patched(before, answer)
        for line in as_diff(before, after, "Pod payments/payment-api-7d4b9c-*").splitlines():
            _say(line)
        again = await self._api.send("/mutate", admission_review(ask, after, Half.MUTATE))
        is_stable = "patch" not in again
        _fact(f"asked again with the result: {'no further patch' if is_stable else again}", holds=is_stable)

    async def _store(self) -> None:
        store = (await self._api.status())["store"]
        if not store["healthy"]:
            raise UserError(f"--redis: {store['error']}", "give the URL of a Redis that answers, or leave it out")
        _say(f"counters are in {'this process' if store['kind'] == 'memory' else 'Redis, for all replicas'}")

    async def _quota(self) -> None:
        _title("Quota: never more than 3 Pods (or 2 CPUs) in any 8 seconds")
        admitted = 0
        while await self._create():
            admitted += 1
        _fact(f"{admitted} were admitted", holds=admitted == _PODS_A_WINDOW)
        await self._room("the window slides (a place is free after 8s, and at most 1/64 of it more)")
        _fact("there is room again", holds=await self._create())

    async def _breaker(self) -> None:
        _title("Breaker: three denials by quota within a minute open it; then all Pods are denied for 6 seconds")
        while (await self._api.service())["breaker"]["state"] == "CLOSED":
            await self._create()
        await self._create()
        last = ""
        while last != "HALF_OPEN":
            breaker = (await self._api.service())["breaker"]
            last = breaker["state"]
            left = f" for {breaker['openRemainingSeconds']}s more" if last == "OPEN" else ""
            _say(f"{last}{left}: {breaker['reason']}")
            await asyncio.sleep(1)
        _say("two probes are admitted; each succeeds when its Pod is admitted and charged")
        for _ in range(2):
            await self._room("a probe needs room in the quota, too")
            await self._create()
        breaker = (await self._api.service())["breaker"]
        _fact(f"{breaker['state']}: {breaker['reason']}", holds=breaker["state"] == "CLOSED")
        _title("Its metrics")
        for line in (await self._api.metrics()).splitlines():
            shown = line.startswith(("podgate_breaker_transitions", "podgate_breaker_state", "podgate_quota_denied"))
            if shown and not ("_total{" in line and line.endswith(" 0.0")):  # counters that are still 0
                _say(line)

    def what_next(self) -> None:
        plain = f"http://{self._running.plain}"
        _title("The server stays up. Try in another terminal (Ctrl-C ends it)")
        for command in (
            f".venv/bin/podgate status --server {plain}",
            f"curl -s {plain}/metrics | grep podgate_breaker",
            f"$EDITOR {self._folder}/policy.yaml    # saved changes apply within about two seconds",
            f"tail -f {self._folder}/server.log",
            f".venv/bin/podgate policy lint {self._folder}/policy.yaml",
        ):
            _say(command)

    def _ask(self) -> Ask:
        user = "system:serviceaccount:kube-system:replicaset-controller"
        return Ask(_POD, "payments", str(uuid.uuid4()), user)

    async def _room(self, why: str) -> None:
        """Wait until the quota admits one more Pod."""
        while free := (await self._api.service())["windows"][0]["nextFreeSeconds"]:
            _say(f"{why}: {free}s ...")
            await asyncio.sleep(free)

    async def _create(self) -> bool:
        """Create one Pod as the API server would, through both halves; print and return whether it was admitted."""
        ask = self._ask()
        mutated = await self._api.send("/mutate", admission_review(ask, as_sent_to_mutate(ask), Half.MUTATE))
        pod = as_sent_to_validate(ask, patched(as_sent_to_mutate(ask), mutated))
        answer = await self._api.send("/validate", admission_review(ask, pod, Half.VALIDATE))
        if answer["allowed"]:
            _say("Pod admitted", good=True)
        else:
            _say(f"Pod denied: {answer['status']['code']} {answer['status']['message']}", good=False)
        return bool(answer["allowed"])


def _title(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _fact(text: str, *, holds: bool) -> None:
    """Print an observation; UserError if it is not as expected."""
    _say(text, good=holds)
    if not holds:
        raise UserError(f"unexpected: {text}", "please report it")


def _say(text: str, *, good: bool | None = None) -> None:
    mark = {None: "  ", True: click.style("ok", fg="green"), False: click.style("--", fg="yellow")}[good]
    click.echo(f"  {mark} {text}")
