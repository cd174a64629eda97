"""Server count and ordinal by Leases: each server renews its own Lease and counts those of the others.

Another server counts as alive for one duration, by the local clock, since its Lease was last seen to change. While the
API server does not answer no server can renew: the last count stays, and servers alive then have time to renew later.
"""

import asyncio
import random
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from kubernetes_asyncio.client import ApiClient
from msgspec import Raw, Struct

from webhook.adapters.kubernetes.api.collection import decode_object
from webhook.adapters.kubernetes.api.objects import ListMetadata
from webhook.adapters.kubernetes.api.requests import (
    CONFLICT,
    NOT_FOUND,
    ApiError,
    GarbledError,
    RefusedError,
    send_request,
)
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject, UnreadObjects
from webhook.adapters.kubernetes.leases.lease_object import (
    ALL,
    LeaseObject,
    LeaseSighting,
    make_absent,
    parse_lease,
    parse_sighting,
    write,
)
from webhook.core.document.configmap import NAMESPACE
from webhook.ports import WatchReports
from webhook.support.condition import Condition

PREFIX = "podgate-server-"
_LABELS = {"podgate.io/part": "server"}
_SELECTOR = "app.kubernetes.io/name=podgate,podgate.io/part=server"
_PLACE = f"leases {NAMESPACE}/{PREFIX}*"
_RIGHT = f"list, create, update and delete leases in {NAMESPACE}"
_HOST_LENGTH_MAX = 63
_ILL = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True, slots=True)
class ServerLeaseTiming:
    """Duration, intervals and timeout."""

    duration_seconds: int = 40
    """A server whose Lease has not changed for this long is not counted. Long, to keep the count stable."""
    renew_seconds: float = 10.0
    request_seconds: float = 3.0
    forget_seconds: float = 86_400.0
    """Age from which a dead server's Lease is deleted."""


class _Leases(Struct, frozen=True):
    metadata: ListMetadata
    items: list[Raw] | None = None


class ServerLeases:
    """One server's view. `run` deletes the server's Lease when cancelled; `on_count` receives count and ordinal.

    `host` identifies the server to operators. Unless it `is_unique`, as a Pod's name is, the Lease's name gets a random
    suffix.
    """

    def __init__(
        self,
        client: ApiClient,
        host: str,
        *,
        is_unique: bool,
        reports: WatchReports,
        timing: ServerLeaseTiming = ServerLeaseTiming(),
    ) -> None:
        end = secrets.token_hex(4)
        self.name = make_lease_name(host) if is_unique else f"{make_lease_name(host)}-{end}"
        self.on_count: Callable[[int, int], None] = lambda _count, _ordinal: None
        self._identity = f"{host}_{end}"
        self._client = client
        self._on_contact = reports.on_contact
        self._failure = Condition(reports.on_trouble, reports.on_over)
        self._unread = UnreadObjects(reports.on_unread)
        self._timing = timing
        self._seen: dict[str, LeaseSighting] = {}
        """Other servers' Leases, by name."""
        self._counted: tuple[int, int] | None = None

    async def run(self) -> None:
        """Renew and count until cancelled."""
        try:
            while True:
                await self._round()
                pause = self._timing.renew_seconds * random.uniform(0.8, 1)  # noqa: S311  spreads load, guards nothing
                await asyncio.sleep(pause)
        finally:
            await self._leave()

    async def _round(self) -> None:
        try:
            found = await self._list()
            await self._renew(found.get(self.name) or make_absent(self.name, **_LABELS))
            others = [lease for lease in found.values() if lease.name != self.name]
            self._count(others)
            await self._delete_forgotten(others)
        except ApiError as error:
            self._failure.enter(f"cannot count the servers by {_PLACE}: {error.describe(_RIGHT)}")
            # Other servers may have been unable to renew, too: restart the duration of those alive.
            self._seen = {name: sighting for name, sighting in self._seen.items() if not self._lives(sighting)}
            return
        self._failure.leave()
        self._on_contact()

    async def _list(self) -> dict[str, LeaseObject]:
        query = (("labelSelector", _SELECTOR),)
        body = await send_request(self._client, "GET", ALL, self._timing.request_seconds, query)
        found = decode_object(body, _Leases)
        if not found.metadata.resource_version:
            raise GarbledError("a list without a resourceVersion")
        leases: dict[str, LeaseObject] = {}
        unread: list[UnreadObject] = []
        for item in found.items or ():
            try:
                lease = parse_lease(item)
            except GarbledError as error:
                lease = parse_sighting(item)  # a server counts as alive while its Lease changes, whatever is in it
                unread.append(UnreadObject(f"{NAMESPACE}/{lease.name}", "", lease.version, str(error)))
            leases[lease.name] = lease
        self._unread.replace(unread)
        return leases

    async def _renew(self, mine: LeaseObject) -> None:
        body = mine.build_held(self._identity, self._timing.duration_seconds)
        # After a conflict, the next round renews: a Lease's duration has room for four rounds.
        await write(self._client, body, self._timing.request_seconds)

    def _count(self, others: Iterable[LeaseObject]) -> None:
        now = asyncio.get_running_loop().time()
        former, self._seen = self._seen, {}
        for lease in others:
            self._seen[lease.name] = lease.compare(former.get(lease.name), now)
        names = sorted([self.name, *(name for name, sighting in self._seen.items() if self._lives(sighting))])
        counted = len(names), names.index(self.name)
        if counted != self._counted:
            self._counted = counted
            self.on_count(*counted)

    def _lives(self, sighting: LeaseSighting) -> bool:
        return asyncio.get_running_loop().time() - sighting.since_seconds < self._timing.duration_seconds

    async def _delete_forgotten(self, others: Iterable[LeaseObject]) -> None:
        """Delete old Leases of dead servers, unless renewed since they were read."""
        for lease in others:
            renewed_at = lease.parse_renewal()
            if self._lives(self._seen[lease.name]) or renewed_at is None:
                continue
            if (datetime.now(UTC) - renewed_at).total_seconds() >= self._timing.forget_seconds:
                await self._delete(lease.name, lease.version)

    async def _leave(self) -> None:
        """Delete this server's own Lease, so that the others need not wait for it to expire. Best effort."""
        try:
            await self._delete(self.name)
        except ApiError as error:
            self._failure.enter(f"cannot delete lease {NAMESPACE}/{self.name}: {error.describe(_RIGHT)}")

    async def _delete(self, name: str, version: str = "") -> None:
        options = {"preconditions": {"resourceVersion": version}} if version else {}
        try:
            await send_request(self._client, "DELETE", f"{ALL}/{name}", self._timing.request_seconds, body=options)
        except RefusedError as error:
            if error.status not in {NOT_FOUND, CONFLICT}:
                raise


def make_lease_name(host: str) -> str:
    """Return the name of a server's Lease; invalid characters become dashes."""
    return PREFIX + (_ILL.sub("-", host.lower())[:_HOST_LENGTH_MAX].strip("-") or "unnamed")
