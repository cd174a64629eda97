"""Composition of the sources of policy, overrides and Namespace labels: a cluster, or files."""

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from webhook.adapters.clocks import WallClock
from webhook.adapters.fixed import FixedNamespaces
from webhook.adapters.policy_process.parent import PolicyProcess
from webhook.app.certificates import CertificateController
from webhook.app.policy_source import (
    OverridesSource,
    RolloutClients,
    build_active_policy,
    build_rollout_clients,
    follow_policy,
    follow_teams,
    list_policy_unready,
    open_overrides_file,
    open_policy_file,
)
from webhook.app.supervision import Loop
from webhook.app.telemetry import Telemetry
from webhook.app.telemetry.loop_reports import build_slot_trouble
from webhook.core.admission.exemptions import PODGATE_USERS
from webhook.core.document import Purpose, configmap
from webhook.policy_in_force.active_overrides import ActiveOverrides
from webhook.policy_in_force.policy_receiver import PolicyReceiver
from webhook.policy_in_force.policy_signatures import PolicySignatures
from webhook.ports import (
    Clock,
    GateClient,
    GroupObjects,
    KeyPublisher,
    NamespaceLabels,
    PlaceEvents,
    PodEvictions,
    PodWatch,
    SlotOwners,
    StatusClient,
    WebhookConfigurationClient,
)
from webhook.ports.viewers import AccessReviews
from webhook.settings import (
    MEMORY,
    Certificates,
    ControllerSettings,
    Settings,
    WebhookConfigurationMode,
    is_in_cluster,
)

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

    from webhook.adapters.kubernetes import HeldControllers, Lease, RequestedWakes, ServerLeases


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of policy, overrides and Namespace labels. `name` describes the source of the policy.

    `loops` keep them current; `close` is called after they have ended.
    """

    name: str
    policies: PolicyReceiver
    namespaces: NamespaceLabels
    overrides: OverridesSource
    loops: tuple[Loop, ...]
    close: Loop
    lease: "Lease | None" = None
    """Lease of a server with in-memory counters, in a cluster: only one such server may run."""
    servers: "ServerLeases | None" = None
    """Leases by which servers that share a store count each other; None without a cluster, or with --replicas."""
    pods: PodWatch | None = None
    """Watch on Pods, for a server with in-memory counters, which reconciles them itself."""
    board: StatusClient | None = None
    """Client that writes ServiceStatus objects (leader only); None without a cluster."""
    rollout: RolloutClients | None = None
    """Clients of the policy's rollout (leader only); None without a cluster, or if the policy is read from a file."""
    webhooks: WebhookConfigurationClient | None = None
    """Client of the webhook configurations (leader only); None if they are left alone."""
    writes_webhooks: bool = False
    held: "Callable[..., HeldControllers] | None" = None
    """Makes a client of controllers whose Pods were denied, given its reports (leader only); None to wake none."""
    wakes: "Callable[..., RequestedWakes] | None" = None
    """Makes a client of waiting Pods that an extender wants to be woken (leader only); None without a cluster."""
    gates: GateClient | None = None
    """Client that removes the gates of waiting Pods (leader only); None in a process that never leads."""
    groups: GroupObjects | None = None
    """Reader of the sizes of groups (leader only); None without a cluster."""
    evictions: PodEvictions | None = None
    """Client that evicts Pods of variants without nodes (leader only); None in a process that never leads."""
    slot_owners: SlotOwners | None = None
    """Reader of the workloads whose Pods have slots; None without a cluster."""
    release_rate: int = 0
    """Maximum number of gates that are removed per second."""
    places: PlaceEvents | None = None
    """Sender of Events on waiting Pods (leader only); None without a cluster."""
    cluster_keys: KeyPublisher | None = None
    """Publisher of the keys of the cluster's own token issuer; None if its tokens are not accepted."""
    certificates: CertificateController | None = None
    """Maintains certificates in the cluster while this process leads; None if it manages none."""
    purpose: Purpose = Purpose.SERVE
    """The command and setup that policies are checked for."""
    is_releaser: Callable[[str], bool] = PODGATE_USERS.__contains__
    """Whether a user may remove the gates of waiting Pods."""
    reviews: AccessReviews | None = None
    """Reviews of the console's viewers; None without a cluster."""
    is_alone: bool = False
    """There is no cluster, and so no controller."""

    def list_unready(self) -> list[str]:
        """Return the reason why no policy is loaded; empty if one is."""
        return list_policy_unready(self.policies)


