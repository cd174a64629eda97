"""Waiting Pods, read and deleted by name and uid with the rights of a command's user."""

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.requests import CONFLICT, ApiError, send_request
from webhook.adapters.kubernetes.events.event_object import Happening
from webhook.core.admission.mutation import has_queue_gate
from webhook.core.kubernetes.pod import Pod
from webhook.core.placement import SERVICE_LABEL
from webhook.errors import UserError

_SECONDS = 10.0


class FoundPod(Struct, frozen=True):
    """A Pod of the cluster; `service` is that of its label, "" without one."""

    uid: str
    service: str
    is_gated: bool


class WaitingPods:
    """Requests for single Pods."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def find(self, namespace: str, name: str) -> FoundPod | None:
        """Return a Pod, None if there is none. UserError: it cannot be read."""
        try:
            pod = decode_object(await send_request(self._client, "GET", _path(namespace, name), _SECONDS), Pod)
        except ApiError as error:
            if error.is_absent:
                return None
            right = f"get pods in {namespace}"
            raise UserError(f"pod {namespace}/{name}: {error.describe(right)}") from None
        return FoundPod(pod.metadata.uid, pod.labels.get(SERVICE_LABEL, ""), has_queue_gate(pod))

    async def delete(self, namespace: str, name: str, uid: str) -> None:
        """Delete a Pod. UserError: it cannot be deleted, or its name belongs to another Pod now."""
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await send_request(self._client, "DELETE", _path(namespace, name), _SECONDS, body=options)
        except ApiError as error:
            if error.is_absent or error.status == CONFLICT:
                raise UserError(f"pod {namespace}/{name}: the Pod of uid {uid} is gone") from None
            right = f"delete pods in {namespace}"
            raise UserError(f"pod {namespace}/{name}: {error.describe(right)}") from None

    async def report(self, event: Happening, instance: str) -> str:
        """Write an Event; return the reason if that fails, else ""."""
        try:
            await send_request(self._client, "POST", event.path, _SECONDS, body=event.body(instance))
        except ApiError as error:
            return error.describe(f"create events.events.k8s.io in {event.regarding.namespace}")
        return ""


def _path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"
