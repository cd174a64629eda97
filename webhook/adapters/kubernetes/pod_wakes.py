"""Wakes of single Pods: extenders list them in a ConfigMap, and the leading controller annotates them.

An extender may patch that one object only: who may patch Pods can change what they run.
"""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot
from webhook.adapters.kubernetes.api.objects import Listed
from webhook.adapters.kubernetes.api.requests import (
    METADATA,
    NOT_FOUND,
    UNPROCESSABLE,
    ApiError,
    RefusedError,
    send_request,
)
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.core.document.configmap import NAMESPACE, ConfigMap
from webhook.core.json_depth import UNREADABLE_JSON
from webhook.core.scheduling.unschedulable_pods import WOKEN_AT, PodReference
from webhook.errors import SchedulerWakeError
from webhook.ports import WatchReports
from webhook.ports.scheduling import PodWakeHandler

NAME, KEY = "podgate-wake", "pods"
PODS_MAX = 20
"""Pods of one request that are woken: whoever writes the ConfigMap makes the controller do no more."""
_PLACE = f"configmap {NAMESPACE}/{NAME}"
_ALL = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_REQUEST_SECONDS = 5.0
_ANNOTATIONS = "/metadata/annotations"
_WOKEN_AT = f"{_ANNOTATIONS}/{WOKEN_AT.replace('/', '~1')}"
_CONFIGMAPS = Collection(
    item=ConfigMap,
    items=Listed[ConfigMap],
    path=_ALL,
    name=_PLACE,
    right=f"list and watch configmaps named {NAME} in {NAMESPACE}",
    object_name=NAME,
)
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


class _Request(Struct, frozen=True):
    """The Pods, and when they were listed: so no request equals the one before, and the watch shows each."""

    at: str
    pods: tuple[PodReference, ...]


class WakeConfigMap:
    """A `ports.PodWakeRequests`. Each request replaces the one before, which the watch has shown."""

    def __init__(self, client: ApiClient) -> None:
        self._client = client

    async def request(self, pods: Sequence[PodReference]) -> None:
        found = _Request(_format_now(), tuple(pods))
        patch = [{"op": "add", "path": "/data", "value": {KEY: msgspec.json.encode(found).decode()}}]
        try:
            path = f"{_ALL}/{NAME}"
            await send_request(self._client, "PATCH", path, _REQUEST_SECONDS, body=patch, accept=METADATA)
        except ApiError as error:
            right = f"patch configmap {NAME} in {NAMESPACE}"
            raise SchedulerWakeError(f"{_PLACE}: {error.describe(right)}") from error


class RequestedWakes:
    """A `ports.PodWakes`."""

    def __init__(
        self,
        client: ApiClient,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
    ) -> None:
        self._client = client
        self._reports = reports
        self._timing = timing

    async def run(self, handler: PodWakeHandler) -> None:
        last = ""

        async def one(found: ConfigMap, deleted: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
            nonlocal last
            text = (found.data or {}).get(KEY, "")
            if text == last or deleted:
                return
            last = text
            pods = _read_pods(text)
            if pods:
                await handler.on_wake_requested(pods)

        async def everything(snapshot: ListSnapshot[ConfigMap]) -> None:
            for found in snapshot.items:
                await one(found, False)  # noqa: FBT003  as above

        watch_handler = WatchHandler(everything, one)
        await Watch(self._client, _CONFIGMAPS, watch_handler, reports=self._reports, timing=self._timing).run()

    async def wake(self, pod: PodReference, at_us: int) -> bool:
        """Annotate a Pod, which makes the scheduler try it and no other. It asks twice for one without annotations."""
        at = _format_time(datetime.fromtimestamp(at_us / 1e6, UTC))
        try:
            return await self._annotate(pod, [{"op": "add", "path": _WOKEN_AT, "value": at}]) or await self._annotate(
                pod,
                [
                    {"op": "test", "path": _ANNOTATIONS, "value": None},
                    {"op": "add", "path": _ANNOTATIONS, "value": {WOKEN_AT: at}},
                ],
            )
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status == NOT_FOUND:
                return False
            text = error.describe("patch pods in all namespaces").replace(f'"{pod.name}"', "...")
            raise SchedulerWakeError(f"cannot annotate a Pod: {text}") from error

    async def _annotate(self, pod: PodReference, operations: Sequence[dict[str, Any]]) -> bool:
        """Change a Pod, unless it is another one of this name, or bound; return whether it was done."""
        patch = [
            {"op": "test", "path": "/metadata/uid", "value": pod.uid},
            {"op": "test", "path": "/spec/nodeName", "value": None},
            *operations,
        ]
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            await send_request(self._client, "PATCH", path, _REQUEST_SECONDS, body=patch, accept=METADATA)
        except RefusedError as error:
            if error.status != UNPROCESSABLE:
                raise
            return False
        return True


def _read_pods(text: str) -> tuple[PodReference, ...]:
    """Return the Pods of a request; none of one that is not understood: the extender then wakes all itself."""
    try:
        found = msgspec.json.decode(text, type=_Request).pods[:PODS_MAX]
    except UNREADABLE_JSON:
        return ()
    return tuple(pod for pod in found if _NAMESPACE.fullmatch(pod.namespace) and _NAME.fullmatch(pod.name))


def _format_now() -> str:
    return _format_time(datetime.now(UTC))


def _format_time(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
