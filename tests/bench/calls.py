"""Calls of a scenario for a server: the validating call contains the Pod that the same server has mutated."""

import asyncio
import json
from functools import cache
from typing import Any

import aiohttp

from tests.bench.generator import Call, Expect
from tests.bench.scenario import Case, Scenario
from tests.bench.servers import Target
from tests.bench.traffic import Workload, encode_mutating_review, encode_validating_review, place, renew, user_pod
from tests.harness.server_process import Files
from tests.timeouts import HANG_SECONDS
from webhook.commands.simulator import apply_patch
from webhook.core.admission.decision import Half

_PLACEMENT = ("schedulerName", "affinity", "tolerations")


def placement(pod: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a Pod that the policies change."""
    return {name: pod["spec"].get(name) for name in _PLACEMENT}


class Caller:
    """Single calls to a server, which prepare a scenario."""

    def __init__(self, session: aiohttp.ClientSession, files: Files, target: Target) -> None:
        self._session, self._files, self._target = session, files, target
        self._context = files.pki.context(files.caller)

    async def calls(self, scenario: Scenario) -> list[Call]:
        """Return the calls of a scenario; if it has refusals, fill the quota or open the breaker first."""
        workloads = list(scenario.workloads())
        bodies: dict[Half, list[str]] = {Half.MUTATE: [_make_mutating(workload) for workload in workloads]}
        if Half.VALIDATE in scenario.case.halves:
            bodies[Half.VALIDATE] = await asyncio.gather(*map(self.make_validating, workloads))
        if scenario.case.refusal:
            await self._fill(scenario.case, bodies[Half.VALIDATE][0])
        return [
            Call(f"/{half}?timeout=10s", bodies[half], self._expect(scenario.case, half), scenario.traceparent)
            for half in scenario.case.halves
        ]

    async def make_validating(self, workload: Workload) -> str:
        """Return the body of the validating call for the Pod that the server has mutated; check its placement."""
        pod = user_pod(workload)
        response = await self.ask(Half.MUTATE, _make_mutating(workload))
        after = apply_patch(pod, response)
        if placement(after) != placement(place(pod)):
            raise SystemExit(f"error: {self._target.name}: wrong placement: {json.dumps(placement(after))}")
        return encode_validating_review(workload, after)

    async def ask(self, half: Half, review: str) -> dict[str, Any]:
        """Send a review of a new Pod; return the response."""
        headers = {"Authorization": f"Bearer {self._files.signer.token()}", "Content-Type": "application/json"}
        url = f"https://{self._target.address}/{half}?timeout=10s"
        async with self._session.post(url, data=renew(review), headers=headers, ssl=self._context) as answer:
            text = await answer.text()
            if answer.status != 200:
                raise SystemExit(f"error: {self._target.name}, /{half}: {answer.status}: {text}")
            response: dict[str, Any] = json.loads(text)["response"]
            return response

    async def _fill(self, case: Case, review: str) -> None:
        """Send Pods until they are refused for the reason of this case."""
        async with asyncio.timeout(HANG_SECONDS):
            # The server has no signal for it.
            while case.refusal not in json.dumps(await self.ask(Half.VALIDATE, review)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def _expect(self, case: Case, half: Half) -> Expect:
        if self._target.is_constant:
            return Expect(echoes_uid=False, allowed=True, patch=False, text="")
        return Expect(echoes_uid=True, allowed=not case.refusal, patch=case.patches(half), text=case.refusal)


@cache
def _make_mutating(workload: Workload) -> str:
    return encode_mutating_review(workload, user_pod(workload))
