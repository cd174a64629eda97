"""Documents of policies by hash, each in an immutable ControllerRevision, as Kubernetes keeps those of workloads."""

import asyncio
from typing import Any

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.objects import LABELS
from webhook.adapters.kubernetes.api.requests import CONFLICT, ApiError, RefusedError, send_request
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.core.document.configmap import KEY, NAMESPACE, REVISION_PREFIX, SIGNATURE_KEY
from webhook.errors import RolloutError, SignatureError
from webhook.ports import DocumentSignatures, PolicyRevision

_ALL = f"/apis/apps/v1/namespaces/{NAMESPACE}/controllerrevisions"
_HASH_LABEL = "podgate.io/policy-hash"
_NUMBER = "podgate.io/revision"
"""Annotation with the revision's number: a list of metadata has no other place for it."""
_SIGNED = "podgate.io/signed"
"""Annotation of a revision that has a signature."""
_IN_FORCE = "podgate.io/was-in-force"
"""Annotation of a revision that is or was in force, and not only a candidate."""
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Accept header for a list without the documents."""
_TRUE = "true"
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
    """A `ports.PolicyRevisions`, with the client's permissions. A document is kept with its signature.

    Without `signatures` every document is returned.
    """

    def __init__(
        self,
        client: ApiClient,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
        signatures: DocumentSignatures | None = None,
    ) -> None:
        self._signatures = signatures
        self._client = client
        self._seconds = timing.request_seconds

    async def read(self, policy_hash: str) -> bytes | None:
        try:
            body = await send_request(self._client, "GET", _build_path(policy_hash), self._seconds)
            data = decode_object(body, _Revision).data or {}
        except ApiError as error:
            if error.is_absent:
                return None
            raise _convert(error, "get", policy_hash) from None
        text = data.get(KEY)
        if not isinstance(text, str):
            return None
        await self._verify(policy_hash, text.encode(), data.get(SIGNATURE_KEY))
        return text.encode()

    async def _verify(self, policy_hash: str, document: bytes, signature: Any) -> None:
        if self._signatures is None:
            return
        place = f"controllerrevision {NAMESPACE}/{_build_name(policy_hash)}: data[{SIGNATURE_KEY!r}]"
        text = signature if isinstance(signature, str) else None
        try:
            await asyncio.to_thread(self._signatures.verify, document, text, place)
        except SignatureError as error:
            raise RolloutError(str(error)) from None

    async def list_all(self) -> tuple[PolicyRevision, ...]:
        return tuple(_read_revision(found) for found in await self._list())

    async def _list(self) -> "list[_Metadata]":
        """Return the metadata of what is kept, the newest first."""
        query = (("labelSelector", _HASH_LABEL),)
        try:
            body = await send_request(self._client, "GET", _ALL, self._seconds, query, accept=_METADATA_LIST)
            found = decode_object(body, _Items).items or ()
        except ApiError as error:
            raise _convert(error, "list") from None
        return sorted((item.metadata for item in found), key=lambda metadata: -_read_revision(metadata).number)

    async def keep(self, policy_hash: str, document: bytes) -> None:
        data, was_in_force = self._build_data(document), False
        for _ in range(_TRIES):
            kept = await self._list()
            found = next((metadata for metadata in kept if _read_revision(metadata).hash == policy_hash), None)
            was_in_force |= found is not None and _read_revision(found).was_in_force
            if found is not None and SIGNATURE_KEY in data and not _is_marked(found, _SIGNED):
                await self.delete(policy_hash)  # its data cannot change, and servers would not accept it
                found = None
            elif found is not None and found is kept[0]:
                return
            number = _read_revision(kept[0]).number + 1 if kept else 1
            try:
                if found is not None:
                    await self._renumber(policy_hash, number)
                else:
                    await self._create(policy_hash, number, data, was_in_force=was_in_force)
            except ApiError as error:
                if isinstance(error, RefusedError) and (error.status == CONFLICT or error.is_absent):
                    continue  # another process has written it, or deleted it
                raise _convert(error, "create" if found is None else "patch", policy_hash) from None
            return
        raise RolloutError(f"cannot keep controllerrevision {_build_name(policy_hash)}: it changes all the time")

    def _build_data(self, document: bytes) -> dict[str, str]:
        """Return the document with the signature by which it was accepted."""
        signature = None if self._signatures is None else self._signatures.find(document)
        return {KEY: document.decode(), **({SIGNATURE_KEY: signature} if signature else {})}

    async def mark_in_force(self, policy_hash: str) -> None:
        body = [_build_annotation(_IN_FORCE, _TRUE)]
        try:
            await send_request(self._client, "PATCH", _build_path(policy_hash), self._seconds, body=body)
        except ApiError as error:
            if not error.is_absent:
                raise _convert(error, "patch", policy_hash) from None

    async def delete(self, policy_hash: str) -> None:
        try:
            await send_request(self._client, "DELETE", _build_path(policy_hash), self._seconds)
        except ApiError as error:
            if not error.is_absent:
                raise _convert(error, "delete", policy_hash) from None

    async def _create(self, policy_hash: str, number: int, data: dict[str, str], *, was_in_force: bool) -> None:
        marks = ((_SIGNED, SIGNATURE_KEY in data), (_IN_FORCE, was_in_force))
        metadata = {
            "name": _build_name(policy_hash),
            "namespace": NAMESPACE,
            "labels": {**LABELS, _HASH_LABEL: policy_hash},
            "annotations": {_NUMBER: str(number), **{name: _TRUE for name, is_set in marks if is_set}},
        }
        kind = {"apiVersion": "apps/v1", "kind": "ControllerRevision"}
        body = {**kind, "metadata": metadata, "revision": number, "data": data}
        await send_request(self._client, "POST", _ALL, self._seconds, body=body)

    async def _renumber(self, policy_hash: str, number: int) -> None:
        """Make a kept document the newest revision; its data cannot change."""
        body = [
            {"op": "replace", "path": "/revision", "value": number},
            _build_annotation(_NUMBER, str(number)),
        ]
        await send_request(self._client, "PATCH", _build_path(policy_hash), self._seconds, body=body)


def _build_name(policy_hash: str) -> str:
    return f"{REVISION_PREFIX}{policy_hash}"


def _build_path(policy_hash: str) -> str:
    return f"{_ALL}/{_build_name(policy_hash)}"


def _build_annotation(name: str, value: str) -> dict[str, str]:
    """Return the JSON patch that sets an annotation beside the number, which every revision has."""
    return {"op": "add", "path": f"/metadata/annotations/{name.replace('/', '~1')}", "value": value}


def _read_revision(metadata: _Metadata) -> PolicyRevision:
    number = (metadata.annotations or {}).get(_NUMBER, "")
    is_number = number.isascii() and number.isdigit()
    policy_hash = (metadata.labels or {}).get(_HASH_LABEL, "")
    return PolicyRevision(
        int(number) if is_number else 0,
        policy_hash,
        metadata.creation_timestamp,
        was_in_force=_is_marked(metadata, _IN_FORCE),
    )


def _is_marked(metadata: _Metadata, name: str) -> bool:
    return (metadata.annotations or {}).get(name) == _TRUE


def _convert(error: ApiError, verb: str, policy_hash: str = "") -> RolloutError:
    name = f" {_build_name(policy_hash)}" if policy_hash else "s"
    right = f"{verb} controllerrevisions.apps in {NAMESPACE}"
    message = f"cannot {verb} controllerrevision{name} in {NAMESPACE}: {error.describe(right)}"
    return RolloutError(message, error.retry_after_seconds)
