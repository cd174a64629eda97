"""State of the policy's rollout in a ConfigMap: watched for servers, read and replaced for the leader and commands."""

from typing import Any

import msgspec
from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot, decode_object, list_objects
from webhook.adapters.kubernetes.api.objects import LABELS, Listed
from webhook.adapters.kubernetes.api.requests import CONFLICT, ApiError, RefusedError, send_request
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.adapters.kubernetes.self_subject_review import read_own_user
from webhook.core.document.configmap import NAMESPACE, ROLLOUT_STATE, ROLLOUT_STATE_KEY, ConfigMap
from webhook.core.rollout.state import RolloutState, StateError, decode_state, encode_state
from webhook.errors import RolloutError
from webhook.ports import StateReceiver, WatchReports

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
        self._watch = Watch(client, _STATE, WatchHandler(self._all, self._one), reports=reports, timing=timing)

    async def refresh(self) -> None:
        """Read once, now. ApiError: it cannot be read."""
        await self._all(await list_objects(self._client, _STATE, self._timing.refresh_seconds))

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._watch.run()

    async def _all(self, snapshot: ListSnapshot[ConfigMap]) -> None:
        await self._take(snapshot.items[0] if snapshot.items else None)

    async def _one(self, changed: ConfigMap, deleted: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
        await self._take(None if deleted else changed)

    async def _take(self, found: ConfigMap | None) -> None:
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
