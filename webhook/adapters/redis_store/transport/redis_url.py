"""Transport for a store URL, created without connecting: Redis may become available later."""

from webhook.adapters.redis_store.transport.cluster import ClusterTransport
from webhook.adapters.redis_store.transport.connect import dial_server
from webhook.adapters.redis_store.transport.credentials import CredentialSource
from webhook.adapters.redis_store.transport.protocol import Transport
from webhook.adapters.redis_store.transport.script import Script
from webhook.adapters.redis_store.transport.sentinel import Sentinels, SentinelTransport
from webhook.adapters.redis_store.transport.server import ServerTransport
from webhook.adapters.redis_store.transport.stream import RespStream
from webhook.errors import UserError
from webhook.ports.store_url import RedisAddress, RedisTopology, StoreFiles, StoreUrl
from webhook.support.redaction import mask

_NO_FILES = StoreFiles()


def open_transport(url: str, files: StoreFiles = _NO_FILES, script: Script | None = None) -> Transport:
    """Return the transport to one server, to a primary with Sentinels or to a Cluster; UserError for an invalid URL."""
    try:
        parsed = StoreUrl.parse(url)
    except ValueError as error:
        raise UserError(f"--store: {mask(url)!r}", str(error)) from None
    access, run = CredentialSource(parsed, files), script or Script()
    if parsed.topology is RedisTopology.SENTINEL:
        return SentinelTransport(Sentinels(parsed, access), run)

    async def dial(target: RedisAddress | str) -> RespStream:
        return await dial_server(target, await access.credentials(), await access.tls(), parsed.database)

    if parsed.topology is RedisTopology.CLUSTER:
        return ClusterTransport(parsed.addresses, dial, run)
    target = parsed.path or parsed.addresses[0]
    return ServerTransport(lambda: dial(target), run)
