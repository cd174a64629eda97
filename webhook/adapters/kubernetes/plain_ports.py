"""GET from plain ports through the API server: from any server by its Service, and from the leader by its Lease."""

from typing import Any
from urllib.parse import quote

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.requests import ApiError, request_document, send_request
from webhook.adapters.kubernetes.leases.lease_object import PLACE, read
from webhook.core.document.configmap import NAMESPACE
from webhook.core.installation.record import RECORD, InstallationRecord
from webhook.errors import UserError
from webhook.support.input_files import INPUT_BYTES_MAX

_POD_PORT = 8081
_SECONDS = 5.0


class LeaderPlainPort:
    """The plain port of the Pod that leads now, with the client's permissions."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.name = f"the leader in {NAMESPACE} through {client.configuration.host}"

    async def get(self, path: str) -> bytes:
        """Return the body at a path of the plain port; UserError if no Pod leads, or it does not answer."""
        try:
            holder = (await read(self._client, _SECONDS)).holder
        except ApiError as error:
            right = f"get leases named podgate-leader in {NAMESPACE}"
            raise UserError(f"{self.name}: {PLACE}: {error.describe(right)}") from None
        if not holder:
            raise UserError(f"{self.name}: {PLACE} has no holder: no controller leads")
        pod = holder.rpartition("_")[0]  # a Lease's holder is the Pod's name and a random suffix
        proxy = f"/api/v1/namespaces/{NAMESPACE}/pods/http:{quote(pod, safe='')}:{_POD_PORT}/proxy"
        try:
            return await request_document(self._client, f"{proxy}{path}", "*/*", _SECONDS, INPUT_BYTES_MAX)
        except ApiError as error:
            raise UserError(f"{self.name}: pod {pod}: {error.describe(f'get pods/proxy in {NAMESPACE}')}") from None


_SERVICE, _PORT = "podgate-metrics", "plain"
_PROXY = f"/api/v1/namespaces/{NAMESPACE}/services/http:{_SERVICE}:{_PORT}/proxy"


class ClusterPlainPort:
    """The plain port of some server behind the Service of the metrics, with the client's permissions."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client
        self.name = f"service {NAMESPACE}/{_SERVICE} through {client.configuration.host}"

    async def read_outside_url(self) -> str | None:
        """Return the URL in the installation's record, for a server outside the cluster. UserError: unreadable."""
        place = f"configmap {NAMESPACE}/{RECORD.name}"
        try:
            found = decode_object(await send_request(self._client, "GET", RECORD.path, _SECONDS), dict[str, Any])
        except ApiError as error:
            if error.is_absent:
                return None
            raise UserError(f"{place}: {error.describe(f'get configmaps in {NAMESPACE}')}") from None
        return InstallationRecord.from_config_map(found).status_url or None

    async def get(self, path: str) -> bytes:
        """Return the body at a path of the plain port; UserError if there is none."""
        try:
            return await request_document(self._client, f"{_PROXY}{path}", "*/*", _SECONDS, INPUT_BYTES_MAX)
        except ApiError as error:
            right = f"get services/proxy named http:{_SERVICE}:{_PORT} in {NAMESPACE}"
            raise UserError(f"{self.name}: {error.describe(right)}") from None
