"""Labels of the cluster's Namespaces: a watch on all of them, and a lookup of one that is not known yet."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import replace

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot
from webhook.adapters.kubernetes.api.objects import Listed, Namespace
from webhook.adapters.kubernetes.api.pages import list_objects
from webhook.adapters.kubernetes.api.requests import ApiError
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject
from webhook.adapters.kubernetes.api.watch import ApiTiming, Watch, WatchHandler
from webhook.core.quota.teams import mark_overflow
from webhook.ports import WatchReports
from webhook.support.condition import Condition

_NAMESPACES = Collection(
    item=Namespace,
    items=Listed[Namespace],
    path="/api/v1/namespaces",
    name="namespaces",
    right="list and watch namespaces",
)
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class WatchedNamespaces:
    """A `ports.NamespaceLabels`. Only names and labels are kept."""

    def __init__(
        self,
        client: ApiClient,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
    ) -> None:
        self._client = client
        self._timing = timing
        self._labels: dict[str, Mapping[str, str]] = {}
        self._shown = self._labels
        """The same, marked where a value is beyond the limit of its label."""
        self._team_limits: Mapping[str, int] = {}
        self._lookups: dict[str, asyncio.Task[Mapping[str, str] | None]] = {}
        self._lookup_failure = Condition(reports.on_trouble, reports.on_over)
        handler = WatchHandler(self._all, self._one, on_unread=self._keep_unless_gone)
        self._watch = Watch(client, _NAMESPACES, handler, reports=reports, timing=timing)

    def find_labels(self, namespace: str) -> Mapping[str, str] | None:
        return self._shown.get(namespace)

    def set_team_limits(self, limits: Mapping[str, int]) -> None:
        """Set how many values of which labels count apart."""
        if limits != self._team_limits:
            self._team_limits = limits
            self._show()

    async def look_up_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Look the Namespace up in the API server; None if it does not exist or the server does not answer in time."""
        if not _NAME.fullmatch(namespace):
            return None
        lookup = self._lookups.get(namespace)
        if lookup is None:
            lookup = self._lookups[namespace] = asyncio.create_task(self._lookup(namespace), name="namespace-lookup")
            lookup.add_done_callback(lambda _: self._lookups.pop(namespace, None))
        await asyncio.wait([lookup])  # unlike awaiting the task, a cancelled caller does not cancel it
        return None if lookup.cancelled() else lookup.result()

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            await self._watch.run()
        finally:
            for lookup in self._lookups.values():
                lookup.cancel()

    def _show(self) -> None:
        limits = self._team_limits
        self._shown = {**self._labels, **mark_overflow(self._labels, limits)} if limits else self._labels

    async def _lookup(self, namespace: str) -> Mapping[str, str] | None:
        # A field selector: no path contains a caller's input, and the watch's permissions suffice.
        asked = replace(_NAMESPACES, object_name=namespace)
        try:
            found = await list_objects(self._client, asked, self._timing.look_seconds)
        except ApiError as error:
            # Without the name, which a refusal repeats: the failure is the same for all and is reported once.
            said = error.describe(_NAMESPACES.right).replace(f' "{namespace}"', "")
            self._lookup_failure.enter(f"cannot look up a namespace: {said}")
            return None
        self._lookup_failure.leave()
        if not found.items:
            return None
        # Labels that the watch has received meanwhile are newer.
        self._labels.setdefault(namespace, found.items[0].metadata.labels or {})
        self._show()
        return self._shown[namespace]

    async def _all(self, snapshot: ListSnapshot[Namespace]) -> None:
        before = self._labels
        kept = {unread.name: before[unread.name] for unread in snapshot.unread if unread.name in before}
        self._labels = kept | {item.metadata.name: item.metadata.labels or {} for item in snapshot.items}
        self._show()

    async def _keep_unless_gone(self, unread: UnreadObject, deleted: bool) -> None:  # noqa: FBT001  as below
        if deleted:
            self._labels.pop(unread.name, None)
            self._show()

    async def _one(self, changed: Namespace, deleted: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
        if deleted:
            self._labels.pop(changed.metadata.name, None)
        else:
            self._labels[changed.metadata.name] = changed.metadata.labels or {}
        self._show()
