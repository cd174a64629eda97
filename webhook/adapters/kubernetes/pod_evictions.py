"""Evictions of Pods, each only as it was known: a Pod that has found a node meanwhile stays."""

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.requests import (
    CONFLICT,
    NOT_FOUND,
    TOO_MANY,
    ApiError,
    RefusedError,
    send_request,
)
from webhook.errors import EvictionError
from webhook.ports import EvictionResult

_REQUEST_SECONDS = 5.0
_RIGHT = "create pods/eviction in all namespaces"
_RESULTS = {NOT_FOUND: EvictionResult.GONE, CONFLICT: EvictionResult.CHANGED, TOO_MANY: EvictionResult.BLOCKED}


class KubernetesEvictions:
    """A `ports.PodEvictions`."""

    def __init__(self, client: ApiClient, *, request_seconds: float = _REQUEST_SECONDS) -> None:
        self._client = client
        self._request_seconds = request_seconds

    async def evict(self, namespace: str, name: str, uid: str, version: str) -> EvictionResult:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": {"preconditions": {"uid": uid, "resourceVersion": version}},
        }
        path = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        try:
            await send_request(self._client, "POST", path, self._request_seconds, body=body)
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status in _RESULTS:
                return _RESULTS[error.status]
            raise EvictionError(f"pod {namespace}/{name}: cannot evict: {error.describe(_RIGHT)}") from error
        return EvictionResult.EVICTED
