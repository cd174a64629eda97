"""Proof that the API server calls Podgate: dry runs that come back changed or denied, else the reason why not."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from webhook.core.document import configmap
from webhook.core.installation import plan, probe
from webhook.core.installation.call_remedies import find_remedy
from webhook.core.installation.objects import ObjectReference
from webhook.core.policy.model import LoadedPolicy
from webhook.core.webhook_configurations import ClientConfig

if TYPE_CHECKING:
    from webhook.adapters.kubernetes import ClusterObjects

_NAMESPACES = ObjectReference("v1", "Namespace", "")
_POLL_SECONDS = 0.25
_DIAGNOSIS_SECONDS = 5.0
"""API servers observe a change of a webhook configuration within a second or two."""


@dataclass(frozen=True, slots=True)
class CallProof:
    """Whether the API server calls Podgate, the evidence or the failure, and the remedy."""

    is_called: bool
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class InstallProofs:
    """Proofs at the end of an installation. `scheduler`: whether the second kube-scheduler asks the extender."""

    api_server: CallProof
    scheduler: CallProof | None = None


class CallProver:
    """Dry runs against the installed webhooks; `client` is their clientConfig."""

    def __init__(self, cluster: "ClusterObjects", policy: LoadedPolicy, client: ClientConfig) -> None:
        self._cluster = cluster
        self._policy = policy
        self._client = client
        self._reason = ""
        """Why calls of a webhook that fails closed fail, in the API server's words."""

    async def prove(self, patience_seconds: float) -> CallProof:
        """Try until the API server has observed the configurations, at most for some time."""
        pod = probe.find_pod_probe(self._policy.policy, await self._list_namespaces())
        end_seconds = asyncio.get_running_loop().time() + patience_seconds
        while True:
            is_policy_checked = await self._is_broken_policy_denied()
            seen = await self._find_pod_evidence(pod) if pod is not None else ""
            if seen:
                return CallProof(is_called=True, text=seen)
            if is_policy_checked and pod is None:
                seen = "a broken policy was denied in a dry run. No Pod was tried: no namespace of a service exists yet"
                return CallProof(is_called=True, text=seen)
            if asyncio.get_running_loop().time() >= end_seconds:
                return await self._describe_failure(pod, is_policy_checked=is_policy_checked)
            await asyncio.sleep(_POLL_SECONDS)

    async def _list_namespaces(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of each namespace that is not being deleted."""
        items = await self._cluster.items(_NAMESPACES)
        active = [
            namespace["metadata"]
            for namespace in items
            if (namespace.get("status") or {}).get("phase") != "Terminating"
        ]
        return {metadata["name"]: metadata.get("labels") or {} for metadata in active}

    async def _is_broken_policy_denied(self) -> bool:
        answer = await self._cluster.attempt("PATCH", plan.POLICY.path, probe.BROKEN_POLICY)
        return isinstance(answer, str) and probe.is_denied_by_podgate(answer)

    async def _find_pod_evidence(self, pod: probe.PodProbe) -> str:
        """Return how a dry-run Pod shows that Podgate was called; "" if it does not."""
        answer = await self._cluster.attempt("POST", pod.reference.collection, pod.pod)
        where = f"a Pod of service {pod.service} in namespace {pod.reference.namespace}"
        if isinstance(answer, str):
            self._reason = self._hide_secret(probe.find_failed_call(answer))
            return f"{where} was denied in a dry run" if probe.is_denied_by_podgate(answer) else ""
        return f"{where} came back rewritten from a dry run" if pod.is_rewritten(answer) else ""

    async def _describe_failure(self, pod: probe.PodProbe | None, *, is_policy_checked: bool) -> CallProof:
        tried = "a broken policy was admitted in a dry run"
        if pod is not None:
            how = "was denied" if self._reason else "came back without its label"
            tried = f"a Pod of service {pod.service} in namespace {pod.reference.namespace} {how}"
        reason = self._reason or await self._find_reason()
        if is_policy_checked:
            tried += ", although a broken policy was denied"
        words = f"; it says: {reason}" if reason else ""
        text = f"the API server does not call Podgate: {tried}{words}"
        return CallProof(is_called=False, text=text, remedy=find_remedy(reason))

    async def _find_reason(self) -> str:
        """Return why calls fail, in the API server's words; "" if it reports no failure."""
        webhooks = probe.build_closed_webhooks(self._client)
        await self._delete(webhooks)  # left over by a process that was killed
        pod = probe.build_probe_pod(configmap.NAMESPACE, {})
        pod["spec"]["serviceAccountName"] = "podgate"
        end_seconds = asyncio.get_running_loop().time() + _DIAGNOSIS_SECONDS
        try:
            for webhook in webhooks:
                await self._cluster.create(webhook)
            while asyncio.get_running_loop().time() < end_seconds:
                answer = await self._cluster.attempt("POST", ObjectReference.from_document(pod).collection, pod)
                if isinstance(answer, str) and (reason := probe.find_failed_call(answer)):
                    return self._hide_secret(reason)
                await asyncio.sleep(_POLL_SECONDS)
        finally:
            await self._delete(webhooks)
        return ""

    def _hide_secret(self, reason: str) -> str:
        """Hide the secret path of reduced mode in an error of the API server."""
        return reason.replace(self._client.secret, "<path>") if self._client.secret else reason

    async def _delete(self, webhooks: tuple[dict[str, object], ...]) -> None:
        for webhook in webhooks:
            await self._cluster.delete(ObjectReference.from_document(webhook))
