"""Reviews by the API server: TokenReview and SubjectAccessReview."""

from collections.abc import Mapping
from typing import Any, TypeVar

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.requests import ApiError, send_request
from webhook.errors import UserError
from webhook.ports.viewers import ResourceAccess, ReviewedUser

_TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESSES = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_SECONDS = 5.0
_REMEDY = "bind ClusterRole system:auth-delegator to the user of this server"


class _User(Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: Mapping[str, tuple[str, ...]] | None = None


class _TokenStatus(Struct, frozen=True):
    authenticated: bool = False
    user: _User = _User()


class _TokenReview(Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(Struct, frozen=True):
    allowed: bool = False


class _AccessReview(Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


_Review = TypeVar("_Review")


class KubernetesReviews:
    """Reviews with the client's right to create them."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def find_user(self, token: str) -> ReviewedUser | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._create(_TOKENS, review, _TokenReview)).status
        if not status.authenticated or not status.user.username:
            return None
        user = status.user
        return ReviewedUser(user.username, user.uid, user.groups or (), user.extra or {})

    async def may(self, user: ReviewedUser, access: ResourceAccess) -> bool:
        attributes = {name: text for name, text in access._asdict().items() if text}
        spec = {"user": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {**spec, "resourceAttributes": attributes},
        }
        return (await self._create(_ACCESSES, review, _AccessReview)).status.allowed

    async def _create(self, path: str, review: dict[str, Any], kind: type[_Review]) -> _Review:
        try:
            return decode_object(await send_request(self._client, "POST", path, _SECONDS, body=review), kind)
        except ApiError as error:
            resource = path.rpartition("/")[2]
            raise UserError(f"viewers cannot be judged: {error.describe(f'create {resource}')}", _REMEDY) from None
