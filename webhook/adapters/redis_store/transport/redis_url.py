"""A link to a Redis, by its URL: made without asking for anything, so that a Redis may come later."""

from redis.asyncio.connection import AbstractConnection

from webhook.adapters.redis_store.transport.cluster import ClusterTransport
from webhook.adapters.redis_store.transport.connect import dialled
from webhook.adapters.redis_store.transport.credentials import CredentialSource
from webhook.adapters.redis_store.transport.script import Script
from webhook.adapters.redis_store.transport.sentinel import Sentinels, SentinelTransport
from webhook.adapters.redis_store.transport.topology import ServerTransport, Transport
from webhook.errors import UserError
from webhook.store.store_url import RedisAddress, RedisTopology, StoreFiles, StoreUrl
from webhook.support.redaction import masked

_NO_FILES = StoreFiles()


def open_transport(url: str, files: StoreFiles = _NO_FILES, script: Script | None = None) -> Transport:
    """Return a link to one server, to the primary of a group or to a Cluster, as the URL says; UserError otherwise."""
    try:
        parsed = StoreUrl.parse(url)
    except ValueError as error:
        raise UserError(f"--store: {masked(url)!r}", str(error)) from None
    access, run = CredentialSource(parsed, files), script or Script()
    if parsed.topology is RedisTopology.SENTINEL:
        return SentinelTransport(Sentinels(parsed, access), run)

    async def dial(target: RedisAddress | str) -> AbstractConnection:
        return await dialled(target, await access.credentials(), await access.tls(), parsed.database)

    if parsed.topology is RedisTopology.CLUSTER:
        return ClusterTransport(parsed.addresses, dial, run)
    target = parsed.path or parsed.addresses[0]
    return ServerTransport(lambda: dial(target), run)