async def open_sources(settings: Settings, telemetry: Telemetry, clock: Clock) -> Sources:
    """Return the sources named in the settings; UserError for an unusable kubeconfig."""
    if settings.kubeconfig is None and not is_in_cluster(os.environ):
        return _open_sources_alone(settings, telemetry, clock)
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    client = await kubernetes.connect(settings.kubeconfig)
    followed = await follow(
        client, settings, telemetry, clock, Purpose.from_setup(alone=False, in_process=counts_in_memory(settings))
    )
    lease = servers = pods = None
    beside: tuple[Loop, ...] = (report_events(client, settings, telemetry),)
    if counts_in_memory(settings):
        pods = kubernetes.WatchedPods(client, clock, reports=telemetry.build_watch_reports("pods"))
        logs = telemetry.logs
        lease = build_leader_lease(
            client,
            settings,
            telemetry,
            lambda reason: logs.write_event("warning", "waiting for another server to exit", reason=reason),
        )
    elif settings.replicas is None:
        is_unique, reports = settings.kubeconfig is None, telemetry.build_watch_reports("leases")
        servers = kubernetes.ServerLeases(client, socket.gethostname(), is_unique=is_unique, reports=reports)
        beside = *beside, servers.run
    is_releaser, asking = _find_releasers(client, settings, telemetry)
    cluster_keys = kubernetes.ClusterKeys(client) if settings.cluster_keys else None
    return replace(
        followed,
        loops=(*followed.loops, *beside, *asking),
        lease=lease,
        servers=servers,
        pods=pods,
        cluster_keys=cluster_keys,
        is_releaser=is_releaser,
        reviews=kubernetes.KubernetesReviews(client),
    )


def _find_releasers(
    client: "ApiClient", settings: Settings, telemetry: Telemetry
) -> tuple[Callable[[str], bool], tuple[Loop, ...]]:
    """Return whether a user may remove the gates of waiting Pods, and the loops that find out.

    A server with counters in memory releases Pods itself: outside the cluster as the user of its kubeconfig.
    """
    known = PODGATE_USERS | {settings.controller_user}
    if settings.kubeconfig is None or not counts_in_memory(settings):
        return known.__contains__, ()
    from webhook.adapters import kubernetes  # noqa: PLC0415  as above

    logs = telemetry.logs
    own = kubernetes.OwnUser(
        client,
        on_trouble=lambda reason: logs.write_event("warning", "waiting Pods cannot be released yet", reason=reason),
    )
    return lambda user: user in known or user == own.name != "", (own.run,)


def counts_in_memory(settings: ControllerSettings) -> bool:
    """Return whether counters are in this process's memory."""
    return settings.store == MEMORY


