"""Installation for a server outside the cluster, which a person starts with the command that is printed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

from webhook.core.installation.plan import InstallPlan
from webhook.core.webhook_configurations import ClientConfig
from webhook.operations.call_proof import CallProof, InstallProofs
from webhook.operations.installer import Installer, InstallProgress, InstallTerms
from webhook.support.kubeconfig import Kubeconfig

_TOKEN_PROOF_SECONDS, _PROOF_SECONDS = 75.0, 5.0
_POLL_SECONDS = 0.5
_TIMEOUT_SECONDS = 3
_REASON_BYTES_MAX = 2000


@dataclass(frozen=True, slots=True)
class OutsideServer:
    """The server: how the API server reaches it, the URL of its plain port, and the command that starts it."""

    client: ClientConfig
    status_url: str
    command: str
    is_token_renewed: bool
    """The API server has another token than the folder, for at most a minute."""


async def install_outside(
    kubeconfig: Kubeconfig,
    plan: InstallPlan,
    prepare: Callable[[], OutsideServer],
    terms: InstallTerms,
    progress: InstallProgress,
) -> InstallProofs | None:
    """Install for a server outside the cluster; return the proofs, None for a dry run.

    `prepare` issues the files that the server lacks, once the cluster is known to fit.
    """
    from webhook.adapters import kubernetes  # noqa: PLC0415  its library takes long to load

    client = await kubernetes.connect(kubeconfig)
    try:
        installer = Installer(kubernetes.ClusterObjects(client), terms, progress)
        policy = await installer.begin(plan)
        server = prepare()
        webhooks = installer.render_webhooks(policy, server.client)
        await installer.check([*plan.objects, *webhooks])
        await installer.apply(plan.objects)
        if not terms.is_dry:
            unready = await _await_ready(server, terms, progress)
            if unready:
                remedy = f"start it, and run this command again: {server.command}"
                text = f"the server is not ready: {unready}"
                return InstallProofs(CallProof(is_called=False, text=text, remedy=remedy))
        await installer.apply(webhooks)
        if terms.is_dry:
            await installer.announce(plan, policy)
            return None
        patience = _PROOF_SECONDS
        if server.is_token_renewed:
            progress.on_wait("the API server to read the new token, as it does every minute")
            patience = _TOKEN_PROOF_SECONDS
        return InstallProofs(await installer.prove(policy, server.client, patience))
    finally:
        await client.close()


async def _await_ready(server: OutsideServer, terms: InstallTerms, progress: InstallProgress) -> str:
    """Wait until the server is ready; return why it is not, "" if it is."""
    end_seconds = asyncio.get_running_loop().time() + terms.wait_seconds
    shown = ""
    while unready := await asyncio.to_thread(_find_unready_reason, server.status_url):
        if asyncio.get_running_loop().time() >= end_seconds:
            return unready
        if unready != shown:
            shown = unready
            progress.on_wait(f"the server at {server.status_url} to be ready ({unready}); start it: {server.command}")
        await asyncio.sleep(_POLL_SECONDS)
    return ""


def _find_unready_reason(url: str) -> str:
    """Return why a server is not ready, "" if it is."""
    opener = build_opener(ProxyHandler({}))  # a proxy would connect to its own loopback
    try:
        with opener.open(f"{url}/readyz", timeout=_TIMEOUT_SECONDS):
            return ""
    except HTTPError as error:
        with error:
            return error.read(_REASON_BYTES_MAX).decode(errors="replace").strip() or f"HTTP {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        cause = getattr(error, "reason", None) or error
        return str(getattr(cause, "strerror", None) or cause)
