"""Gates of waiting Pods: releases a Pod by removing its gate, or deletes it, never another Pod of the same name."""

from dataclasses import replace

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.client import connect
from webhook.adapters.kubernetes.api.collection import Collection
from webhook.adapters.kubernetes.api.objects import Listed
from webhook.adapters.kubernetes.api.pages import list_objects
from webhook.adapters.kubernetes.api.requests import (
    CONFLICT,
    FORBIDDEN,
    INTERNAL,
    METADATA,
    NOT_FOUND,
    TOO_MANY,
    UNAUTHORIZED,
    UNPROCESSABLE,
    ApiError,
    RefusedError,
    send_request,
)
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.kubernetes.pod import Pod
from webhook.errors import GateError
from webhook.support.kubeconfig import Kubeconfig

_PODS = Collection(
    item=Pod, items=Listed[Pod], path="/api/v1/pods", name="pods", right="list pods in all namespaces", fields=""
)
_REQUEST_SECONDS = 5.0
_PING_SECONDS = 3.0
_ATTEMPTS = 3
"""Attempts at a Pod whose other gates are removed at the same time."""
_OF_ADMISSION = ("admission webhook ", "failed calling webhook ", "ValidatingAdmissionPolicy ")
"""Texts of the API server for a denial by a webhook or policy, which chooses the status. Nothing was written."""
_REASONS = {UNAUTHORIZED: "unauthorized", FORBIDDEN: "forbidden", UNPROCESSABLE: "invalid"}


class PodGates:
    """A `ports.GateClient`. The first attempt expects Podgate's gate to be the Pod's first; else the Pod is read."""

    def __init__(self, client: ApiClient, *, request_seconds: float = _REQUEST_SECONDS) -> None:
        self._client = client
        self._request_seconds = request_seconds

    async def close(self) -> None:
        await self._client.close()

    async def remove(self, namespace: str, name: str, uid: str) -> bool:
        index = 0
        try:
            for _ in range(_ATTEMPTS):
                if (refusal := await self._remove_at(index, namespace, name, uid)) is None:
                    return True
                pod = await self._read(namespace, name)
                if pod is None or pod.metadata.uid != uid:
                    return False
                gates = [gate.name for gate in pod.spec.scheduling_gates or ()]
                if QUEUE_GATE not in gates:
                    return True
                if gates.index(QUEUE_GATE) == index:
                    raise refusal  # the uid and the gate are right: a policy or a webhook denies the change itself
                index = gates.index(QUEUE_GATE)
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status == NOT_FOUND:
                return False
            raise _make_error("release", namespace, name, error, "patch pods in all namespaces") from error
        raise GateError(
            f"{namespace}/{name}", f"cannot release: its gates changed {_ATTEMPTS} times meanwhile", "changed"
        )

    async def delete(self, namespace: str, name: str, uid: str) -> bool:
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await send_request(
                self._client, "DELETE", _build_path(namespace, name), self._request_seconds, body=options
            )
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status in {NOT_FOUND, CONFLICT}:
                return False
            raise _make_error("delete", namespace, name, error, "delete pods in all namespaces") from error
        return True

    async def is_reachable(self) -> bool:
        try:
            await send_request(self._client, "GET", "/readyz", _PING_SECONDS)
        except RefusedError:
            return True  # whatever it says
        except ApiError:
            return False
        return True

    async def _remove_at(self, index: int, namespace: str, name: str, uid: str) -> RefusedError | None:
        """Remove the gate at an index; return a refusal that may mean that the Pod has another uid or gate there."""
        gate = f"/spec/schedulingGates/{index}"
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": uid},
            {"op": "test", "path": f"{gate}/name", "value": QUEUE_GATE},
            {"op": "remove", "path": gate},
        ]
        try:
            path = _build_path(namespace, name)
            await send_request(self._client, "PATCH", path, self._request_seconds, body=patch, accept=METADATA)
        except RefusedError as error:
            if error.status != UNPROCESSABLE:
                raise
            return error
        return None

    async def _read(self, namespace: str, name: str) -> Pod | None:
        asked = replace(_PODS, path=f"/api/v1/namespaces/{namespace}/pods", object_name=name)
        found = await list_objects(self._client, asked, self._request_seconds)
        return found.items[0] if found.items else None


async def open_gates(kubeconfig: Kubeconfig | None) -> PodGates:
    """Return a GateClient with its own connections, so that releases delay no other request."""
    return PodGates(await connect(kubeconfig))


def _build_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _make_error(what: str, namespace: str, name: str, error: ApiError, right: str) -> GateError:
    reason = _classify_error(error)
    said = error.describe(right) if reason != "admission" else str(error)
    return GateError(f"{namespace}/{name}", f"cannot {what}: {said}", reason)


def _classify_error(error: ApiError) -> str:
    if not isinstance(error, RefusedError):
        return "unanswered"
    if any(words in str(error) for words in _OF_ADMISSION):
        return "admission"
    # An overloaded API server is asked again soon, like one that does not answer.
    is_refused = error.status < INTERNAL and error.status != TOO_MANY
    return _REASONS.get(error.status, "refused") if is_refused else "unanswered"
