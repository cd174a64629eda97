"""Composition of the policy in force with its overrides: each from a ConfigMap, or from a file."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from webhook.adapters.clocks import WallClock
from webhook.adapters.overrides_file import OverridesFile
from webhook.adapters.policy_file import PolicyFile
from webhook.adapters.policy_process.parent import PolicyProcess
from webhook.app.supervision import Loop
from webhook.app.telemetry import Telemetry
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose, configmap
from webhook.core.quota.teams import list_team_limits
from webhook.policy_in_force.active_overrides import ActiveOverrides
from webhook.policy_in_force.active_policy import ActivePolicy
from webhook.policy_in_force.parts_assembler import PartsAssembler
from webhook.policy_in_force.policy_receiver import PolicyReceiver
from webhook.policy_in_force.policy_signatures import PolicySignatures
from webhook.policy_in_force.policy_webhook import PolicyWebhook
from webhook.ports import Clock, CounterStore, Observer, PolicyRevisions, RolloutStateStore, StatusClient
from webhook.settings import MEMORY, ProcessSettings

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

    from webhook.adapters.kubernetes import WatchedNamespaces


@dataclass(frozen=True, slots=True)
class OverridesSource:
    """The active overrides, the function that loads them at start, and the loops that keep them current."""

    active: ActiveOverrides
    refresh: Loop
    loops: tuple[Loop, ...]


@dataclass(frozen=True, slots=True)
class FollowedPolicy:
    """The policy in force with its overrides. `name` describes its source; `loops` keep both current."""

    name: str
    policies: PolicyReceiver
    overrides: OverridesSource
    signatures: PolicySignatures
    """Of the documents that were accepted, so that kept copies have them too."""
    loops: tuple[Loop, ...]

    def list_unready(self) -> list[str]:
        """Return the reason why no policy is loaded; empty if one is."""
        return list_policy_unready(self.policies)


@dataclass(frozen=True, slots=True)
class RolloutClients:
    """Clients by which the leader brings a changed policy into force, and shows how far it has come."""

    states: RolloutStateStore
    revisions: PolicyRevisions
    board: StatusClient


def list_policy_unready(policies: PolicyReceiver) -> list[str]:
    if policies.get_current() is not None:
        return []
    return ["no good policy: " + "; ".join(policies.list_problems())]


def follow_policy(
    client: "ApiClient",
    settings: ProcessSettings,
    telemetry: Telemetry,
    clock: Clock,
    purpose: Purpose,
    *,
    keeps_last_good: bool = True,
) -> FollowedPolicy:
    """Return the policy, from a file if the settings name one, else from a ConfigMap; the overrides likewise."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    if settings.overrides is not None:
        overrides = open_overrides_file(settings.overrides, telemetry)
    else:
        overrides = open_overrides_configmap(client, telemetry)
    active, signatures = build_active_policy(overrides, clock), PolicySignatures(settings.policy_keys)
    if settings.policy is not None:
        current = PolicyReceiver(telemetry.observer, clock, PolicyProcess(), purpose, active)
        file = open_policy_file(settings.policy, current, signatures)
        current.refresh_source = file.refresh
        loops: tuple[Loop, ...] = file.run, current.active.run, *overrides.loops
        return FollowedPolicy(str(settings.policy), current, overrides, signatures, loops)
    revisions = kubernetes.ControllerRevisions(client, signatures=signatures)
    current = PolicyReceiver(telemetry.observer, clock, PolicyProcess(), purpose, active, revisions)
    reports = telemetry.build_watch_reports("configmaps")
    assembler = PartsAssembler(current, PolicyProcess(), telemetry.observer, purpose, is_signed=signatures.is_required)
    source = kubernetes.ConfigMapPolicy(
        client,
        assembler,
        reports=reports,
        keeps_last_good=keeps_last_good,
        signatures=signatures,
        last_good_receiver=current,
    )
    assembler.read_former, current.assembler = source.read_last_good, assembler
    parts = kubernetes.ConfigMapParts(client, assembler, reports=telemetry.build_watch_reports("parts"))
    rollout, reports = current.rollout, telemetry.build_watch_reports("rollout")
    rollout.read_last_good, rollout.keep_last_good = source.read_last_good, source.keep_last_good
    state = kubernetes.ConfigMapRolloutState(client, rollout, reports=reports)

    async def refresh() -> None:
        """Read all: another process may have followed a change of any."""
        await asyncio.gather(state.refresh(), source.refresh())
        await parts.refresh()

    current.refresh_source = refresh
    name = f"configmap {configmap.NAMESPACE}/{configmap.NAME}"
    loops = source.run, parts.run, state.run, rollout.run, current.active.run, *overrides.loops
    return FollowedPolicy(name, current, overrides, signatures, loops)


def open_policy_file(path: Path, receiver: PolicyReceiver, signatures: PolicySignatures) -> PolicyFile:
    return PolicyFile(path, receiver, signatures=signatures if signatures.is_required else None)


def build_policy_webhook(
    settings: ProcessSettings, policies: PolicyReceiver, observer: Observer, purpose: Purpose
) -> PolicyWebhook:
    return PolicyWebhook(
        *(observer, PolicyProcess(), policies.get_loaded, WallClock(), purpose),
        signatures=PolicySignatures(settings.policy_keys),
        assembler=policies.assembler,
    )


def open_overrides_configmap(client: "ApiClient", telemetry: Telemetry) -> OverridesSource:
    from webhook.adapters import kubernetes  # noqa: PLC0415  as above

    place = f"configmap {configmap.NAMESPACE}/{configmap.OVERRIDES}"
    active = ActiveOverrides(telemetry.observer, WallClock(), place)
    source = kubernetes.ConfigMapOverrides(client, active, reports=telemetry.build_watch_reports("overrides"))
    return OverridesSource(active, source.refresh, (source.run, active.run))


def open_overrides_file(path: Path, telemetry: Telemetry) -> OverridesSource:
    active = ActiveOverrides(telemetry.observer, WallClock(), str(path))
    source = OverridesFile(path, active)
    return OverridesSource(active, source.refresh, (source.run, active.run))


def build_active_policy(overrides: OverridesSource, clock: Clock) -> ActivePolicy:
    active = ActivePolicy(overrides.active, clock)
    overrides.active.prepare = active.prepare
    return active


def follow_store_clock(policies: PolicyReceiver, counters: CounterStore, store: str = "") -> None:
    """Let schedules change by the store's clock, which all replicas share; alone, by that of the machine."""
    policies.active.read_time_us = WallClock().now_us if store == MEMORY else counters.now_us


async def follow_teams(policies: PolicyReceiver, namespaces: "WatchedNamespaces") -> None:
    """Tell the watch of Namespaces how many teams count apart by the policy in force, until cancelled."""
    known: CompiledPolicy | None = None
    while True:
        compiled = policies.get_current()
        if compiled is not None and compiled is not known:
            known = compiled
            namespaces.set_team_limits(list_team_limits(compiled.policy))
        await asyncio.sleep(1.0)


def build_rollout_clients(client: "ApiClient", signatures: PolicySignatures) -> RolloutClients:
    from webhook.adapters import kubernetes  # noqa: PLC0415  as above

    return RolloutClients(
        kubernetes.ConfigMapRolloutStateStore(client),
        kubernetes.ControllerRevisions(client, signatures=signatures),
        kubernetes.PolicyRollouts(client),
    )
