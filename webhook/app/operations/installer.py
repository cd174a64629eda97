"""Installer: applies the objects of a plan, waits for what needs time, and proves that the API server calls Podgate."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from webhook.app.operations.call_proof import CallProof, CallProver
from webhook.core.document import configmap
from webhook.core.installation import plan as plans
from webhook.core.installation import rollout
from webhook.core.installation.objects import FIELD_MANAGER, OWNER_FIELD_MANAGER, Json, ObjectReference, differs
from webhook.core.installation.plan import InstallPlan, LiveState, Obstacle
from webhook.core.installation.record import RECORD, InstallationRecord
from webhook.core.policy.model import LoadedPolicy
from webhook.core.webhook_configurations import ClientConfig, TooManyEntriesError, configurations
from webhook.errors import UserError

if TYPE_CHECKING:
    from webhook.adapters.kubernetes import ClusterObjects

_POLL_SECONDS = 0.5
CREATED, CHANGED, UNCHANGED, KEPT = "created", "changed", "unchanged", "kept as it is: yours"


class InstallProgress(Protocol):
    """Receiver of progress: an object and what was done to it, and what is waited for."""

    def on_object(self, reference: object, result: str) -> None: ...
    def on_wait(self, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class InstallTerms:
    """How to install: without changes (dry run), with force against other field managers, and how long to wait."""

    is_dry: bool
    is_forced: bool
    wait_seconds: float


class Installer:
    """Applies one plan. UserError: the cluster refuses, or is in a state in which nothing may be applied."""

    def __init__(self, cluster: "ClusterObjects", terms: InstallTerms, progress: InstallProgress) -> None:
        self._cluster = cluster
        self._terms = terms
        self._progress = progress

    async def begin(self, plan: InstallPlan) -> LoadedPolicy:
        """Check that the plan fits the cluster; return the policy that will be in force."""
        found = await self._live()
        obstacle = plan.obstacle(found)
        if obstacle is not None:
            raise _refused(obstacle)
        place = "--policy" if plan.is_policy_given else "the example"
        if found.policy is not None:
            place = f"configmap/{configmap.NAME}"
        policy = plans.loaded(found.policy if found.policy is not None else plan.policy, place)
        if isinstance(policy, Obstacle):
            raise _refused(policy)
        return policy

    async def apply(self, documents: list[Json]) -> None:
        """Apply objects in order."""
        has_namespace = await self._cluster.get(plans.NAMESPACE) is not None
        for one in documents:
            if not has_namespace and self._terms.is_dry and one["metadata"].get("namespace") == configmap.NAMESPACE:
                self._progress.on_object(ObjectReference.of(one), CREATED)  # nothing can be tried in no namespace
            else:
                await self._put(one)
            if one["kind"] == "CustomResourceDefinition" and not self._terms.is_dry:
                await self._await(one, "Established")

    async def apply_webhooks(self, policy: LoadedPolicy, client: ClientConfig) -> None:
        """Apply the webhook configurations of a policy."""
        try:
            rendered = configurations(policy.policy, client, policy.hash)
        except TooManyEntriesError as error:
            raise UserError(f"configmap/{configmap.NAME}: {error}", error.remedy) from None
        for one in rendered:
            await self._put(one)

    async def prove(self, policy: LoadedPolicy, client: ClientConfig, seconds: float) -> CallProof:
        """Prove that the API server calls Podgate, within some seconds."""
        self._progress.on_wait("the API server to call Podgate in a dry run")
        return await CallProver(self._cluster, policy, client).prove(seconds)

    async def roll_out(self, reference: ObjectReference) -> str:
        """Wait until a Deployment has been rolled out; return what delays it if that takes too long, else ""."""
        self._progress.on_wait(f"{reference} to be rolled out")
        end_seconds = asyncio.get_running_loop().time() + self._terms.wait_seconds
        while True:
            live = await self._cluster.get(reference)
            if live is not None and rollout.is_complete(live):
                return ""
            if asyncio.get_running_loop().time() >= end_seconds:
                pods = ObjectReference("v1", "Pod", "", reference.namespace)
                selected = await self._cluster.items(pods, f"app.kubernetes.io/name={reference.name}")
                return f"{reference}: {rollout.delays(live, selected) if live is not None else 'deleted'}"
            await asyncio.sleep(_POLL_SECONDS)

    async def _put(self, document: Json) -> None:
        reference = ObjectReference.of(document)
        live = await self._cluster.get(reference)
        if live is not None and reference.kind == "ConfigMap" and reference.name in plans.KEPT:
            is_same = live.get("data") == document["data"]
            self._progress.on_object(reference, UNCHANGED if is_same else KEPT)
            return
        is_theirs = reference.kind == "ConfigMap" and reference.name in plans.KEPT
        manager = OWNER_FIELD_MANAGER if is_theirs else FIELD_MANAGER
        applied = await self._cluster.apply(
            document, manager, is_dry=self._terms.is_dry, is_forced=self._terms.is_forced
        )
        result = CREATED if live is None else CHANGED if differs(live, applied) else UNCHANGED
        self._progress.on_object(reference, result)

    async def _await(self, document: Json, condition: str) -> None:
        """Wait until an object has a condition."""
        reference = ObjectReference.of(document)
        end_seconds = asyncio.get_running_loop().time() + self._terms.wait_seconds
        while True:
            live = await self._cluster.get(reference) or {}
            conditions = (live.get("status") or {}).get("conditions") or ()
            if any(one["type"] == condition and one["status"] == "True" for one in conditions):
                return
            if asyncio.get_running_loop().time() >= end_seconds:
                raise UserError(f"{reference}: status.conditions: not {condition} in time", "see kubectl describe")
            await asyncio.sleep(_POLL_SECONDS / 10)

    async def _live(self) -> LiveState:
        references = (plans.NAMESPACE, RECORD, plans.POLICY, plans.DEPLOYMENT)
        namespace, record, policy, deployment = [await self._cluster.get(one) for one in references]
        data = (policy or {}).get("data") or {}
        return LiveState(
            namespace,
            InstallationRecord.of(record) if record is not None else None,
            None if policy is None else str(data.get(configmap.KEY, "")),
            deployment,
        )


def _refused(obstacle: Obstacle) -> UserError:
    return UserError(obstacle.message, obstacle.remedy)
