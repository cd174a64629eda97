"""Plain port of the Pod that leads, through the API server's Pod proxy. The Lease names it."""

from urllib.parse import quote

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.requests import ApiError, request_document
from webhook.adapters.kubernetes.leases.lease_object import PLACE, read
from webhook.core.document.configmap import NAMESPACE
from webhook.errors import UserError
from webhook.support.input_files import INPUT_BYTES_MAX

_PORT = 8081
_SECONDS = 5.0


class LeaderPlainPort:
    """The plain port of whichever Pod leads at the moment, with the client's permissions."""

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
        proxy = f"/api/v1/namespaces/{NAMESPACE}/pods/http:{quote(pod, safe='')}:{_PORT}/proxy"
        try:
            return await request_document(self._client, f"{proxy}{path}", "*/*", _SECONDS, INPUT_BYTES_MAX)
        except ApiError as error:
            raise UserError(f"{self.name}: pod {pod}: {error.describe(f'get pods/proxy in {NAMESPACE}')}") from None
