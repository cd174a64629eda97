"""What the API server does with a request for a Pod: both halves, other webhooks, storage, and the audit log."""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import aiohttp

from tests.chaos.checkers.calls import Calling
from tests.chaos.history import DONE, REFUSED, Act, AuditEvent
from tests.chaos.light.servers import LightServer
from tests.chaos.record import Record
from webhook.commands.simulator import (
    Ask,
    apply_patch,
    build_admission_review,
    prepare_for_mutate,
    prepare_for_validate,
)
from webhook.core.admission.decision import Half

NO_ANSWER = (OSError, aiohttp.ClientError, TimeoutError)
OPEN_NAMESPACES = frozenset({"allow", "audited"})
"""Of services that fail open."""
_USER = "alice"
_REPEATED, _DRY_RUN, _REFUSED_BY_OTHERS = 0.12, 0.05, 0.04
_REPEATED_BY_THE_SAME, _REPEATED_AT_ONCE, _REPEAT_SECONDS = 0.75, 0.5, 1.0


class Unanswered(Exception):  # noqa: N818  it is no error of ours
    """No server gave an answer."""


class LightApiServer:
    """Stores Pods. `servers` are those that a Service would lead to."""

    def __init__(self, servers: Sequence[LightServer], token: str, record: Record, random: Random) -> None:
        self._servers = servers
        self._token = token
        self._record = record
        self.audit: list[AuditEvent] = []
        self._random = random
        self._calls = 0

    async def create(self, namespace: str, number: int, cpu: str) -> None:
        """Create one Pod, as a controller or a person asks for it."""
        began, draw = time.time(), self._random.random
        uid, name = f"light-{number:06}", f"web-{number:06}"
        is_dry_run, is_repeated, is_refused = draw() < _DRY_RUN, draw() < _REPEATED, draw() < _REFUSED_BY_OTHERS
        repeat_seconds = 0.0 if draw() < _REPEATED_AT_ONCE else _REPEAT_SECONDS
        waits = (0.0, repeat_seconds) if is_repeated and not is_dry_run else (0.0,)
        container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
        spec = {"schedulerName": "default-scheduler", "containers": [container]}
        pod = {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": spec}
        ask = Ask(pod, namespace, uid, _USER, dry_run=is_dry_run)
        annotations: dict[str, str] = {}
        try:
            stored, code, message = await self._admit(ask, annotations, waits)
        except Unanswered as error:
            stored, code, message = None, 500, f"failed calling webhook: {error}"
        if stored is not None and is_refused:
            stored, code, message = None, 403, 'admission webhook "others.example" denied the request'
        self._write(ask, name, (began, time.time()), (stored, code, message), annotations)

    async def _admit(
        self, ask: Ask, annotations: dict[str, str], waits: Sequence[float]
    ) -> tuple[Mapping[str, Any] | None, int, str]:
        """Call the mutating half, and the validating half after each wait."""
        before = prepare_for_mutate(ask)
        patched, asked_at = before, time.monotonic()
        try:
            response = await self._call(self._choose(), Half.MUTATE, ask, before)
            patched = apply_patch(before, response)
            annotations |= _name(response, "mutate")
        except Unanswered:  # the mutating webhook fails open
            annotations |= _name_failure(Calling.MUTATING, f"{Half.MUTATE}.podgate.io", asked_at)
        after, server = prepare_for_validate(ask, patched), None
        for wait_seconds in waits:
            await asyncio.sleep(wait_seconds)
            asked_at = time.monotonic()
            try:
                server = self._choose(server)
                response = await self._call(server, Half.VALIDATE, ask, after)
            except Unanswered:
                if ask.namespace not in OPEN_NAMESPACES:
                    raise
                annotations |= _name_failure(Calling.VALIDATING, "validate-open.podgate.io", asked_at)
                return after, 201, ""
            annotations |= _name(response, "validate-open" if ask.namespace in OPEN_NAMESPACES else "validate-closed")
            if not response["allowed"]:
                status = response["status"]
                return None, int(status["code"]), f"denied the request: {status['message']}"
        return after, 201, ""

    def _choose(self, before: LightServer | None = None) -> LightServer:
        """Return the server to call: mostly the one that was called before, else the next one or any."""
        self._calls += 1
        serving = [server for server in self._servers if server.is_up]
        if not serving:
            raise Unanswered("no endpoints")
        if before in serving and self._random.random() < _REPEATED_BY_THE_SAME:
            return before
        return serving[self._calls % len(serving)] if self._random.random() < 0.8 else self._random.choice(serving)

    async def _call(self, server: LightServer, half: Half, ask: Ask, pod: Mapping[str, Any]) -> dict[str, Any]:
        body = json.dumps(build_admission_review(ask, pod, half)).encode()
        try:
            answer = await server.post(f"/{half}?timeout=10s", body, self._token)
        except NO_ANSWER as error:
            raise Unanswered(f"{type(error).__name__}: {error}"[:300]) from error
        response: dict[str, Any] = answer["response"]
        return response

    def _write(
        self,
        ask: Ask,
        name: str,
        times: tuple[float, float],
        result: tuple[Mapping[str, Any] | None, int, str],
        annotations: Mapping[str, str],
    ) -> None:
        stored, code, message = result
        began, ended = times
        self.audit.append(
            AuditEvent(
                at=began,
                answered_at=ended,
                part="kube-apiserver",
                audit_id=ask.uid,
                verb="create",
                user=ask.user,
                resource="pods",
                sub_resource="",
                namespace=ask.namespace,
                name=name,
                code=code,
                message=message,
                uri=f"/api/v1/namespaces/{ask.namespace}/pods{'?dryRun=All' if ask.dry_run else ''}",
                annotations=dict(annotations),
                response=stored,
            )
        )
        outcome = DONE if stored is not None else REFUSED
        self._record.add_act(
            Act(
                at=began,
                answered_at=ended,
                act="create",
                kind="Pod",
                namespace=ask.namespace,
                name=name,
                outcome=outcome,
                code=code,
                message=message[:300],
            )
        )


def _name(response: Mapping[str, Any], webhook: str) -> dict[str, str]:
    """Return the annotations of a response as the audit log has them."""
    return {f"{webhook}.podgate.io/{key}": value for key, value in (response.get("auditAnnotations") or {}).items()}


def _name_failure(calling: Calling, webhook: str, asked_at: float) -> dict[str, str]:
    """Return the annotations of a call that failed: its name, and how long it took."""
    return {calling.failure_key: webhook, calling.latency_key: f"{time.monotonic() - asked_at:.3f}s"}
