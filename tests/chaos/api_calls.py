"""Requests of a workload to the API servers: each ends in bounded time, and is recorded with its answer."""

import time
from dataclasses import dataclass
from typing import Any

from tests.chaos.history import DONE, REFUSED, UNKNOWN, Act
from tests.chaos.record import Record
from tests.cluster.api import Api

TIMEOUT_SECONDS = 12.0
"""Above that of a webhook, after which the API server answers."""
_TEXT_MAX = 500
_UNKNOWN = ("etcdserver", "timed out", "timeout", "connection refused")
"""Words of errors of an API server that does not know whether etcd has done it."""


@dataclass
class ApiCalls:
    """Of one administrator, through the address of all API servers."""

    api: Api
    record: Record

    def ask(  # noqa: PLR0913, PLR0917  what is recorded, and what is sent
        self,
        act: str,
        kind: str,
        namespace: str,
        name: str,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        **details: Any,
    ) -> int:
        """Send a request; return its status, 0 without an answer."""
        asked_at, code, message = time.time(), 0, ""
        try:
            code, answer = self.api.request(method, path, body, content_type, TIMEOUT_SECONDS)
            message = "" if code < 300 else _read_message(answer)
        except OSError as error:
            message = f"{type(error).__name__}: {error}"
        found = Act(
            at=asked_at,
            answered_at=time.time(),
            act=act,
            kind=kind,
            namespace=namespace,
            name=name,
            outcome=classify(code, message),
            code=code,
            message=message[:_TEXT_MAX],
            details=details,
        )
        self.record.add_act(found)
        return code

    def list_items(self, path: str) -> list[dict[str, Any]]:
        """Return the objects of a list, none if it cannot be had."""
        try:
            code, answer = self.api.request("GET", path, timeout_seconds=TIMEOUT_SECONDS)
        except OSError:
            return []
        return list(answer["items"]) if code == 200 else []

    def list_pods(self, namespace: str, app: str = "") -> list[dict[str, Any]]:
        """Return Pods in the order of their names that are not being deleted."""
        query = f"?labelSelector=app%3D{app}" if app else ""
        pods = self.list_items(f"/api/v1/namespaces/{namespace}/pods{query}")
        return sorted(
            (pod for pod in pods if "deletionTimestamp" not in pod["metadata"]), key=lambda pod: pod["metadata"]["name"]
        )


def classify(code: int, message: str) -> str:
    """Return the outcome of a request with this status, 0 without one."""
    if 0 < code < 300:
        return DONE
    if not code or code == 504 or (code >= 500 and any(word in message for word in _UNKNOWN)):
        return UNKNOWN
    return REFUSED


def _read_message(answer: Any) -> str:
    return str(answer.get("message", answer)) if isinstance(answer, dict) else str(answer)
