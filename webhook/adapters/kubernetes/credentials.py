"""Credentials with which the API server calls Podgate: a Secret, read by name, and a service account token."""

import base64
import binascii

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.requests import ApiError, send_request
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.core.document.configmap import NAMESPACE
from webhook.errors import UserError

_CORE = f"/api/v1/namespaces/{NAMESPACE}"


class _Secret(Struct, frozen=True):
    data: dict[str, str] | None = None


class _TokenStatus(Struct, frozen=True):
    token: str


class _TokenRequest(Struct, frozen=True):
    status: _TokenStatus


class ClusterCredentials:
    """A `ports.Credentials`, with the client's permissions."""

    def __init__(self, client: ApiClient, timing: ApiTiming = ApiTiming()) -> None:  # noqa: B008  frozen
        self._client = client
        self._seconds = timing.request_seconds

    async def read_secret(self, name: str) -> dict[str, bytes]:
        """Return the data of a Secret in Podgate's namespace."""
        try:
            found = decode_object(
                await send_request(self._client, "GET", f"{_CORE}/secrets/{name}", self._seconds), _Secret
            )
            return {key: base64.b64decode(text, validate=True) for key, text in (found.data or {}).items()}
        except (ApiError, binascii.Error) as error:
            reason = (
                error.describe(f"get secrets named {name} in {NAMESPACE}")
                if isinstance(error, ApiError)
                else str(error)
            )
            raise UserError(f"secret {NAMESPACE}/{name}: cannot be read: {reason}") from None

    async def request_token(self, account: str, audience: str, lifetime_seconds: int) -> str:
        """Return a token of the cluster's own issuer, for a service account in Podgate's namespace."""
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": [audience], "expirationSeconds": lifetime_seconds},
        }
        path = f"{_CORE}/serviceaccounts/{account}/token"
        try:
            made = decode_object(
                await send_request(self._client, "POST", path, self._seconds, body=body), _TokenRequest
            )
        except ApiError as error:
            reason = error.describe(f"create serviceaccounts/token of {account} in {NAMESPACE}")
            raise UserError(f"serviceaccount {NAMESPACE}/{account}: no token: {reason}") from None
        return made.status.token
