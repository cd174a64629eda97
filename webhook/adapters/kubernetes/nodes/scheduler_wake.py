"""Wake of kube-scheduler by an update of one StorageClass: a cluster event on which it tries refused Pods again."""

from datetime import UTC, datetime

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.requests import ApiError, answer
from webhook.errors import SchedulerWakeError

NAME = "podgate-wake"
WOKEN_AT = "podgate.io/woken-at"
_PATH = f"/apis/storage.k8s.io/v1/storageclasses/{NAME}"
_ANNOTATION = f"/metadata/annotations/{WOKEN_AT.replace('/', '~1')}"
"""As a JSON Pointer. The manifest of the StorageClass has annotations, so that this one can be added."""
_REQUEST_SECONDS = 5.0


class StorageClassWake:
    """A `ports.SchedulerWake`. The StorageClass provisions nothing; the right to it is bound to its name."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def wake(self) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        patch = [{"op": "add", "path": _ANNOTATION, "value": now}]
        try:
            await answer(self._client, "PATCH", _PATH, _REQUEST_SECONDS, body=patch)
        except ApiError as error:
            raise SchedulerWakeError(f"storageclass {NAME}: {error.describe(f'patch storageclass {NAME}')}") from error