async def follow(
    client: "ApiClient",
    settings: ControllerSettings,
    telemetry: Telemetry,
    clock: Clock,
    purpose: Purpose,
    *,
    keeps_last_good: bool = True,
) -> Sources:
    """Return the sources in a cluster: policy (unless the settings name a file), overrides, Namespace labels."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  as above

    followed = follow_policy(client, settings, telemetry, clock, purpose, keeps_last_good=keeps_last_good)
    namespaces = kubernetes.WatchedNamespaces(client, reports=telemetry.build_watch_reports("namespaces"))
    mode = settings.webhook_configurations
    never_leads = isinstance(settings, Settings) and not counts_in_memory(settings)
    gates = None if never_leads else await kubernetes.open_gates(settings.kubeconfig)

    async def close() -> None:
        await client.close()
        if gates is not None:
            await gates.close()

    is_kept = settings.certificates is not Certificates.OFF or settings.token_issuer is not None
    return Sources(
        followed.name,
        followed.policies,
        namespaces,
        followed.overrides,
        (*followed.loops, namespaces.run, partial(follow_teams, followed.policies, namespaces)),
        close,
        board=kubernetes.ServiceStatuses(client),
        rollout=None if settings.policy is not None else build_rollout_clients(client, followed.signatures),
        webhooks=None if mode is WebhookConfigurationMode.OFF else kubernetes.WebhookConfigurations(client),
        held=partial(kubernetes.HeldControllers, client) if settings.wake_controllers else None,
        wakes=partial(kubernetes.RequestedWakes, client),
        writes_webhooks=mode is WebhookConfigurationMode.KEEP,
        gates=gates,
        groups=None if gates is None else kubernetes.GroupObjectReader(client),
        slot_owners=kubernetes.SlotOwnerReader(client, build_slot_trouble(telemetry)),
        evictions=None if gates is None else kubernetes.KubernetesEvictions(client),
        places=_open_place_events(client, telemetry) if gates is not None else None,
        release_rate=settings.release_rate,
        certificates=CertificateController(settings, telemetry, client) if is_kept else None,
        purpose=purpose,
    )


def _open_place_events(client: "ApiClient", telemetry: Telemetry) -> PlaceEvents:
    from webhook.adapters import kubernetes  # noqa: PLC0415  as above

    reports, on_result, timing = telemetry.build_event_reports(), telemetry.metrics.count_event, kubernetes.PLACE_TIMING
    sender = kubernetes.EventSender(client, socket.gethostname(), reports=reports, on_result=on_result, timing=timing)
    return kubernetes.PodPlaceEvents(sender)


def build_leader_lease(
    client: "ApiClient",
    settings: ControllerSettings,
    telemetry: Telemetry,
    on_wait: Callable[[str], None],
    notes: Callable[[], Mapping[str, str]] = dict,
) -> "Lease":
    """Return the Lease of the leader."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  as above

    return kubernetes.Lease(
        client,
        socket.gethostname(),
        is_unique=settings.kubeconfig is None,
        reports=telemetry.build_watch_reports("leases"),
        on_wait=on_wait,
        notes=notes,
    )


def report_events(client: "ApiClient", settings: ControllerSettings, telemetry: Telemetry) -> Loop:
    """Report observations as Events too; return the loop that sends them."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  as above

    reports, on_result = telemetry.build_event_reports(), telemetry.metrics.count_event
    # A controller denies no requests: its Events are only about Podgate's own documents.
    where = "all namespaces" if isinstance(settings, Settings) else configmap.NAMESPACE
    sender = kubernetes.EventSender(client, socket.gethostname(), reports=reports, on_result=on_result, where=where)
    has_policy, has_overrides = settings.policy is None, settings.overrides is None
    telemetry.observer.join(kubernetes.Events(sender, has_policy=has_policy, has_overrides=has_overrides))
    return sender.run


def _open_sources_alone(settings: Settings, telemetry: Telemetry, clock: Clock) -> Sources:
    if settings.policy is None:
        raise LookupError("settings without a cluster must name a policy file")
    purpose = Purpose.from_setup(alone=True, in_process=settings.store == MEMORY)

    async def nothing() -> None:
        """Do nothing: there is no client."""

    if settings.overrides is not None:
        overrides = open_overrides_file(settings.overrides, telemetry)
    else:
        overrides = OverridesSource(ActiveOverrides(telemetry.observer, WallClock()), nothing, ())
    current = PolicyReceiver(telemetry.observer, clock, PolicyProcess(), purpose, build_active_policy(overrides, clock))
    source = open_policy_file(settings.policy, current, PolicySignatures(settings.policy_keys))
    current.refresh_source = source.refresh
    loops = source.run, current.active.run, *overrides.loops
    return Sources(
        str(settings.policy),
        current,
        FixedNamespaces(),
        overrides,
        loops,
        nothing,
        purpose=purpose,
        is_alone=True,
    )
