"""Held controllers: a watch of their FailedCreate Events, their state, and the annotation that wakes them.

Reads and writes use the `status` subresource: it changes annotations too, but the API server ignores any change of
`spec`. So a stolen token of this account cannot change what a controller runs.
"""

import re
from datetime import UTC, datetime
from typing import Any

from kubernetes_asyncio.client import ApiClient
from msgspec.structs import replace

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot, decode_object
from webhook.adapters.kubernetes.api.objects import Listed
from webhook.adapters.kubernetes.api.requests import NOT_FOUND, ApiError, RefusedError, send_request
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.core.controller.held_controller import (
    CREATING_KINDS,
    ControllerReference,
    CreatingController,
    identify_held_controller,
)
from webhook.core.diagnosis.objects import ReportedEvent
from webhook.core.pods.ownership import parse_moment_us
from webhook.errors import ControllerAccessError
from webhook.ports import CreationFailureHandler, WatchReports

ANNOTATION = "podgate.io/retry-at"
FIELD_MANAGER = "podgate-retries"

_EVENTS = Collection(
    item=ReportedEvent,
    items=Listed[ReportedEvent],
    path="/api/v1/events",
    name="events",
    right="list and watch events in all namespaces (ClusterRole podgate-retries)",
    fields="reason=FailedCreate",
)
_RIGHT = "get and patch the status of what creates Pods (ClusterRole podgate-retries)"
_OTHER_UID = 422
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")


class HeldControllers:
    """A `ports.ControllerClient`. It stores no Events."""

    def __init__(
        self,
        client: ApiClient,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
        request_seconds: float = 5.0,
    ) -> None:
        self._client = client
        self._reports = reports
        self._timing = timing
        self._request_seconds = request_seconds

    async def run(self, handler: CreationFailureHandler) -> None:
        async def everything(listed: ListSnapshot[ReportedEvent]) -> None:
            for event in sorted(listed.items, key=lambda event: event.at):
                await _pass_on(handler, event)

        async def one(event: ReportedEvent, deleted: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
            if not deleted:  # it has expired
                await _pass_on(handler, event)

        watch_handler = WatchHandler(everything, one)
        await Watch(self._client, _EVENTS, watch_handler, reports=self._reports, timing=self._timing).run()

    async def find(self, controller: ControllerReference) -> CreatingController | None:
        body = await self._request("GET", controller)
        if body is None:
            return None
        try:
            found = decode_object(body, CreatingController)
        except ApiError as error:
            raise _make_error("read", controller, error) from error
        return replace(found, kind=controller.kind) if found.metadata.uid == controller.uid else None

    async def wake(self, controller: ControllerReference, at_us: int) -> bool:
        moment = datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds")
        metadata = {
            "name": controller.name,
            "uid": controller.uid,  # the API server rejects it for another object of this name
            "annotations": {ANNOTATION: moment.replace("+00:00", "Z")},
        }
        kind = CREATING_KINDS[controller.kind]
        applied = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
        return await self._request("PATCH", controller, applied) is not None

    async def _request(self, method: str, controller: ControllerReference, applied: Any = None) -> bytes | None:
        if not _NAME.fullmatch(controller.name) or not _NAME.fullmatch(controller.namespace):
            return None  # from an Event: an invalid name must not become part of a path
        kind = CREATING_KINDS[controller.kind]
        root = f"/apis/{kind.group}/v1" if kind.group else "/api/v1"
        path = f"{root}/namespaces/{controller.namespace}/{kind.resource}/{controller.name}/status"
        query = (("fieldManager", FIELD_MANAGER), ("force", "true")) if applied is not None else ()
        try:
            return await send_request(self._client, method, path, self._request_seconds, query, applied)
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status in {NOT_FOUND, _OTHER_UID}:
                return None
            raise _make_error("read" if applied is None else "wake", controller, error) from error


async def _pass_on(handler: CreationFailureHandler, event: ReportedEvent) -> None:
    found = identify_held_controller(event)
    if found is not None:
        controller, is_held = found
        await handler.on_creation_failed(controller, at_us=parse_moment_us(event.at), is_held=is_held)


def _make_error(what: str, controller: ControllerReference, error: ApiError) -> ControllerAccessError:
    text = error.describe(_RIGHT).replace(f'"{controller.name}"', "...")
    return ControllerAccessError(f"cannot {what} a {controller.kind}: {text}", error.retry_after_seconds)
