"""Where policy and Namespace labels come from: a cluster, or a file; which of them, the settings say."""

import os
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.policy_file import PolicyFile
from webhook.adapters.policy_process.parent import PolicyProcess
from webhook.core.document import Purpose, configmap
from webhook.policy_keeper import PolicyKeeper
from webhook.ports import Clock, NamespaceLabels, PolicySource
from webhook.settings import MEMORY, Settings, in_cluster
from webhook.wiring.telemetry import Telemetry

if TYPE_CHECKING:
    from webhook.adapters.kubernetes import Lease

Loop = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Sources:
    """What the interceptor judges by. `name` says where the policy is, for people.

    `loops` keep it current; `close` comes after they have ended.
    """

    name: str
    keeper: PolicyKeeper
    policies: PolicySource
    namespaces: NamespaceLabels
    loops: tuple[Loop, ...]
    close: Loop
    lease: "Lease | None" = None
    """Under which one server counts in its memory, where there is a cluster to tell which."""
    purpose: Purpose = Purpose.SERVE
    """What a policy may ask of this server."""


async def open_sources(settings: Settings, telemetry: Telemetry, clock: Clock) -> Sources:
    """Return the sources that the settings name; UserError names what is wrong with a kubeconfig."""
    if settings.kubeconfig is None and not in_cluster(os.environ):
        return _alone(settings, telemetry, clock)
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load: only where it is wanted

    client = await kubernetes.connect(settings.kubeconfig)
    purpose = Purpose.serving(alone=False, in_process=settings.store == MEMORY)
    keeper = PolicyKeeper(telemetry.observer, clock, PolicyProcess(), purpose)
    namespaces = kubernetes.WatchedNamespaces(client, reports=telemetry.watched("namespaces"))
    policies: PolicyFile | kubernetes.ConfigMapPolicy
    if settings.policy is not None:
        name, policies = str(settings.policy), PolicyFile(settings.policy, keeper)
    else:
        name = f"configmap {configmap.NAMESPACE}/{configmap.NAME}"
        policies = kubernetes.ConfigMapPolicy(client, keeper, reports=telemetry.watched("configmaps"))
    lease = None
    if settings.store == MEMORY:
        logs = telemetry.logs
        lease = kubernetes.Lease(
            client,
            socket.gethostname(),
            is_unique=settings.kubeconfig is None,
            reports=telemetry.watched("leases"),
            on_wait=lambda reason: logs.said("warning", "waiting for another server to end", reason=reason),
        )
    return Sources(name, keeper, policies, namespaces, (policies.run, namespaces.run), client.close, lease, purpose)


def _alone(settings: Settings, telemetry: Telemetry, clock: Clock) -> Sources:
    if settings.policy is None:
        raise LookupError("settings without a cluster have a policy file")
    purpose = Purpose.serving(alone=True, in_process=settings.store == MEMORY)
    keeper = PolicyKeeper(telemetry.observer, clock, PolicyProcess(), purpose)
    policies = PolicyFile(settings.policy, keeper)

    async def close() -> None:
        """Do nothing: there is no client."""

    return Sources(str(settings.policy), keeper, policies, FixedNamespaces(), (policies.run,), close, purpose=purpose)
