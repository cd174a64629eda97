"""Discovery of the server whose plain port a command reads: named by URL, by the kubeconfig, or on this machine."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from webhook.commands.clients import status_client
from webhook.commands.clients.status_client import parse_queue
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig
from webhook.support.redaction import mask

Get = Callable[[str], Awaitable[bytes]]
"""Returns the body at a path of the plain port; UserError if there is none."""


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """Where a command looks for the server: a URL, or a kubeconfig."""

    url: str | None
    kubeconfig: Kubeconfig


@dataclass(frozen=True, slots=True)
class FoundServer:
    """A server that answers on its plain port; `name` says where it was found, for people."""

    name: str
    get: Get


class NoServerError(UserError):
    """No server answers; `tried` has the error of each place."""

    def __init__(self, tried: Sequence[str], *, is_leader: bool = False) -> None:
        listed = "".join(f"\n  {reason}" for reason in tried)
        command = "podgate controller" if is_leader else "podgate serve"
        remedy = f"start one with `{command}`, or give --server the URL of its plain port (--plain-listen)"
        super().__init__("no process releases Pods" if is_leader else "no server answers", f"{remedy}; tried:{listed}")
        self.tried = tried


@asynccontextmanager
async def open_leader(where: ServerLocation) -> AsyncIterator[FoundServer]:
    """Yield the process that releases waiting Pods, at the URL or the first found; UserError lists the places tried.

    Tried are the address in the installation's record, the Pod that Lease podgate-leader names, the Service behind the
    API server, and this machine.
    """
    async with AsyncExitStack() as stack:
        if where.url is not None:
            found = build_server(where.url)
            if obstacle := await _explain_not_leading(found):
                remedy = "give --server the plain port (--plain-listen) of the leader, or leave it out"
                raise UserError(f"{found.name} does not release Pods: {obstacle}", remedy)
            yield found
        else:
            yield await _find_first(where.kubeconfig, stack, _explain_not_leading, with_leader=True)


async def _explain_not_leading(candidate: FoundServer) -> str:
    """Return why a process does not release Pods; "" if it does. UserError: it does not answer, or not as Podgate."""
    document = parse_queue(await candidate.get("/queue?limit=0"), candidate.name)
    return "" if document.leads else document.waits_for or "it does not lead"


async def _check_health(candidate: FoundServer) -> str:
    await candidate.get("/healthz")
    return ""


@asynccontextmanager
async def open_server(where: ServerLocation) -> AsyncIterator[FoundServer]:
    """Yield the server at the URL, or the first that answers; UserError lists the places tried.

    Tried are the address in the installation's record, the Service behind the API server, and this machine.
    """
    async with AsyncExitStack() as stack:
        yield (
            build_server(where.url)
            if where.url is not None
            else await _find_first(where.kubeconfig, stack, _check_health)
        )


def build_server(url: str) -> FoundServer:
    """Return the server at a URL, which is not read yet."""

    async def get(path: str) -> bytes:
        return await asyncio.to_thread(status_client.get, url, path)

    return FoundServer(mask(url.rstrip("/")), get)


async def _find_first(
    kubeconfig: Kubeconfig,
    stack: AsyncExitStack,
    obstacle: Callable[[FoundServer], Awaitable[str]],
    *,
    with_leader: bool = False,
) -> FoundServer:
    """Return the first candidate without an obstacle."""
    tried: list[str] = []
    async for candidate in _find_candidates(kubeconfig, stack, tried, with_leader=with_leader):
        try:
            reason = await obstacle(candidate)
        except UserError as error:
            tried.append(str(error))
            continue
        if not reason:
            return candidate
        tried.append(f"{candidate.name}: {reason}")
    raise NoServerError(tried, is_leader=with_leader)


async def _find_candidates(
    kubeconfig: Kubeconfig, stack: AsyncExitStack, tried: list[str], *, with_leader: bool
) -> AsyncIterator[FoundServer]:
    outside: str | None = None
    if kubeconfig.exists():
        from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

        try:
            client = await kubernetes.connect(kubeconfig)
        except UserError as error:
            tried.append(str(error))
        else:
            stack.push_async_callback(client.close)
            in_cluster = kubernetes.ClusterPlainPort(client)
            try:
                outside = await in_cluster.read_outside_url()
            except UserError as error:  # the right to the Service suffices
                tried.append(str(error))
            if outside is not None:
                yield build_server(outside)
            if with_leader:
                leader = kubernetes.LeaderPlainPort(client)
                yield FoundServer(leader.name, leader.get)
            yield FoundServer(in_cluster.name, in_cluster.get)
    else:
        tried.append(f"{kubeconfig}: there is no kubeconfig")
    if outside != status_client.DEFAULT_SERVER:
        yield build_server(status_client.DEFAULT_SERVER)
