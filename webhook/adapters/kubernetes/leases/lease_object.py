"""Lease object: read, and written with the resourceVersion that was read."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kubernetes_asyncio.client import ApiClient
from msgspec import Raw, Struct

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.objects import LABELS, ObjectVersion
from webhook.adapters.kubernetes.api.requests import CONFLICT, NOT_FOUND, GarbledError, RefusedError, send_request
from webhook.core.document.configmap import NAMESPACE

NAME = "podgate-leader"
PLACE = f"lease {NAMESPACE}/{NAME}"
RIGHT = f"create leases in {NAMESPACE}, and to get and update {NAME}"
ALL = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"


class _Spec(Struct, frozen=True, rename="camel"):
    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class _Read(Struct, frozen=True):
    metadata: ObjectVersion
    spec: _Spec | None = None


class LeaseSighting(NamedTuple):
    """Version of another holder's Lease, and since when it is unchanged, by the loop's clock.

    Only a change proves that the holder is alive.
    """

    version: str
    since_seconds: float


@dataclass(frozen=True, slots=True)
class LeaseObject:
    """A whole Lease as it was read, so that unknown fields are written back; `version` is "" if there is none yet."""

    whole: dict[str, Any]
    version: str
    spec: _Spec

    @property
    def name(self) -> str:
        return str(self.whole["metadata"]["name"])

    @property
    def holder(self) -> str:
        """Identity of the holder; "" if there is none."""
        return self.spec.holder_identity or ""

    def compare(self, former: LeaseSighting | None, now_seconds: float) -> LeaseSighting:
        """Return since when the Lease is unchanged, given the former sighting of it."""
        return (
            former
            if former is not None and former.version == self.version
            else LeaseSighting(self.version, now_seconds)
        )

    def describe_holder(self) -> str:
        """Describe the holder and since when it holds the Lease, by the holder's clock."""
        return f"{self.holder} since {self.spec.acquire_time or 'an unknown time'}"

    def parse_renewal(self) -> datetime | None:
        """Return when the holder last renewed the Lease, by the holder's clock; None if absent or invalid."""
        try:
            moment = datetime.fromisoformat(self.spec.renew_time or "")
        except ValueError:
            return None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def build_held(self, identity: str, duration_seconds: int) -> dict[str, Any]:
        """Return the Lease acquired or renewed by `identity` now."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours: dict[str, Any] = {
            "holderIdentity": identity,
            "leaseDurationSeconds": duration_seconds,
            "renewTime": now,
        }
        if self.holder != identity:
            transitions = (self.spec.lease_transitions or 0) + 1 if self.version else 0
            ours |= {"acquireTime": now, "leaseTransitions": transitions}
        return self._build(ours)

    def build_released(self) -> dict[str, Any]:
        """Return the Lease without a holder."""
        return self._build({"holderIdentity": None, "acquireTime": None})

    def _build(self, changes: dict[str, Any]) -> dict[str, Any]:
        return {**self.whole, "spec": {**(self.whole.get("spec") or {}), **changes}}


def make_absent(name: str, **labels: str) -> LeaseObject:
    """Return a Lease that does not exist yet, to be created."""
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {**LABELS, **labels}}
    whole = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    return LeaseObject(whole, "", _Spec())


def parse_lease(body: bytes | Raw) -> LeaseObject:
    """Return the Lease in a response of the API server; GarbledError if it is not one."""
    found = decode_object(body, _Read)
    if not found.metadata.resource_version:
        raise GarbledError("an object without a resourceVersion")
    return LeaseObject(decode_object(body, dict), found.metadata.resource_version, found.spec or _Spec())


class _Sighted(Struct, frozen=True):
    metadata: ObjectVersion


def parse_sighting(body: Raw) -> LeaseObject:
    """Return a Lease whose other fields cannot be read; GarbledError if its metadata cannot be, either."""
    found = decode_object(body, _Sighted).metadata
    if not found.name or not found.resource_version:
        raise GarbledError("an object without a name or a resourceVersion")
    return LeaseObject({**decode_object(body, dict), "spec": None}, found.resource_version, _Spec())


async def read(client: ApiClient, timeout_seconds: float, name: str = NAME) -> LeaseObject:
    """Return the Lease, or one of `make_absent` if there is none; ApiError if it cannot be read."""
    try:
        return parse_lease(await send_request(client, "GET", f"{ALL}/{name}", timeout_seconds))
    except RefusedError as error:
        if error.status != NOT_FOUND:
            raise
        return make_absent(name)


async def write(client: ApiClient, lease: dict[str, Any], timeout_seconds: float) -> bool:
    """Write the Lease; False if it was changed since it was read, by its resourceVersion."""
    is_there = "resourceVersion" in lease["metadata"]
    verb, path = ("PUT", f"{ALL}/{lease['metadata']['name']}") if is_there else ("POST", ALL)
    try:
        await send_request(client, verb, path, timeout_seconds, body=lease)
    except RefusedError as error:
        if error.status != CONFLICT:
            raise
        return False
    return True
