"""JWKS document of the cluster's own token issuer, fetched from the API server (OpenID Connect discovery)."""

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct, json

from webhook.adapters.kubernetes.api.requests import ApiError, request_document
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.errors import UserError
from webhook.ports import KEY_SET_BYTES_MAX, KeyDocument

DISCOVERY = "/.well-known/openid-configuration"
JWKS = "/openid/v1/jwks"
_REQUEST_SECONDS = 2.0
_ACCEPT = "application/jwk-set+json, application/json"
"""The API server answers 406 to a request that accepts plain JSON only."""
_RIGHT = "get these two paths: ClusterRole system:service-account-issuer-discovery grants it"
_REMEDY = f"try kubectl get --raw {DISCOVERY}"


class _Discovery(Struct, frozen=True):
    issuer: str


class ClusterKeys:
    """A KeyPublisher. It ignores `jwks_uri`, which may be outside the cluster; the API server has the same."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def fetch(self) -> KeyDocument:
        try:
            issuer = json.decode(await self._get(DISCOVERY), type=_Discovery).issuer
        except UNREADABLE_JSON as error:
            raise UserError(f"{DISCOVERY}: {error}", _REMEDY) from None
        if not issuer:
            raise UserError(f"{DISCOVERY}: names no issuer", _REMEDY)
        return KeyDocument(JWKS, await self._get(JWKS), issuer)

    async def _get(self, path: str) -> bytes:
        try:
            return await request_document(self._client, path, _ACCEPT, _REQUEST_SECONDS, KEY_SET_BYTES_MAX)
        except ApiError as error:
            raise UserError(f"{path}: {error.describe(_RIGHT)}", _REMEDY) from None
