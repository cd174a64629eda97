"""Installation with servers in the cluster."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webhook.app.certificates import bootstrap_with
from webhook.app.operations import pki_folder
from webhook.app.operations.call_proof import CallProof, InstallProofs
from webhook.app.operations.installer import CREATED, UNCHANGED, Installer, InstallProgress, InstallTerms
from webhook.app.scheduling.extender_proof import ExtenderProver
from webhook.core.document.configmap import NAMESPACE
from webhook.core.installation import ways
from webhook.core.installation.objects import ObjectReference, ordered
from webhook.core.installation.plan import InstallPlan
from webhook.core.webhook_configurations import ClientConfig, ServiceReference
from webhook.errors import UserError
from webhook.settings import Certificates, ControllerSettings, parse_as
from webhook.support.kubeconfig import Kubeconfig

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

    from webhook.adapters.kubernetes import ClusterObjects

_ISSUER = f"https://podgate.{NAMESPACE}.svc"
_SERVING = ObjectReference("v1", "Secret", "podgate-tls", NAMESPACE)
_OWN = tuple(
    ObjectReference("v1", "Secret", name, NAMESPACE)
    for name in ("podgate-serving-ca", "podgate-client-ca", "podgate-tls", "podgate-apiserver", "podgate-token-keys")
)
_OWN_OF_SCHEDULER = tuple(
    ObjectReference("v1", "Secret", f"podgate-{name}", NAMESPACE)
    for name in ("extender-ca", "scheduler-ca", "extender-tls", "scheduler-tls")
)
_WORKLOADS = ("Deployment", "DaemonSet")
_MANAGED_PROOF_SECONDS, _PROOF_SECONDS, _SCHEDULER_PROOF_SECONDS = 30.0, 5.0, 30.0
"""The leader, or cert-manager's injector, writes caBundle within ten seconds."""


@dataclass(frozen=True, slots=True)
class ClusterServers:
    """Servers in the cluster: who manages their certificates, the user's folder of credentials, and the mode."""

    kubeconfig: Kubeconfig
    certificates: str
    pki: Path
    is_reduced: bool


async def install_in_cluster(
    plan: InstallPlan,
    servers: ClusterServers,
    terms: InstallTerms,
    progress: InstallProgress,
) -> InstallProofs | None:
    """Install servers in the cluster; return the proofs, None for a dry run."""
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    client = await kubernetes.connect(servers.kubeconfig)
    try:
        installation = _ClusterInstallation(client, kubernetes.ClusterObjects(client), servers, terms, progress)
        return await installation.run(plan)
    finally:
        await client.close()


