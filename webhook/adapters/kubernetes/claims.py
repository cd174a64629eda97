"""Watch of PersistentVolumeClaims: the nodes that schedulers have selected for them. Only their metadata are read."""

from kubernetes_asyncio.client import ApiClient
from msgspec import Struct

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot
from webhook.adapters.kubernetes.api.objects import Listed
from webhook.adapters.kubernetes.api.pages import read_pages
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject
from webhook.adapters.kubernetes.api.watch import ApiTiming, ListStart, Watch, WatchHandler
from webhook.core.scheduling.claims import BIND_COMPLETED, SELECTED_NODE, SelectedClaim
from webhook.ports import WatchReports
from webhook.ports.scheduling import ClaimEventHandler


class _Metadata(Struct, frozen=True, gc=False, rename="camel"):
    name: str
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Claim(Struct, frozen=True, gc=False):
    metadata: _Metadata

    def read(self) -> SelectedClaim:
        metadata, annotations = self.metadata, self.metadata.annotations or {}
        key = f"{metadata.namespace}/{metadata.name}"
        return SelectedClaim(key, annotations.get(SELECTED_NODE, ""), BIND_COMPLETED in annotations)


_CLAIMS = Collection(
    item=_Claim,
    items=Listed[_Claim],
    path="/api/v1/persistentvolumeclaims",
    name="persistentvolumeclaims",
    right="list and watch persistentvolumeclaims in all namespaces (ClusterRole podgate-extender)",
    is_metadata=True,
)


class WatchedClaims:
    """Lists the claims in pages, of which it keeps nothing but the awaited ones, and watches them."""

    def __init__(
        self,
        client: ApiClient,
        handler: ClaimEventHandler,
        *,
        reports: WatchReports,
        timing: ApiTiming = ApiTiming(),  # noqa: B008  frozen
    ) -> None:
        async def everything(_: ListSnapshot[_Claim]) -> None:
            """Do nothing: the list is read in pages."""

        async def one(claim: _Claim, gone: bool) -> None:  # noqa: FBT001  signature of WatchHandler.on_change
            found = claim.read()
            if gone:
                handler.on_claim_gone(found.key)
            else:
                handler.on_claim_changed(found)

        async def drop_if_gone(unread: UnreadObject, gone: bool) -> None:  # noqa: FBT001  as above
            if gone:
                handler.on_claim_gone(unread.name)

        self._client = client
        self._handler = handler
        self._timing = timing
        watch_handler = WatchHandler(everything, one, on_unread=drop_if_gone)
        self.run = Watch(client, _CLAIMS, watch_handler, reports=reports, timing=timing, lister=self._list).run

    async def _list(self) -> ListStart:
        awaited: list[SelectedClaim] = []
        unread: list[UnreadObject] = []
        version = ""
        async for page, unread_of_page in read_pages(self._client, _CLAIMS, self._timing.request_seconds):
            version = page.metadata.resource_version
            awaited += [found for claim in page.items or () if (found := claim.read()).is_awaited]
            unread += unread_of_page
        self._handler.on_claims_listed(awaited, frozenset(claim.name for claim in unread))
        return ListStart(version, unread=unread)
