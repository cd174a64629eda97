"""Discovery of the server whose plain port a command reads: named by URL, by the kubeconfig, or on this machine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from webhook.errors import UserError
from webhook.offline import status_client
from webhook.support.redaction import masked

Get = Callable[[str], Awaitable[bytes]]
"""Returns the body at a path of the plain port; UserError if there is none."""


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """Where a command looks for the server: a URL, or a kubeconfig."""

    url: str | None
    kubeconfig: Path


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that answers on its plain port; `name` says where it was found, for people."""

    name: str
    get: Get


class NoServerError(UserError):
    """No server answers; `tried` has the error of each place."""

    def __init__(self, tried: Sequence[str]) -> None:
        listed = "".join(f"\n  {reason}" for reason in tried)
        remedy = "start one with `podgate serve`, or give --server the URL of its plain port (--plain-listen)"
        super().__init__("no server answers", f"{remedy}; tried:{listed}")
        self.tried = tried


@asynccontextmanager
async def open_server(where: ServerLocation) -> AsyncIterator[FoundServer]:
    """Yield the server at the URL, or the first that answers; UserError names all that was tried.

    Tried are the address in the installation's record, the Service behind the API server, and this machine.
    """
    async with AsyncExitStack() as stack:
        yield at_url(where.url) if where.url is not None else await _first(where.kubeconfig, stack)


def at_url(url: str) -> FoundServer:
    """Return the server at a URL, which is not read yet."""

    async def get(path: str) -> bytes:
        return await asyncio.to_thread(status_client.get, url, path)

    return FoundServer(masked(url.rstrip("/")), get)


async def _first(kubeconfig: Path, stack: AsyncExitStack) -> FoundServer:
    tried: list[str] = []
    async for candidate in _candidates(kubeconfig, stack, tried):
        try:
            await candidate.get("/healthz")
        except UserError as error:
            tried.append(str(error))
        else:
            return candidate
    raise NoServerError(tried)


async def _candidates(kubeconfig: Path, stack: AsyncExitStack, tried: list[str]) -> AsyncIterator[FoundServer]:
    outside: str | None = None
    if _is_there(kubeconfig):
        from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

        try:
            client = await kubernetes.connect(kubeconfig)
        except UserError as error:
            tried.append(str(error))
        else:
            stack.push_async_callback(client.close)
            in_cluster = kubernetes.ClusterPlainPort(client)
            try:
                outside = await in_cluster.outside()
            except UserError as error:  # the right to the Service suffices
                tried.append(str(error))
            if outside is not None:
                yield at_url(outside)
            yield FoundServer(in_cluster.name, in_cluster.get)
    else:
        tried.append(f"{kubeconfig}: there is no kubeconfig")
    if outside != status_client.DEFAULT_SERVER:
        yield at_url(status_client.DEFAULT_SERVER)


def _is_there(kubeconfig: Path) -> bool:
    return kubeconfig.exists()
