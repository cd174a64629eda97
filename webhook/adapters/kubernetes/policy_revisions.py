"""Documents of policies by hash, each in an immutable ControllerRevision, as Kubernetes keeps those of workloads."""

from typing import Any

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.objects import LABELS
from webhook.adapters.kubernetes.api.requests import CONFLICT, ApiError, RefusedError, send_request
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.core.document.configmap import KEY, NAMESPACE, REVISION_PREFIX
from webhook.errors import RolloutError
from webhook.ports import PolicyRevision

_ALL = f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
_HASH_LABEL = "podgate.io/policy-hash"
_NUMBER = "podgate.io/revision"
"""Annotation with the revision's number: a list of metadata has no other place for it."""
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Accept header for a list without the documents."""
_TRIES = 5


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    creation_timestamp: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _Item(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Items(Struct, frozen=True):
    items: tuple[_Item, ...] | None = None


class _Revision(Struct, frozen=True):
    data: dict[str, Any] | None = None


class ControllerRevisions:
    """A `ports.PolicyRevisions`, with the client's permissions."""

    def __init__(
        self,
        client: ApiClient,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
    ) -> None:
        self._client = client
        self._seconds = timing.request_seconds

    async def read(self, policy_hash: str) -> bytes | None:
        try:
            body = await send_request(self._client, "GET", _build_path(policy_hash), self._seconds)
            text = (decode_object(body, _Revision).data or {}).get(KEY)
        except ApiError as error:
            if error.is_absent:
                return None
            raise _convert(error, "get", policy_hash) from None
        return text.encode() if isinstance(text, str) else None

    async def list_all(self) -> tuple[PolicyRevision, ...]:
        query = (("labelSelector", _HASH_LABEL),)
        try:
            body = await send_request(self._client, "GET", _ALL, self._seconds, query, accept=_METADATA_LIST)
            found = decode_object(body, _Items).items or ()
        except ApiError as error:
            raise _convert(error, "list") from None
        kept = [_read_revision(item.metadata) for item in found]
        return tuple(sorted(kept, key=lambda revision: -revision.number))

    async def keep(self, policy_hash: str, document: bytes) -> None:
        for _ in range(_TRIES):
            kept = await self.list_all()
            if kept and kept[0].hash == policy_hash:
                return
            number = kept[0].number + 1 if kept else 1
            is_known = any(revision.hash == policy_hash for revision in kept)
            try:
                await (self._renumber(policy_hash, number) if is_known else self._create(policy_hash, number, document))
            except ApiError as error:
                if isinstance(error, RefusedError) and (error.status == CONFLICT or error.is_absent):
                    continue  # another process has written it, or deleted it
                raise _convert(error, "patch" if is_known else "create", policy_hash) from None
            return
        raise RolloutError(f"cannot keep controllerrevision {_build_name(policy_hash)}: it changes all the time")

    async def delete(self, policy_hash: str) -> None:
        try:
            await send_request(self._client, "DELETE", _build_path(policy_hash), self._seconds)
        except ApiError as error:
            if not error.is_absent:
                raise _convert(error, "delete", policy_hash) from None

    async def _create(self, policy_hash: str, number: int, document: bytes) -> None:
        metadata = {
            "name": _build_name(policy_hash),
            "namespace": NAMESPACE,
            "labels": {**LABELS, _HASH_LABEL: policy_hash},
            "annotations": {_NUMBER: str(number)},
        }
        kind = {"apiVersion": "apps/v1", "kind": "ControllerRevision"}
        body = {**kind, "metadata": metadata, "revision": number, "data": {KEY: document.decode()}}
        await send_request(self._client, "POST", _ALL, self._seconds, body=body)

    async def _renumber(self, policy_hash: str, number: int) -> None:
        """Make a kept document the newest revision; its data cannot change."""
        body = [
            {"op": "replace", "path": "/revision", "value": number},
            {"op": "add", "path": f"/metadata/annotations/{_NUMBER.replace('/', '~1')}", "value": str(number)},
        ]
        await send_request(self._client, "PATCH", _build_path(policy_hash), self._seconds, body=body)


def _build_name(policy_hash: str) -> str:
    return f"{REVISION_PREFIX}{policy_hash}"


def _build_path(policy_hash: str) -> str:
    return f"{_ALL}/{_build_name(policy_hash)}"


def _read_revision(metadata: _Metadata) -> PolicyRevision:
    number = (metadata.annotations or {}).get(_NUMBER, "")
    is_number = number.isascii() and number.isdigit()
    policy_hash = (metadata.labels or {}).get(_HASH_LABEL, "")
    return PolicyRevision(int(number) if is_number else 0, policy_hash, metadata.creation_timestamp)


def _convert(error: ApiError, verb: str, policy_hash: str = "") -> RolloutError:
    name = f" {_build_name(policy_hash)}" if policy_hash else "s"
    right = f"{verb} controllerrevisions.apps in {NAMESPACE}"
    message = f"cannot {verb} controllerrevision{name} in {NAMESPACE}: {error.describe(right)}"
    return RolloutError(message, error.retry_after_seconds)