class _ClusterInstallation:
    """One installation with servers in the cluster."""

    def __init__(
        self,
        client: "ApiClient",
        cluster: "ClusterObjects",
        servers: ClusterServers,
        terms: InstallTerms,
        progress: InstallProgress,
    ) -> None:
        self._client = client
        self._cluster = cluster
        self._servers = servers
        self._terms = terms
        self._progress = progress
        self._installer = Installer(cluster, terms, progress)

    async def run(self, plan: InstallPlan) -> InstallProofs | None:
        policy = await self._installer.begin(plan)
        has_scheduler = bool(plan.record.scheduler)
        credentials = await self._credentials(has_scheduler=has_scheduler)
        objects = plan.objects
        if has_scheduler:
            objects = ways.with_scheduler_version(objects, await self._cluster.git_version())
        if self._servers.certificates == ways.CERT_MANAGER:  # its Secret has no token, so the cluster's are used
            objects = ways.with_issuer(objects, await self._cluster.token_issuer())
        workloads = [one for one in objects if one["kind"] in _WORKLOADS]
        others = [one for one in objects if one["kind"] not in _WORKLOADS]
        await self._installer.apply(ordered([*others, *credentials]))
        if self._servers.certificates == ways.OWN:
            await self._bootstrap(has_scheduler=has_scheduler)
        await self._installer.apply(workloads)
        for one in workloads:
            delay = await self._rolled_out(ObjectReference.of(one))
            if delay:
                remedy = "kubectl describe pods -n podgate-system; then run this command again"
                text = f"the servers are not ready: {delay}"
                return InstallProofs(CallProof(is_called=False, text=text, remedy=remedy))
        is_managed = self._servers.certificates != ways.FILES
        client = await self._client_config()
        applied = ClientConfig(ServiceReference(port=None), b"") if is_managed else client
        await self._installer.apply_webhooks(policy, applied)
        if self._terms.is_dry:
            return None
        patience = _MANAGED_PROOF_SECONDS if is_managed else _PROOF_SECONDS
        called = await self._installer.prove(policy, client, patience)
        if not has_scheduler:
            return InstallProofs(called)
        self._progress.on_wait("podgate-scheduler to ask the extender about a Pod that it refuses")
        return InstallProofs(called, await ExtenderProver(self._cluster).prove(_SCHEDULER_PROOF_SECONDS))

    async def _credentials(self, *, has_scheduler: bool) -> list[dict[str, Any]]:
        """Return the Secrets of certificates that the user manages; UserError if others are in use."""
        servers = self._servers
        if servers.certificates != ways.FILES:
            return []
        live = await self._cluster.get(_SERVING)
        bundle = pki_folder.ca_bundle(servers.pki)
        if live is not None and _data(live, "serving-ca.crt") != bundle:
            raise UserError(
                f"{_SERVING}: data[serving-ca.crt]: not the CA of {servers.pki / 'ca.crt'}",
                f"give the folder with its CA: --pki DIR; or delete it: kubectl delete {_SERVING} -n {NAMESPACE}",
            )
        is_dry, is_reduced = self._terms.is_dry, servers.is_reduced
        issued = pki_folder.issue_for_service(servers.pki, is_reduced=is_reduced, is_dry=is_dry)
        issued += pki_folder.issue_for_scheduler(servers.pki, is_dry=is_dry) if has_scheduler else []
        for file in issued:
            self._progress.on_object(file, "issued")
        found = pki_folder.credentials(servers.pki, is_reduced=is_reduced)
        return [*found, *(pki_folder.scheduler_credentials(servers.pki) if has_scheduler else ())]

    async def _bootstrap(self, *, has_scheduler: bool) -> None:
        """Create the Secrets of certificates that the leader manages."""
        if self._terms.is_dry:
            for one in (*_OWN, *(_OWN_OF_SCHEDULER if has_scheduler else ())):
                is_there = await self._cluster.get(one) is not None
                self._progress.on_object(one, UNCHANGED if is_there else CREATED)
            return
        flags: dict[str, str | None] = {"certificates": str(Certificates.OWN), "token_issuer": _ISSUER}
        flags |= {"scheduler_certificates": "true"} if has_scheduler else {}
        where = self._servers.kubeconfig
        flags |= {"kubeconfig": str(where), "context": where.context}
        settings = parse_as(ControllerSettings, flags, {})
        found = await bootstrap_with(self._client, settings)
        for line in found.done:
            self._progress.on_object(*line.split(": ", 1))  # the name, and what was done to it
        if found.errors:
            raise UserError("\n".join(found.errors))

    async def _rolled_out(self, reference: ObjectReference) -> str:
        if self._terms.is_dry or reference.kind != "Deployment":
            return ""
        return await self._installer.roll_out(reference)

    async def _client_config(self) -> ClientConfig:
        """Return how the API server reaches the servers, with the CA of their certificate."""
        live = await self._cluster.get(_SERVING)
        bundle = b"" if live is None else _data(live, "serving-ca.crt") or _data(live, "ca.crt")
        secret = pki_folder.secret_path(self._servers.pki) if self._servers.is_reduced else ""
        return ClientConfig(ServiceReference(), bundle or pki_folder.ca_bundle(self._servers.pki), secret)


def _data(secret: dict[str, Any], key: str) -> bytes:
    return base64.b64decode((secret.get("data") or {}).get(key, ""))
