"""Lists in pages whose size is bounded: whoever may create objects may make each of them as large as etcd stores it."""

from collections.abc import AsyncIterator

from kubernetes_asyncio.client import ApiClient

from webhook.adapters.kubernetes.api.collection import Collection, ListSnapshot
from webhook.adapters.kubernetes.api.objects import AnObject, Listed
from webhook.adapters.kubernetes.api.requests import GarbledError, LongBodyError, request_document
from webhook.adapters.kubernetes.api.unread_objects import UnreadObject, decode_list

PAGE_MAX = 500
"""Objects of one page."""
_PAGE_BYTES_MAX = 32 << 20
"""Size above which a page is asked for again with half as many objects. 500 usual Pods are some 5 MiB."""
_OBJECT_BYTES_MAX = 64 << 20
"""Several times the largest object, with each of its characters escaped."""


async def read_pages(
    client: ApiClient, collection: Collection[AnObject], timeout_seconds: float, *, most: int = PAGE_MAX
) -> AsyncIterator[tuple[Listed[AnObject], tuple[UnreadObject, ...]]]:
    """Yield a consistent list page by page, and the objects left out of each. At any time it holds one page.

    `most`: objects of a page; 0 asks for all of them at once, and for pages only if they are too large. The timeout is
    that of one page.
    """
    after = ""
    while True:
        query = (*((("limit", str(most)),) if most else ()), *((("continue", after),) if after else ()))
        bytes_max = _OBJECT_BYTES_MAX if most == 1 else _PAGE_BYTES_MAX
        asked = collection.build_query(*query)
        try:
            body = await request_document(
                client, collection.path, collection.list_accept, timeout_seconds, bytes_max, asked
            )
        except LongBodyError:
            if most == 1:
                raise
            most = most // 2 or PAGE_MAX
            continue
        length, (page, unread) = len(body), decode_list(body, collection.items, collection.item)
        del body
        if not page.metadata.resource_version:
            raise GarbledError("a list without a resourceVersion")
        after = page.metadata.next
        yield page, unread
        del page, unread
        if not after:
            return
        if length < _PAGE_BYTES_MAX // 4:  # the next ones may be usual again
            most = min(2 * most, PAGE_MAX)


async def list_objects(
    client: ApiClient, collection: Collection[AnObject], timeout_seconds: float
) -> ListSnapshot[AnObject]:
    """List with a consistent read, bypassing the API server's watch cache. GarbledError also for one bad object."""
    found = await list_readable(client, collection, timeout_seconds)
    for unread in found.unread:
        raise GarbledError(f"{unread.name} is not understood: {unread.reason}")
    return found


async def list_readable(
    client: ApiClient, collection: Collection[AnObject], timeout_seconds: float
) -> ListSnapshot[AnObject]:
    """List as `list_objects` does, without the objects that cannot be decoded."""
    items: list[AnObject] = []
    unread: list[UnreadObject] = []
    version = ""
    async for page, unread_of_page in read_pages(client, collection, timeout_seconds, most=0):
        version = page.metadata.resource_version
        items += page.items or ()
        unread += unread_of_page
    return ListSnapshot(items, version, unread)
