"""`podgate demo`: the main job on loopback. Nothing in it is staged: a real server answers real AdmissionReviews."""

import asyncio
import tempfile
import uuid
from pathlib import Path
from typing import Any

import aiohttp
import click

from webhook.cli.apiserver import Ask, admission_review, as_sent_to_mutate, as_sent_to_validate, patched
from webhook.cli.demo_world import ApiServer, Running, make_files, server
from webhook.cli.output import as_diff
from webhook.core.decision import Half
from webhook.errors import UserError

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


@click.command()
@click.option("--once", is_flag=True, help="exit when the story is told, instead of staying up")
@click.option("--redis", help="not supported yet: count in Redis")
def demo(*, once: bool, redis: str | None) -> None:
    """Show the main job on loopback in a minute: mutual TLS, JWT, rewriting, a quota, a breaker. Needs no cluster."""
    if redis is not None:
        raise UserError("--redis: not supported yet", "this version counts in process: leave it out")
    with tempfile.TemporaryDirectory(prefix="podgate-demo-") as folder:
        make_files(Path(folder))
        asyncio.run(_tell(Path(folder), once=once))


async def _tell(folder: Path, *, once: bool) -> None:
    async with server(folder) as running:
        api = ApiServer(folder, running)
        try:
            story = Story(folder, running, api)
            await story.tell()
            if not once:
                story.what_next()
                await running.process.wait()
        except asyncio.CancelledError:
            click.echo()  # Ctrl-C: the server drains and goes
        finally:
            await api.close()


class Story:
    """What a newcomer needs to see, in order."""

    def __init__(self, folder: Path, running: Running, api: ApiServer) -> None:
        self._folder = folder
        self._running = running
        self._api = api

    async def tell(self) -> None:
        await self._who_may_call()
        await self._rewriting()
        await self._quota()
        await self._breaker()

    async def _who_may_call(self) -> None:
        _title("A real server, called as an API server calls it")
        _say(f"podgate serve answers on https://{self._running.admission} (TLS 1.3, client certificates, JWT)")
        _say(f"keys, certificates, policy and log are in {self._folder}")
        review = admission_review(self._ask(), as_sent_to_mutate(self._ask()), Half.MUTATE)
        try:
            await self._api.post("/mutate", review, certificate=False)
            _say("without a client certificate: answered, and that is a defect", good=False)
        except aiohttp.ClientError:
            _say("without a client certificate: no TLS connection", good=True)
        status, _ = await self._api.post("/mutate", review, token="")
        _say(f"with the certificate, without a token: {status}", good=status == 401)  # noqa: PLR2004
        status, _ = await self._api.post("/mutate", review, token="eyJhbGciOiJub25lIn0.e30.")  # noqa: S106  no secret
        _say(f"with a token of alg none: {status}", good=status == 401)  # noqa: PLR2004

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
        _say(f"asked again with the result: {'no further patch' if is_stable else again}", good=is_stable)

    async def _quota(self) -> None:
        _title("Quota: never more than 3 Pods (or 2 CPUs) in any 8 seconds")
        while True:
            allowed = await self._create()
            if not allowed:
                break
        free = (await self._api.status())["windows"][0]["nextFreeSeconds"]
        _say(f"the window slides: room again in {free:.1f}s ...")
        await asyncio.sleep(free)
        await self._create()

    async def _breaker(self) -> None:
        _title("Breaker: three denials by quota within a minute open it; then nothing is let in for 6 seconds")
        while (await self._api.status())["breaker"]["state"] == "CLOSED":
            await self._create()
        await self._create()
        last = ""
        while last != "HALF_OPEN":
            breaker = (await self._api.status())["breaker"]
            last = breaker["state"]
            _say(f"{last:9} {breaker['openRemainingSeconds']:4.1f}s left: {breaker['reason']}")
            await asyncio.sleep(1)
        free = (await self._api.status())["windows"][0]["nextFreeSeconds"]
        await asyncio.sleep(free)
        _say("two probes are let in; each succeeds when its Pod is admitted and charged")
        for _ in range(2):
            await self._create()
        breaker = (await self._api.status())["breaker"]
        _say(f"{breaker['state']}: {breaker['reason']}", good=breaker["state"] == "CLOSED")
        _title("What a scrape shows of it")
        for line in (await self._api.metrics()).splitlines():
            if line.startswith(("podgate_breaker_transitions", "podgate_breaker_state", "podgate_quota_denied")):
                _say(line)

    def what_next(self) -> None:
        plain = f"http://{self._running.plain}"
        _title("The server stays up. Try in another terminal (Ctrl-C ends it)")
        for command in (
            f".venv/bin/podgate status --server {plain}",
            f"curl -s {plain}/metrics | grep podgate_breaker",
            f"$EDITOR {self._folder}/policy.yaml    # saved, it acts on the next Pod",
            f"tail -f {self._folder}/server.log",
            f".venv/bin/podgate policy lint {self._folder}/policy.yaml",
        ):
            _say(command)

    def _ask(self) -> Ask:
        user = "system:serviceaccount:kube-system:replicaset-controller"
        return Ask(_POD, "payments", str(uuid.uuid4()), user)

    async def _create(self) -> bool:
        """Create one Pod as the API server would, through both halves; say what came of it."""
        ask = self._ask()
        mutated = await self._api.send("/mutate", admission_review(ask, as_sent_to_mutate(ask), Half.MUTATE))
        pod = as_sent_to_validate(ask, patched(as_sent_to_mutate(ask), mutated))
        answer = await self._api.send("/validate", admission_review(ask, pod, Half.VALIDATE))
        if answer["allowed"]:
            _say("admitted", good=True)
        else:
            _say(f"denied {answer['status']['code']} {answer['status']['message']}", good=False)
        return bool(answer["allowed"])


def _title(text: str) -> None:
    click.secho(f"\n{text}", bold=True)


def _say(text: str, *, good: bool | None = None) -> None:
    mark = {None: "  ", True: click.style("ok", fg="green"), False: click.style("no", fg="yellow")}[good]
    click.echo(f"  {mark} {text}")
