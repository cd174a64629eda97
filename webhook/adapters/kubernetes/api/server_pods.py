"""Decision ports of ready Pods of Podgate, through the API server's port-forward."""

from collections.abc import Sequence

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.objects import Listed
from webhook.adapters.kubernetes.api.port_forward import get_forwarded
from webhook.adapters.kubernetes.api.requests import NOT_FOUND, ApiError, send_request
from webhook.adapters.kubernetes.api.unread_objects import decode_list
from webhook.core.document.configmap import NAMESPACE
from webhook.core.kubernetes.pod import Pod
from webhook.errors import NoSuchPageError, UserError
from webhook.support.input_files import INPUT_BYTES_MAX

_PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
_SECONDS = 10.0
_OK, _BAD_REQUEST = 200, 400


class PodPorts:
    """A port of the ready Pods with one value of `app.kubernetes.io/name`, with the client's permissions."""

    def __init__(self, client: ApiClient, app: str, port: int) -> None:
        self._client = client
        self._selector = ("labelSelector", f"app.kubernetes.io/name={app}")
        self._port = port
        self.where = f"{NAMESPACE} through {client.configuration.host}"

    async def list_ready(self) -> Sequence[str]:
        """Return the names of the ready Pods; UserError if they cannot be listed."""
        try:
            body = await send_request(self._client, "GET", _PODS, _SECONDS, (self._selector,))
            found, _ = decode_list(body, Listed[Pod], Pod)  # one that cannot be decoded counts as not ready
        except ApiError as error:
            raise UserError(f"{self.where}: {error.describe(f'list pods in {NAMESPACE}')}") from None
        return [pod.metadata.name for pod in found.items or () if _is_ready(pod)]

    async def get(self, pod: str, path: str) -> bytes:
        """Return the body at a path of a Pod's port; UserError if it does not answer."""
        port, name = self._port, f"pod {NAMESPACE}/{pod}, port {self._port}"
        try:
            status, body = await get_forwarded(self._client, f"{_PODS}/{pod}", port, path, _SECONDS, INPUT_BYTES_MAX)
        except ApiError as error:
            raise UserError(f"{name}: {error.describe(f'create pods/portforward in {NAMESPACE}')}") from None
        if status != _OK:
            said = body.decode(errors="replace").strip() if status == _BAD_REQUEST else ""
            kind = NoSuchPageError if status == NOT_FOUND else UserError
            raise kind(f"{name}: HTTP {status}" + (f": {said}" if said else ""))
        return body


class ClusterDecisionPort:
    """The decision port of a ready Pod of `podgate serve`. The first that answers is asked again."""

    def __init__(self, client: ApiClient) -> None:
        self._ports = PodPorts(client, "podgate", 8082)
        self._pod = ""
        self.name = f"a server Pod in {self._ports.where}"

    async def get(self, path: str) -> bytes:
        """Return the body at a path; UserError if no Pod answers, or none is ready."""
        if self._pod:
            return await self._ports.get(self._pod, path)
        errors = []
        for pod in await self._ports.list_ready():
            try:
                body = await self._ports.get(pod, path)
            except UserError as error:
                errors.append(str(error))
            else:
                self._pod = pod
                return body
        raise UserError(f"{self.name}: {'; '.join(errors) or 'no Pod is ready'}")


def _is_ready(pod: Pod) -> bool:
    ready = any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions or ())
    return ready and pod.metadata.deletion_timestamp is None
