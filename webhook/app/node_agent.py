"""Runner of the node agent: periodic checks of kube-apiserver's credentials on a control-plane node."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from webhook.adapters.logs import Logs
from webhook.app.supervision import watch_stop_signals
from webhook.ports import Credentials
from webhook.support.condition import Condition
from webhook.support.kubeconfig import Kubeconfig


@dataclass(frozen=True, slots=True)
class NodeCheck:
    """The changes made by one check, and its errors."""

    done: Sequence[str] = ()
    errors: Sequence[str] = ()


@asynccontextmanager
async def open_credentials(kubeconfig: Kubeconfig | None) -> AsyncIterator[Credentials]:
    """Yield the credentials in a kubeconfig's cluster (None: the local cluster); UserError: no usable configuration."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    client = await kubernetes.connect(kubeconfig)
    try:
        yield kubernetes.ClusterCredentials(client)
    finally:
        await client.close()


async def check_until_signalled(check: Callable[[], Awaitable[NodeCheck]], every_seconds: float) -> None:
    """Check periodically, and log changes and errors, until SIGTERM or SIGINT."""
    asked, _ = watch_stop_signals()
    checking = asyncio.create_task(_check_periodically(check, every_seconds, Logs()))
    await asked.wait()
    checking.cancel()
    await asyncio.gather(checking, return_exceptions=True)


async def _check_periodically(check: Callable[[], Awaitable[NodeCheck]], every_seconds: float, logs: Logs) -> None:
    def warn(errors: Iterable[str]) -> None:
        for error in errors:
            logs.write_event("warning", error)

    failure = Condition[Sequence[str]](
        warn,
        lambda _: logs.write_event("info", "recovered"),
        on_changed=lambda former, errors: warn(error for error in errors if error not in former),
    )
    while True:
        try:
            found = await check()
        except Exception as error:  # noqa: BLE001  a defect here must not let the credentials expire
            found = NodeCheck(errors=(f"check failed: {error!r}",))
        for line in found.done:
            logs.write_event("info", line)
        if found.errors:
            failure.enter(found.errors)
        else:
            failure.leave()
        await asyncio.sleep(every_seconds)
