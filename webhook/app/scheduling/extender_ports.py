"""Discovery of the decision ports of extenders: by URL, all ready Pods by the kubeconfig, or on this machine."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

from webhook.commands.clients import status_client
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig

DEFAULT_URL = "http://127.0.0.1:8083"
_URL = re.compile(r"https?://[^/?#\s][^?#\s]*")
_APP, _PORT = "podgate-extender", 8083
_URL_REMEDY = "give --extender the decision port (--decision-listen) of podgate extender"

Get = Callable[[str], Awaitable[bytes]]
"""Returns the body at a path of a decision port; UserError if there is none."""


@dataclass(frozen=True, slots=True)
class ExtenderPorts:
    """Decision ports by the names of their extenders; `tried` are the errors of other places."""

    ports: Mapping[str, Get]
    tried: Sequence[str] = ()
    silent: list[str] = field(default_factory=list)
    """Errors of the extenders that did not answer the last call."""

    async def read_first(self, path: str) -> tuple[str, bytes]:
        """Return the first extender that answers, and the body at a path; UserError if none does."""
        self.silent.clear()
        for name, get in self.ports.items():
            try:
                return name, await get(path)
            except UserError as error:
                self.silent.append(str(error))
        raise build_no_extender_error([*self.tried, *self.silent])

    async def read(self, path: str) -> dict[str, bytes]:
        """Return the body at a path of each extender that answers; UserError if none does."""
        self.silent.clear()
        answers = await asyncio.gather(*(get(path) for get in self.ports.values()), return_exceptions=True)
        found: dict[str, bytes] = {}
        for name, answer in zip(self.ports, answers, strict=True):
            if isinstance(answer, bytes):
                found[name] = answer
            elif isinstance(answer, UserError):
                self.silent.append(str(answer))
            else:
                raise answer
        if not found:
            raise build_no_extender_error([*self.tried, *self.silent])
        return found


def build_no_extender_error(tried: Sequence[str]) -> UserError:
    """Return the error that no extender answers, with the error of each place."""
    listed = "".join(f"\n  {reason}" for reason in tried)
    return UserError("no extender answers", f"start one with `podgate extender`, or {_URL_REMEDY}; tried:{listed}")


@asynccontextmanager
async def open_extenders(url: str | None, kubeconfig: Kubeconfig) -> AsyncIterator[ExtenderPorts]:
    """Yield the extender at the URL, or all ready extender Pods, or else the one on this machine, if any."""
    if url is not None:
        if not _URL.fullmatch(url):
            raise UserError(
                f"--extender {status_client.mask_url(url)!r}: not a URL", f"write http://HOST:PORT: {_URL_REMEDY}"
            )
        yield ExtenderPorts({status_client.mask_url(url): _build_get(url)})
        return
    tried: list[str] = []
    async with AsyncExitStack() as stack:
        in_cluster = await _find_in_cluster(kubeconfig, stack, tried)
        yield ExtenderPorts(in_cluster or {DEFAULT_URL: _build_get(DEFAULT_URL)}, tried)


def _build_get(url: str) -> Get:
    async def get(path: str) -> bytes:
        return await asyncio.to_thread(status_client.get, url, path, _URL_REMEDY, "--extender")

    return get


async def _find_in_cluster(kubeconfig: Kubeconfig, stack: AsyncExitStack, tried: list[str]) -> dict[str, Get]:
    if not kubeconfig.exists():
        tried.append(f"{kubeconfig}: there is no kubeconfig")
        return {}
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    try:
        client = await kubernetes.connect(kubeconfig)
        stack.push_async_callback(client.close)
        pods = kubernetes.PodPorts(client, _APP, _PORT)
        found = await pods.list_ready()
    except UserError as error:
        tried.append(str(error))
        return {}
    if not found:
        tried.append(f"{pods.where}: no Pod with app.kubernetes.io/name={_APP} is ready")
    return {pod: partial(pods.get, pod) for pod in found}
