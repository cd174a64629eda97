"""One waiting Pod, as a command finds and deletes it with its user's rights."""

import getpass
import socket
import time

from webhook.adapters.kubernetes.events.event_object import EventType, Happening, Regarding
from webhook.adapters.kubernetes.waiting_pods import FoundPod, WaitingPods
from webhook.core.reporting.queue_document import DROPPED
from webhook.errors import UserError
from webhook.support.kubeconfig import Kubeconfig


async def find_gated(kubeconfig: Kubeconfig, namespace: str, name: str) -> FoundPod:
    """Return a Pod that waits; UserError if there is none, or it does not wait."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    client = await kubernetes.connect(kubeconfig)
    try:
        return _require_waiting(await WaitingPods(client).find(namespace, name), namespace, name)
    finally:
        await client.close()


async def drop_gated(
    kubeconfig: Kubeconfig, namespace: str, name: str, reason: str, *, is_dry: bool
) -> tuple[FoundPod, str]:
    """Delete a Pod that waits, never a later one of its name; return it, and why the reason is not recorded, if so."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  as above

    client = await kubernetes.connect(kubeconfig)
    try:
        pods = WaitingPods(client)
        found = _require_waiting(await pods.find(namespace, name), namespace, name)
        if is_dry:
            return found, ""
        note = f"dropped from the queue of {found.service or 'no service'}: {reason}"
        about = Regarding("v1", "Pod", namespace, name, found.uid)
        event = Happening(about, EventType.NORMAL, DROPPED, "Drop", note, found.uid, time.time_ns())
        await pods.delete(namespace, name, found.uid)
        return found, await pods.report(event, f"{getpass.getuser()}@{socket.gethostname()}")
    finally:
        await client.close()


def _require_waiting(found: FoundPod | None, namespace: str, name: str) -> FoundPod:
    if found is None:
        raise UserError(f"pod {namespace}/{name}: not found", "see `podgate queue` for the Pods that wait")
    if not found.is_gated:
        raise UserError(f"pod {namespace}/{name}: does not wait", "see `podgate explain` for what it does")
    if not found.service:
        raise UserError(
            f"pod {namespace}/{name}: metadata.labels: no service owns it", "its gate is removed by the controller"
        )
    return found
