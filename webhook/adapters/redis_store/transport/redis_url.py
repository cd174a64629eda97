"""A link to a Redis, by its URL: made without asking for anything, so that a Redis may come later."""

from redis.asyncio.connection import AbstractConnection

from webhook.adapters.redis_store.transport.cluster import ClusterLink
from webhook.adapters.redis_store.transport.connect import dialled
from webhook.adapters.redis_store.transport.credentials import Access
from webhook.adapters.redis_store.transport.script import Script
from webhook.adapters.redis_store.transport.sentinel import SentinelLink, Sentinels
from webhook.adapters.redis_store.transport.topology import Link, ServerLink
from webhook.errors import UserError
from webhook.store.store_url import Address, Layout, StoreFiles, StoreUrl
from webhook.support.redaction import masked

_NO_FILES = StoreFiles()


def open_link(url: str, files: StoreFiles = _NO_FILES, script: Script | None = None) -> Link:
    """Return a link to one server, to the primary of a group or to a Cluster, as the URL says; UserError otherwise."""
    try:
        parsed = StoreUrl.parse(url)
    except ValueError as error:
        raise UserError(f"--store: {masked(url)!r}", str(error)) from None
    access, run = Access(parsed, files), script or Script()
    if parsed.layout is Layout.SENTINEL:
        return SentinelLink(Sentinels(parsed, access), run)

    async def dial(target: Address | str) -> AbstractConnection:
        return await dialled(target, await access.credentials(), await access.tls(), parsed.database)

    if parsed.layout is Layout.CLUSTER:
        return ClusterLink(parsed.addresses, dial, run)
    target = parsed.path or parsed.addresses[0]
    return ServerLink(lambda: dial(target), run)
