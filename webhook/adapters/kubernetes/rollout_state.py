"""State of the policy's rollout in a ConfigMap: watched for servers, read and replaced for the leader and commands."""

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.requests import ApiError
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.adapters.kubernetes.self_subject_review import read_own_user
from webhook.adapters.kubernetes.stored_configmap import StoredConfigMap
from webhook.adapters.kubernetes.watched_configmap import WatchedConfigMap
from webhook.core.document.configmap import NAMESPACE, ROLLOUT_STATE, ROLLOUT_STATE_KEY, ConfigMap
from webhook.core.rollout.state import RolloutState, StateError, decode_state, encode_state
from webhook.errors import RolloutError
from webhook.ports import StateReceiver, WatchReports

PLACE = f"configmap {NAMESPACE}/{ROLLOUT_STATE}"


class ConfigMapRolloutState:
    """A `ConfigMapReceiver`. Passes the state to a receiver whenever it changes."""

    def __init__(
        self,
        client: ApiClient,
        receiver: StateReceiver,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
    ) -> None:
        self._receiver = receiver
        self._is_known = False
        self._watched = WatchedConfigMap(client, ROLLOUT_STATE, self, reports, timing)

    async def refresh(self) -> None:
        """Read now, unless that was just done."""
        await self._watched.refresh()

    async def run(self) -> None:
        """Watch until cancelled."""
        await self._watched.run()

    async def on_configmap(self, found: ConfigMap | None) -> None:
        self._is_known = True
        try:
            state = _decode(found)
        except StateError as error:
            await self._receiver.on_unreadable_state(_describe_problem(error))
        else:
            await self._receiver.on_state(state)

    async def on_unread_configmap(self, reason: str) -> None:
        self._is_known = True
        await self._receiver.on_unreadable_state(reason)

    async def on_unreadable_configmap(self, reason: str) -> None:
        if not self._is_known:  # else what was read before still holds
            await self._receiver.on_unreadable_state(reason)


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
        self._seconds = timing.request_seconds
        self._stored = StoredConfigMap(client, ROLLOUT_STATE, timing, dry_run=dry_run)

    async def read(self) -> RolloutState | None:
        try:
            return _decode(await self._stored.read())
        except ApiError as error:
            reason = self._stored.describe_read_failure(error)
            raise RolloutError(reason, error.retry_after_seconds) from None
        except StateError as error:
            raise RolloutError(_describe_problem(error)) from None

    async def write(self, state: RolloutState) -> bool:
        try:
            return await self._stored.write({ROLLOUT_STATE_KEY: encode_state(state)})
        except ApiError as error:
            reason = self._stored.describe_write_failure(error)
            raise RolloutError(reason, error.retry_after_seconds) from None

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
