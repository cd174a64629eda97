"""Discovery of the decision port that a command reads: by URL, by the kubeconfig, or on this machine."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from webhook.commands.clients import status_client
from webhook.errors import UserError
from webhook.operations.server_discovery import FoundServer, ServerLocation

DEFAULT_URL = "http://127.0.0.1:8082"
_PROBE = "/api/v1/decisions?limit=1"
_REMEDY = (
    "start one with `podgate serve`, or give --server the URL of its decision port (--decision-listen):"
    " for a server outside the cluster, as its machine reaches it"
)


@asynccontextmanager
async def open_decision_port(where: ServerLocation) -> AsyncIterator[FoundServer]:
    """Yield the port at the URL, or the first that answers; UserError names every place that was tried.

    Tried are the ready server Pods, through the API server's port-forward, and this machine.
    """
    if where.url is not None:
        yield _build_server(where.url)
        return
    tried: list[str] = []
    async with AsyncExitStack() as stack:
        found = await _find_in_cluster(where, stack, tried) or await _find_here(tried)
        if found is None:
            listed = "".join(f"\n  {reason}" for reason in tried)
            raise UserError("no server shows its decisions", f"{_REMEDY}; tried:{listed}")
        yield found


def _build_server(url: str) -> FoundServer:
    async def get(path: str) -> bytes:
        return await asyncio.to_thread(status_client.get, url, path, "give --server the decision port of podgate serve")

    return FoundServer(status_client.mask_url(url), get)


async def _find_in_cluster(where: ServerLocation, stack: AsyncExitStack, tried: list[str]) -> FoundServer | None:
    if not where.kubeconfig.exists():
        tried.append(f"{where.kubeconfig}: there is no kubeconfig")
        return None
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    try:
        client = await kubernetes.connect(where.kubeconfig)
        stack.push_async_callback(client.close)
        port = kubernetes.ClusterDecisionPort(client)
        await port.get(_PROBE)
    except UserError as error:
        tried.append(str(error))
        return None
    return FoundServer(port.name, port.get)


async def _find_here(tried: list[str]) -> FoundServer | None:
    found = _build_server(DEFAULT_URL)
    try:
        await found.get(_PROBE)
    except UserError as error:
        tried.append(str(error))
        return None
    return found
