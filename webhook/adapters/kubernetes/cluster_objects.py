"""Objects of any kind: read, applied, created and deleted with the rights of a kubeconfig's user."""

import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.requests import (
    CONFLICT,
    NOT_FOUND,
    UNPROCESSABLE,
    ApiError,
    RefusedError,
    UnreachedError,
    send_request,
)
from webhook.adapters.kubernetes.api.timing import ApiTiming
from webhook.core.installation.objects import FIELD_MANAGER, UNDO_FIELD_MANAGER, Json, ObjectReference
from webhook.errors import UserError

_PAGE = 500
"""Objects of one page: some megabytes of Pods."""
_STRICT = ("fieldValidation", "Strict")
_OPENID = "/.well-known/openid-configuration"
_DRY_RUN = (("dryRun", "All"),)
_BACKGROUND = {"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"}
"""Deletes the object at once and its Pods later: a webhook configuration must not wait for them."""

_IMMUTABLE = re.compile(r"immutable|cannot change")
_MANAGER = re.compile(r'conflicts? with "([^"]+)"')
_OWN_MANAGERS = frozenset({"podgate-webhooks", UNDO_FIELD_MANAGER})
"""Field managers of Podgate itself, whose fields an apply may take over: the controller writes them again."""
_NO_KIND = "install what defines this kind first: kubectl api-resources shows the kinds of the cluster"


