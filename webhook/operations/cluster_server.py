"""Installation with servers in the cluster."""

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from webhook.app.certificates import bootstrap_client
from webhook.core.document.configmap import NAMESPACE
from webhook.core.installation import ways
from webhook.core.installation.objects import ObjectReference, sort_objects
from webhook.core.installation.ownership import MANAGED_BY, OF_LEADER, is_of_leader
from webhook.core.installation.plan import InstallPlan
from webhook.core.webhook_configurations import ClientConfig, ServiceReference
from webhook.errors import UserError
from webhook.operations import pki_folder
from webhook.operations.call_proof import CallProof, InstallProofs
from webhook.operations.extender_proof import ExtenderProver
from webhook.operations.installer import CHANGED, CREATED, UNCHANGED, Installer, InstallProgress, InstallTerms
from webhook.settings import Certificates, ControllerSettings, parse_as
from webhook.support.kubeconfig import Kubeconfig

if TYPE_CHECKING:
    from kubernetes_asyncio.client import ApiClient

    from webhook.adapters.kubernetes import ClusterObjects

_ISSUER = f"https://podgate.{NAMESPACE}.svc"
_KEY_SET = ObjectReference("v1", "ConfigMap", "podgate-jwks", NAMESPACE)
_SERVING, _CALLER, _PATH, _EXTENDER, _SCHEDULER, *_LEADER_SECRETS = (
    ObjectReference("v1", "Secret", f"podgate-{name}", NAMESPACE)
    for name in (
        *("tls", "apiserver", "reduced-path", "extender-tls", "scheduler-tls"),
        *("serving-ca", "client-ca", "token-keys", "extender-ca", "scheduler-ca"),
    )
)
_FILES, _REDUCED, _SCHEDULER_SECRETS = (_SERVING, _CALLER, _KEY_SET), (_SERVING, _PATH), (_EXTENDER, _SCHEDULER)
"""Objects with the files of a folder: of servers, of servers in reduced mode, and of the scheduler."""
_BEGIN = b"-----BEGIN CERTIFICATE-----"
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
        await self._check_leader_objects(has_scheduler=has_scheduler)
        credentials = await self._issue_credentials(has_scheduler=has_scheduler)
        objects = plan.objects
        if has_scheduler:
            objects = ways.set_scheduler_version(objects, await self._cluster.git_version())
        if self._servers.certificates == ways.CERT_MANAGER:  # its Secret has no token, so the cluster's are used
            objects = ways.set_identity_issuer(objects, await self._cluster.read_token_issuer())
        workloads = [document for document in objects if document["kind"] in _WORKLOADS]
        others = sort_objects([*(document for document in objects if document["kind"] not in _WORKLOADS), *credentials])
        is_managed = self._servers.certificates != ways.FILES
        client = (
            ClientConfig(ServiceReference(port=None), b"")
            if is_managed
            else self._client_of(pki_folder.read_ca_bundle(self._servers.pki))
        )
        webhooks = self._installer.render_webhooks(policy, client)
        await self._installer.check([*others, *workloads, *webhooks])
        working = await self._installer.find_working(workloads)
        await self._installer.apply(others)
        if self._servers.certificates == ways.OWN:
            await self._bootstrap(has_scheduler=has_scheduler)
        await self._installer.apply(workloads)
        delay = await self._await_rollout(workloads)
        if delay:
            return InstallProofs(await self._undo_rollout(delay, working))
        await self._installer.apply(webhooks)
        if self._terms.is_dry:
            await self._installer.announce(plan, policy)
            return None
        patience = _MANAGED_PROOF_SECONDS if is_managed else _PROOF_SECONDS
        called = await self._installer.prove(policy, await self._find_client_config(), patience)
        if not has_scheduler:
            return InstallProofs(called)
        self._progress.on_wait("podgate-scheduler to ask the extender about a Pod that it refuses")
        return InstallProofs(called, await ExtenderProver(self._cluster).prove(_SCHEDULER_PROOF_SECONDS))

    async def _undo_rollout(self, delay: str, working: list[dict[str, Any]]) -> CallProof:
        """Restore the Deployments that worked before; return the failure with the reason for the delay."""
        back = await self._installer.put_back(working)
        text = f"the servers are not ready: {delay}"
        remedy = "kubectl describe pods -n podgate-system; then run this command again"
        if back:
            text += f"; {', '.join(back)}: changed back to what ran before"
            remedy = "correct that, or give --wait more time, and run this command again"
        return CallProof(is_called=False, text=text, remedy=remedy)

    async def _check_leader_objects(self, *, has_scheduler: bool) -> None:
        """Check that the leader may write its Secrets. UserError names those that somebody else has created."""
        if self._servers.certificates != ways.OWN:
            return
        found = []
        for reference in _list_leader_objects(has_scheduler=has_scheduler):
            live = await self._cluster.get(reference)
            if live is not None and not is_of_leader(live):
                found.append(str(reference))
        if found:
            raise UserError(
                f"{', '.join(found)}: metadata.labels[{MANAGED_BY}]: not {OF_LEADER!r}: somebody else has created them",
                "to use them give --certificates files with the folder of their files in --pki; to have Podgate issue"
                f" others, delete them: kubectl delete {' '.join(found)} -n {NAMESPACE}",
            )

    async def _issue_credentials(self, *, has_scheduler: bool) -> list[dict[str, Any]]:
        """Return the Secrets of certificates that the user manages; UserError if others are in use."""
        servers = self._servers
        if servers.certificates != ways.FILES:
            return []
        live = await self._cluster.get(_SERVING)
        bundle = pki_folder.read_ca_bundle(servers.pki)
        if live is not None and not _split_bundle(_read_data(live, "serving-ca.crt")) & _split_bundle(bundle):
            raise UserError(
                f"{_SERVING}: data[serving-ca.crt]: no CA of {servers.pki / 'ca.crt'} is in it",
                f"give the folder with its CA: --pki DIR; or delete it: kubectl delete {_SERVING} -n {NAMESPACE}",
            )
        is_dry, is_reduced = self._terms.is_dry, servers.is_reduced
        issued = pki_folder.issue_for_service(servers.pki, is_reduced=is_reduced, is_dry=is_dry)
        issued += pki_folder.issue_for_scheduler(servers.pki, is_dry=is_dry) if has_scheduler else []
        for file in issued:
            self._progress.on_object(file, "issued")
        if is_dry and issued:  # missing files cannot be tried
            await self._show_unissued(has_scheduler=has_scheduler)
            return []
        found = pki_folder.build_credentials(servers.pki, is_reduced=is_reduced)
        return [*found, *(pki_folder.build_scheduler_credentials(servers.pki) if has_scheduler else ())]

    async def _show_unissued(self, *, has_scheduler: bool) -> None:
        """Name the objects with the content of a folder that lacks files."""
        for reference in (
            *(_REDUCED if self._servers.is_reduced else _FILES),
            *(_SCHEDULER_SECRETS if has_scheduler else ()),
        ):
            self._progress.on_object(reference, CREATED if await self._cluster.get(reference) is None else CHANGED)

    async def _bootstrap(self, *, has_scheduler: bool) -> None:
        """Create the objects that the leader writes for certificates that it manages."""
        references = _list_leader_objects(has_scheduler=has_scheduler)
        before = [await self._cluster.get(reference) for reference in references]
        if not self._terms.is_dry:
            flags: dict[str, str | None] = {"certificates": str(Certificates.OWN), "token_issuer": _ISSUER}
            flags |= {"scheduler_certificates": "true"} if has_scheduler else {}
            where = self._servers.kubeconfig
            flags |= {"kubeconfig": str(where), "context": where.context}
            found = await bootstrap_client(self._client, parse_as(ControllerSettings, flags, {}))
        after = before if self._terms.is_dry else [await self._cluster.get(reference) for reference in references]
        for reference, former, live in zip(references, before, after, strict=True):
            is_same = live is not None and former is not None and live.get("data") == former.get("data")
            self._progress.on_object(reference, CREATED if former is None else UNCHANGED if is_same else CHANGED)
        if not self._terms.is_dry and found.errors:
            raise UserError("\n".join(found.errors))

    async def _await_rollout(self, workloads: list[dict[str, Any]]) -> str:
        """Wait until the Deployments are rolled out; return why the first of them is late, "" if none is."""
        for workload in workloads if not self._terms.is_dry else ():
            if workload["kind"] == "Deployment":
                delay = await self._installer.roll_out(ObjectReference.from_document(workload))
                if delay:
                    return delay
        return ""

    async def _find_client_config(self) -> ClientConfig:
        """Return how the API server reaches the servers, with the CA of their certificate."""
        live = await self._cluster.get(_SERVING)
        bundle = b"" if live is None else _read_data(live, "serving-ca.crt") or _read_data(live, "ca.crt")
        return self._client_of(bundle or pki_folder.read_ca_bundle(self._servers.pki))

    def _client_of(self, bundle: bytes) -> ClientConfig:
        """Return how the API server reaches the servers, if their certificate is of these CAs."""
        secret = pki_folder.read_secret_path(self._servers.pki) if self._servers.is_reduced else ""
        return ClientConfig(ServiceReference(), bundle, secret)


def _list_leader_objects(*, has_scheduler: bool) -> list[ObjectReference]:
    """Return the objects that the leader writes for certificates that it manages."""
    found = [*_FILES, *_LEADER_SECRETS[:3]]
    return [*found, *_SCHEDULER_SECRETS, *_LEADER_SECRETS[3:]] if has_scheduler else found


def _split_bundle(bundle: bytes) -> set[bytes]:
    """Return the certificates of a bundle: a rotation adds the next CA to the present one."""
    return {certificate.strip() for certificate in bundle.split(_BEGIN)[1:]}


def _read_data(secret: dict[str, Any], key: str) -> bytes:
    return base64.b64decode((secret.get("data") or {}).get(key, ""))
