"""Servers that follow the rollout's state: each is asked which policy it has in force."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from webhook.commands.clients.status_client import parse_status
from webhook.core.reporting.candidate_document import ShadowEntry, ShadowReport
from webhook.core.reporting.rollout_reports import Follower, Followers
from webhook.errors import UserError
from webhook.operations.server_discovery import build_server
from webhook.support.kubeconfig import Kubeconfig

_PLAIN_PORT = 8081
_POLL_SECONDS = 0.2

ReadStatus = Callable[[], Awaitable[bytes]]


async def await_followers(
    kubeconfig: Kubeconfig, urls: Sequence[str], policy_hash: str, wait_seconds: float
) -> Followers:
    """Ask the servers until all have the policy in force, for a bounded time; return what they said last.

    `urls`: plain ports of servers; without any, the ready server Pods are asked, or the server of the installation's
    record.
    """
    end_seconds = asyncio.get_running_loop().time() + wait_seconds
    async with _open_servers(kubeconfig, urls) as (servers, unseen):
        while True:
            asked = await asyncio.gather(*(_ask(name, read) for name, read in servers.items()))
            found = Followers(tuple(asked), unseen)
            if not found.find_behind(policy_hash) or asyncio.get_running_loop().time() >= end_seconds:
                return found
            await asyncio.sleep(_POLL_SECONDS)


async def read_shadow(kubeconfig: Kubeconfig, urls: Sequence[str]) -> ShadowReport:
    """Return what the servers' shadows have found, summed. `urls` as for `await_followers`."""
    judged, pods, servers = 0, Counter[tuple[str, str]](), 0
    async with _open_servers(kubeconfig, urls) as (found, obstacle):
        unseen = [obstacle] if obstacle else []
        for name, read in found.items():
            try:
                shadow = (parse_status(await read(), name).get("rollout") or {}).get("shadow")
            except UserError as error:
                unseen.append(str(error))
                continue
            servers += 1
            judged += (shadow or {}).get("judged", 0)
            for entry in (shadow or {}).get("differences", ()):
                pods[entry["service"] or "", entry["difference"]] += entry["pods"]
    entries = tuple(ShadowEntry(*key, count) for key, count in sorted(pods.items()))
    return ShadowReport(judged, entries, servers, "; ".join(unseen))


async def _ask(name: str, read: ReadStatus) -> Follower:
    try:
        status = parse_status(await read(), name)
    except UserError as error:
        return Follower(name, error=str(error))
    return Follower(name, (status.get("policy") or {}).get("hash") or "")


@asynccontextmanager
async def _open_servers(
    kubeconfig: Kubeconfig, urls: Sequence[str]
) -> AsyncIterator[tuple[dict[str, ReadStatus], str]]:
    if urls:
        yield _build_readers(urls), ""
        return
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    async with AsyncExitStack() as stack:
        client = await kubernetes.connect(kubeconfig)
        stack.push_async_callback(client.close)
        ports = kubernetes.PodPorts(client, "podgate", _PLAIN_PORT)
        try:
            pods = await ports.list_ready()
            if pods:
                yield {f"pod {pod}": partial(ports.get, pod, "/status") for pod in pods}, ""
                return
            outside = await kubernetes.ClusterPlainPort(client).read_outside_url()
        except UserError as error:
            yield {}, str(error)
            return
        if outside is None:
            yield {}, f"no server Pod is ready in {ports.where}"
        else:
            yield _build_readers([outside]), ""


def _build_readers(urls: Sequence[str]) -> dict[str, ReadStatus]:
    servers = [build_server(url) for url in urls]
    return {server.name: partial(server.get, "/status") for server in servers}