class ClusterObjects:
    """Requests for single objects. UserError names the verb and the object, and the remedy."""

    def __init__(self, client: ApiClient, timing: ApiTiming = ApiTiming()) -> None:  # noqa: B008  frozen
        self._client = client
        self._seconds = timing.request_seconds

    async def get(self, reference: ObjectReference) -> Json | None:
        """Return an object, None if it, its namespace or its kind does not exist."""
        return await self._found("get", "GET", reference, reference.path)

    async def items(
        self, reference: ObjectReference, selector: str = "", most: int = 0, *, fields: str = ""
    ) -> list[Json]:
        """Return the objects of the kind and namespace of `reference`, at most `most`; none if the kind is missing.

        `selector` selects by labels, `fields` by fields.
        """
        query = [("labelSelector", selector)] if selector else []
        query += [("fieldSelector", fields)] if fields else []
        query += [("limit", str(most))] if most else []
        found = await self._found("list", "GET", reference, reference.collection, query)
        return [] if found is None else found.get("items") or []

    async def iterate(self, reference: ObjectReference, selector: str = "") -> AsyncIterator[Json]:
        """Yield the objects of the kind and namespace of `reference`, read in pages; `selector` selects by labels."""
        after = ""
        while True:
            query = [("limit", str(_PAGE))]
            query += [("labelSelector", selector)] if selector else []
            query += [("continue", after)] if after else []
            found = await self._found("list", "GET", reference, reference.collection, query) or {}
            for item in found.get("items") or ():
                yield item
            after = (found.get("metadata") or {}).get("continue") or ""
            if not after:
                return

    async def apply(
        self, document: Json, manager: str = FIELD_MANAGER, *, is_dry: bool, is_forced: bool = False
    ) -> Json:
        """Apply server-side with strict field validation; return the result."""
        query = (("fieldManager", manager), _STRICT, ("force", str(is_forced).lower()), *(_DRY_RUN if is_dry else ()))
        reference = ObjectReference.from_document(document)
        try:
            return await self._request("PATCH", reference.path, query, document)
        except ApiError as error:
            if not is_forced and _is_with_podgate(error):
                return await self.apply(document, is_dry=is_dry, is_forced=True)
            raise _failure("patch", reference, error) from None

    async def patch(self, reference: ObjectReference, operations: list[Json], manager: str) -> None:
        """Apply a JSON Patch."""
        try:
            await self._request("PATCH", reference.path, (("fieldManager", manager),), operations)
        except ApiError as error:
            raise _failure("patch", reference, error) from None

    async def check_kinds(self, documents: Sequence[Json]) -> None:
        """Check that the cluster has the kinds of objects of one API version. UserError names a missing kind."""
        first = ObjectReference.from_document(documents[0])
        root = f"/apis/{first.api_version}" if "/" in first.api_version else f"/api/{first.api_version}"
        found = await self._found("get", "GET", first, root) or {}
        kinds = {kind["kind"] for kind in found.get("resources", ())}
        for document in documents:
            if document["kind"] not in kinds:
                named = f"{document['kind']} of {document['apiVersion']}"
                raise UserError(f"{ObjectReference.from_document(document)}: the cluster has no kind {named}", _NO_KIND)

    async def create(self, document: Json, *, is_dry: bool = False) -> Json:
        reference = ObjectReference.from_document(document)
        query = (("fieldManager", FIELD_MANAGER), _STRICT, *(_DRY_RUN if is_dry else ()))
        try:
            return await self._request("POST", reference.collection, query, document)
        except ApiError as error:
            raise _failure("create", reference, error) from None

    async def delete(self, reference: ObjectReference) -> bool:
        """Delete an object and what it owns; return whether it existed."""
        return await self._found("delete", "DELETE", reference, reference.path, body=_BACKGROUND) is not None

    async def read_token_issuer(self) -> str:
        """Return the issuer of the cluster's own tokens."""
        try:
            found = await self._request("GET", _OPENID, (), None)
        except ApiError as error:
            raise UserError(f"GET {_OPENID}: {error.describe(f'get {_OPENID}')}", _remedy(error)) from None
        return str(found.get("issuer", ""))

    async def git_version(self) -> str:
        """Return the version of the API server: v1.36.3."""
        try:
            found = await self._request("GET", "/version", (), None)
        except ApiError as error:
            raise UserError(f"GET /version: {error.describe('get /version')}", _remedy(error)) from None
        return str(found.get("gitVersion", ""))

    async def attempt(self, method: str, path: str, body: Any) -> Json | str:
        """Dry-run a write; return the object that it would store, or the API server's reason not to."""
        try:
            return await self._request(method, path, _DRY_RUN, body)
        except RefusedError as error:
            return str(error)
        except ApiError as error:
            raise UserError(f"{method} {path}: {error}", _remedy(error)) from None

    async def _found(
        self,
        verb: str,
        method: str,
        reference: ObjectReference,
        path: str,
        query: Sequence[tuple[str, str]] = (),
        body: Any = None,
    ) -> Json | None:
        try:
            return await self._request(method, path, query, body)
        except ApiError as error:
            if isinstance(error, RefusedError) and error.status == NOT_FOUND:
                return None
            raise _failure(verb, reference, error) from None

    async def _request(self, method: str, path: str, query: Sequence[tuple[str, str]], body: Any) -> Json:
        return decode_object(await send_request(self._client, method, path, self._seconds, query, body), dict[str, Any])


def _is_with_podgate(error: ApiError) -> bool:
    """Return whether an apply conflicts with fields of Podgate's own controller only."""
    managers = _MANAGER.findall(str(error)) if isinstance(error, RefusedError) and error.status == CONFLICT else []
    return bool(managers) and {*managers} <= _OWN_MANAGERS


def _failure(verb: str, reference: ObjectReference, error: ApiError) -> UserError:
    where = f" in {reference.namespace}" if reference.namespace else ""
    right = f"{verb} {reference.resource}{where}"
    remedy = _remedy(error)
    if isinstance(error, RefusedError) and error.status == UNPROCESSABLE and _IMMUTABLE.search(str(error)):
        remedy = f"this field cannot be changed; delete the object first: kubectl delete {reference.operand}"
    return UserError(f"{reference}: cannot {verb}: {error.describe(right)}", remedy)


def _remedy(error: ApiError) -> str:
    if isinstance(error, UnreachedError):
        return "check the cluster and the kubeconfig: kubectl get --raw /readyz"
    if isinstance(error, RefusedError) and error.status == NOT_FOUND:
        return _NO_KIND
    if isinstance(error, RefusedError) and error.status == CONFLICT:
        return "undo the other manager's change, or give --force-conflicts to take these fields over"
    return ""
