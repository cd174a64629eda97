"""State of the policy's rollout in a ConfigMap: watched for servers, read and replaced for the leader and commands."""

import asyncio
from typing import Any

import msgspec
from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot, decode_object, list_objects
from webhook.adapters.kubernetes.api.objects import LABELS, Listed, parse_version
from webhook.adapters.kubernetes.api.requests import CONFLICT, ApiError, RefusedError, send_request
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.adapters.kubernetes.self_subject_review import read_own_user
from webhook.core.document.configmap import NAMESPACE, ROLLOUT_STATE, ROLLOUT_STATE_KEY, ConfigMap
from webhook.core.rollout.state import RolloutState, StateError, decode_state, encode_state
from webhook.errors import RolloutError
from webhook.ports import StateReceiver, WatchReports
from webhook.support.condition import Condition

PLACE = f"configmap {NAMESPACE}/{ROLLOUT_STATE}"
_ALL = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_THIS = f"{_ALL}/{ROLLOUT_STATE}"
_STATE = Collection(
    item=ConfigMap,
    items=Listed[ConfigMap],
    path=_ALL,
    name=PLACE,
    right=f"list and watch configmaps named {ROLLOUT_STATE} in {NAMESPACE}",
    object_name=ROLLOUT_STATE,
)


class ConfigMapRolloutState:
    """Passes the state to a receiver whenever it changes."""

    def __init__(
        self,
        client: ApiClient,
        receiver: StateReceiver,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
    ) -> None:
        self._client = client
        self._receiver = receiver
        self._timing = timing
        self._on_contact = reports.on_contact
        self._failure = Condition(reports.on_trouble, reports.on_over)
        self._taking = asyncio.Lock()
        self._version = 0
        """resourceVersion of the newest state processed: a late event does not revert what a refresh has read."""
        self._is_known = False
        self._reading: asyncio.Task[None] | None = None
        self._rested_at = 0.0
        """Earliest time of the next refresh, by the loop's clock."""
        self._watch = Watch(client, _STATE, WatchHandler(self._all, self._one), reports=reports, timing=timing)

    async def refresh(self) -> None:
        """Read now, unless that was just done. Callers share one read; a cancelled caller does not cancel it."""
        if self._reading is None or self._reading.done():
            if asyncio.get_running_loop().time() < self._rested_at:
                return
            self._reading = asyncio.create_task(self._read(), name="rollout-state-read")
        reading = self._reading
        await asyncio.wait([reading])
        if not reading.cancelled():
            reading.result()

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            await self._watch.run()
        finally:
            if self._reading is not None:
                self._reading.cancel()

    async def _read(self) -> None:
        try:
            snapshot = await list_objects(self._client, _STATE, self._timing.refresh_seconds)
        except ApiError as error:
            reason = f"cannot read {PLACE}: {error.describe(_STATE.right)}"
            self._failure.enter(reason)
            if not self._is_known:  # else what was read before still holds
                await self._receiver.on_unreadable_state(reason)
        else:
            self._failure.leave()
            self._on_contact()
            await self._all(snapshot)
        finally:
            self._rested_at = asyncio.get_running_loop().time() + self._timing.cool_down_seconds

    async def _all(self, snapshot: ListSnapshot[ConfigMap]) -> None:
        async with self._taking:
            self._version = parse_version(snapshot.version)
            await self._take(snapshot.items[0] if snapshot.items else None)

    async def _one(self, changed: ConfigMap, deleted: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
        async with self._taking:
            version = parse_version(changed.metadata.resource_version)
            if version > self._version or not version:
                self._version = version
                await self._take(None if deleted else changed)

    async def _take(self, found: ConfigMap | None) -> None:
        self._is_known = True
        try:
            state = _decode(found)
        except StateError as error:
            await self._receiver.on_unreadable_state(_describe_problem(error))
        else:
            await self._receiver.on_state(state)


class ConfigMapRolloutStateStore:
    """A `ports.RolloutStateStore`, with the client's permissions. With `dry_run` writes are only checked."""

    def __init__(
        self,
        client: ApiClient,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
        *,
        dry_run: bool = False,
    ) -> None:
        self._client = client
        self._query = (("dryRun", "All"),) if dry_run else ()
        self._seconds = timing.request_seconds
        self._found: dict[str, Any] | None = None

    async def read(self) -> RolloutState | None:
        try:
            body = await send_request(self._client, "GET", _THIS, self._seconds)
            self._found = decode_object(body, dict[str, Any])
            return _decode(msgspec.convert(self._found, ConfigMap))
        except ApiError as error:
            if error.is_absent:
                self._found = None
                return None
            right = f"get configmaps named {ROLLOUT_STATE} in {NAMESPACE}"
            raise RolloutError(f"cannot read {PLACE}: {error.describe(right)}", error.retry_after_seconds) from None
        except StateError as error:
            raise RolloutError(_describe_problem(error)) from None

    async def write(self, state: RolloutState) -> bool:
        method, path, verb = ("POST", _ALL, "create") if self._found is None else ("PUT", _THIS, "update")
        # The resourceVersion that was read is sent too: a write in between makes this a conflict.
        body = self._found or {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": ROLLOUT_STATE, "namespace": NAMESPACE, "labels": LABELS},
        }
        body = {**body, "data": {ROLLOUT_STATE_KEY: encode_state(state)}}
        try:
            answer = await send_request(self._client, method, path, self._seconds, self._query, body)
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status == CONFLICT:
                return False
            right = f"{verb} configmaps named {ROLLOUT_STATE} in {NAMESPACE}"
            raise RolloutError(f"cannot {verb} {PLACE}: {error.describe(right)}", error.retry_after_seconds) from None
        self._found = decode_object(answer, dict[str, Any])
        return True

    async def read_author(self) -> str:
        """Return the name of the client's user, "" if it is unknown."""
        try:
            return await read_own_user(self._client, self._seconds)
        except ApiError:
            return ""  # an older cluster, or no permission; the cluster's audit log has the user


def _decode(found: ConfigMap | None) -> RolloutState | None:
    text = ((found.data if found is not None else None) or {}).get(ROLLOUT_STATE_KEY)
    return None if text is None else decode_state(text)


def _describe_problem(error: StateError) -> str:
    remedy = f"delete it (kubectl -n {NAMESPACE} delete configmap {ROLLOUT_STATE}): the leader begins a new one"
    return f"{PLACE}: data[{ROLLOUT_STATE_KEY!r}]: {error}: {remedy}"
