"""NodeMetrics of the metrics API (metrics.k8s.io), as the API server answers."""

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.requests import ApiError, answer
from webhook.errors import LoadSourceError

_PATH = "/apis/metrics.k8s.io/v1beta1/nodes"
_RIGHT = "list nodes in metrics.k8s.io"
_REQUEST_SECONDS = 5.0


class NodeMetrics:
    """A client of the metrics API."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def listed(self) -> bytes:
        """Return a NodeMetricsList as JSON. LoadSourceError: the API server did not answer, or has no such API."""
        try:
            return await answer(self._client, "GET", _PATH, _REQUEST_SECONDS)
        except ApiError as error:
            raise LoadSourceError(f"metricsAPI: {error.describe(_RIGHT)}") from error
