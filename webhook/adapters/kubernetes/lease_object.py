"""A Lease as it is stored: read, and written only over what was read."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from kubernetes_asyncio.client import ApiClient
from msgspec import Raw, Struct

from webhook.adapters.kubernetes.api.collection import decoded
from webhook.adapters.kubernetes.api.objects import LABELS, ObjectVersion
from webhook.adapters.kubernetes.api.requests import CONFLICT, NOT_FOUND, GarbledError, RefusedError, answer
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


class Sight(NamedTuple):
    """What another's Lease was like, and since when, by the loop's clock: only a change of it tells that it lives."""

    version: str
    since_seconds: float


@dataclass(frozen=True, slots=True)
class LeaseObject:
    """What was read, all of it, so that it goes back whole; an empty version where there is none yet."""

    whole: dict[str, Any]
    version: str
    spec: _Spec

    @property
    def name(self) -> str:
        return str(self.whole["metadata"]["name"])

    @property
    def holder(self) -> str:
        """Whose it is, "" where it is nobody's."""
        return self.spec.holder_identity or ""

    def sighted(self, former: Sight | None, now_seconds: float) -> Sight:
        """Return since when it has been as it is, given how it was when it was seen before."""
        return former if former is not None and former.version == self.version else Sight(self.version, now_seconds)

    def told(self) -> str:
        """Say whose it is, and since when, as its holder wrote it."""
        return f"{self.holder} since {self.spec.acquire_time or 'a time that is not told'}"

    def renewed_at(self) -> datetime | None:
        """When its holder last renewed it, by the holder's clock; None where that cannot be told."""
        try:
            moment = datetime.fromisoformat(self.spec.renew_time or "")
        except ValueError:
            return None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def held_by(self, identity: str, duration_seconds: int) -> dict[str, Any]:
        """Return it as `identity` takes or renews it now."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours: dict[str, Any] = {
            "holderIdentity": identity,
            "leaseDurationSeconds": duration_seconds,
            "renewTime": now,
        }
        if self.holder != identity:
            transitions = (self.spec.lease_transitions or 0) + 1 if self.version else 0
            ours |= {"acquireTime": now, "leaseTransitions": transitions}
        return self._with(ours)

    def let_go(self) -> dict[str, Any]:
        """Return it as nobody's."""
        return self._with({"holderIdentity": None, "acquireTime": None})

    def _with(self, changes: dict[str, Any]) -> dict[str, Any]:
        return {**self.whole, "spec": {**(self.whole.get("spec") or {}), **changes}}


def absent(name: str, **labels: str) -> LeaseObject:
    """Return the Lease that is not there yet, as it is to be made."""
    metadata = {"name": name, "namespace": NAMESPACE, "labels": {**LABELS, **labels}}
    whole = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}
    return LeaseObject(whole, "", _Spec())


def present(body: bytes | Raw) -> LeaseObject:
    """Return the Lease that the API server has sent; GarbledError where it is none."""
    found = decoded(body, _Read)
    if not found.metadata.resource_version:
        raise GarbledError("an object without a resourceVersion")
    return LeaseObject(decoded(body, dict), found.metadata.resource_version, found.spec or _Spec())


async def read(client: ApiClient, timeout_seconds: float, name: str = NAME) -> LeaseObject:
    """Return what is there; ApiError where that cannot be told."""
    try:
        return present(await answer(client, "GET", f"{ALL}/{name}", timeout_seconds))
    except RefusedError as error:
        if error.status != NOT_FOUND:
            raise
        return absent(name)


async def write(client: ApiClient, lease: dict[str, Any], timeout_seconds: float) -> bool:
    """Write it; False where somebody else has written it since it was read, whose version goes back with it."""
    is_there = "resourceVersion" in lease["metadata"]
    verb, path = ("PUT", f"{ALL}/{lease['metadata']['name']}") if is_there else ("POST", ALL)
    try:
        await answer(client, verb, path, timeout_seconds, body=lease)
    except RefusedError as error:
        if error.status != CONFLICT:
            raise
        return False
    return True
