"""User of a client, as its API server knows it."""

import asyncio
from collections.abc import Callable

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.requests import ApiError, send_request
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.support.condition import Condition

_PATH = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
_RIGHT = "create selfsubjectreviews, which every authenticated user has"
_AGAIN_SECONDS = 5.0


class _UserInfo(Struct, frozen=True):
    username: str = ""


class _ReviewStatus(Struct, frozen=True, rename="camel"):
    user_info: _UserInfo = _UserInfo()


class _Review(Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


async def read_own_user(client: ApiClient, timeout_seconds: float) -> str:
    """Return the client's user name. ApiError."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    found = decode_object(await send_request(client, "POST", _PATH, timeout_seconds, body=review), _Review)
    return found.status.user_info.username


class OwnUser:
    """The client's user name, asked for until the API server answers; "" before. `on_trouble`: while it does not."""

    def __init__(
        self,
        client: ApiClient,
        *,
        on_trouble: Callable[[str], None],
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
        again_seconds: float = _AGAIN_SECONDS,
    ) -> None:
        self.name = ""
        self._client = client
        self._seconds = timing.request_seconds
        self._again_seconds = again_seconds
        self._failure = Condition[str](on_trouble, lambda _: None)

    async def run(self) -> None:
        """Ask until there is an answer, then wait until cancelled."""
        while not self.name:
            try:
                self.name = await read_own_user(self._client, self._seconds)
            except ApiError as error:
                self._failure.enter(f"cannot read this server's own user: {error.describe(_RIGHT)}")
                await asyncio.sleep(self._again_seconds)
        await asyncio.Event().wait()
