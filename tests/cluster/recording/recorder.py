"""A webhook server in a thread that keeps every AdmissionReview that it gets, and answers as Podgate would."""

import asyncio
import base64
import json
import ssl
import threading
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from aiohttp import web

from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.memory_store import MemoryStore
from webhook.core.decision import Half
from webhook.core.document import Purpose, load
from webhook.core.document.configmap import NAME, NAMESPACE
from webhook.core.policy_review import judge
from webhook.interceptor import Interceptor
from webhook.observers import Observers

CONFIGURATIONS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
POLICY_PATH = "validate-policy"
HALVES = tuple(half.value for half in Half)
_NOW_US = 1_800_000_000_000_000
_PODS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/*"], "operations": ["*"]}
_CONFIG_MAPS = {**_PODS, "resources": ["configmaps"], "operations": ["CREATE", "UPDATE"]}

T = TypeVar("T")


@dataclass(frozen=True)
class Call:
    """One review: the path that it came to, and all of its body."""

    path: str
    review: dict[str, Any]

    @property
    def request(self) -> dict[str, Any]:
        found: dict[str, Any] = self.review["request"]
        return found

    @property
    def subject(self) -> str:
        """The name of what is reviewed, or what it will be made of."""
        metadata = (self.request["object"] or {}).get("metadata", {})
        return str(self.request.get("name") or metadata.get("generateName", ""))


class Recorder:
    """Listens on loopback under the given certificate; `calls` and `failures` only ever grow."""

    def __init__(self, policy: bytes, certificate: Path, key: Path) -> None:
        clock = VirtualClock(_NOW_US)
        fixed = FixedPolicy(load(policy, Purpose.SERVE).policy, clock)
        self._interceptor = Interceptor(fixed, MemoryStore(clock), clock, FixedNamespaces(), Observers())
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="recorder", daemon=True)
        self._runner: web.AppRunner | None = None
        self.port = 0
        self.calls: list[Call] = []
        self.failures: list[Exception] = []
        """What Podgate's own code stumbled over."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._open())
        return self

    def __exit__(self, *_: object) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        app = web.Application()
        app.router.add_post("/{path}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context).start()
        self.port = int(self._runner.addresses[0][1])

    async def _close(self) -> None:
        assert self._runner is not None
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            assert connection.transport is not None
            connection.transport.abort()  # to close in good order would be to wait for the API server
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        body, path = await request.read(), request.match_info["path"]
        self.calls.append(Call(path, json.loads(body)))
        try:
            if path == POLICY_PATH:
                answer = judge(body).body
            else:
                answer = (await self._interceptor.review(Half(path), body)).body
        except Exception as error:  # the test in the other thread is to see it, whatever it is
            self.failures.append(error)
            raise
        return web.Response(body=answer, content_type="application/json")

    def configurations(self, namespace: str, authority: Path) -> tuple[dict[str, Any], ...]:
        """Return webhook configurations that ask about all that is done to the Pods of a namespace, and the policy."""
        bundle = base64.b64encode(authority.read_bytes()).decode()

        def webhook(path: str, namespace: str, rule: dict[str, Any], **more: Any) -> dict[str, Any]:
            return {
                "name": f"{path}.recording.podgate.io",
                "admissionReviewVersions": ["v1"],
                "clientConfig": {"url": f"https://127.0.0.1:{self.port}/{path}", "caBundle": bundle},
                "rules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "sideEffects": "NoneOnDryRun",
                # What fails is missed by who waits for it; nobody else shall wait for a recorder that is gone.
                "failurePolicy": "Ignore",
                **more,
            }

        named = {"name": "podgate-policy", "expression": f"request.name == '{NAME}'"}
        mutating, validating = (webhook(path, namespace, _PODS) for path in HALVES)
        of_policy = webhook(POLICY_PATH, NAMESPACE, _CONFIG_MAPS, matchConditions=[named])
        head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "recording"}}
        each = zip(CONFIGURATIONS, ([mutating], [validating, of_policy]), strict=True)
        return tuple({**head, "kind": kind, "webhooks": webhooks} for kind, webhooks in each)
