"""Installer: applies the objects of a plan, waits until they are ready, and proves that Podgate is called."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from webhook.core.document import configmap
from webhook.core.installation import ownership, plan
from webhook.core.installation import plan as plans
from webhook.core.installation.live_ways import LiveObjects
from webhook.core.installation.objects import (
    FIELD_MANAGER,
    OWNER_FIELD_MANAGER,
    UNDO_FIELD_MANAGER,
    Json,
    ObjectReference,
    differs,
)
from webhook.core.installation.plan import InstallPlan, LiveState, Obstacle
from webhook.core.installation.record import RECORD, InstallationRecord
from webhook.core.policy.model import LoadedPolicy
from webhook.core.webhook_configurations import ClientConfig, TooManyEntriesError, render_configurations
from webhook.errors import UserError
from webhook.operations.call_proof import CallProof, CallProver

if TYPE_CHECKING:
    from webhook.adapters.kubernetes import ClusterObjects

_POLL_SECONDS = 0.5
CREATED, CHANGED, UNCHANGED, KEPT = "created", "changed", "unchanged", "kept as it is: yours"
TAKEN, LATER, PUT_BACK = "taken over", "created later, by what is installed", "changed back to what it was"


class InstallProgress(Protocol):
    """Receiver of progress: each object with its result, and what the installation waits for."""

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
        self._has_namespace = True

    async def begin(self, plan: InstallPlan) -> LoadedPolicy:
        """Check that the plan fits the cluster; return the policy that will be in force."""
        found = await self._read_live_state()
        obstacle = plan.find_obstacle(found, is_forced=self._terms.is_forced)
        if obstacle is not None:
            raise _build_error(obstacle)
        place = "--policy" if plan.is_policy_given else "the example"
        if found.policy is not None:
            place = f"configmap/{configmap.NAME}"
        policy = plans.load_policy(found.policy if found.policy is not None else plan.policy, place)
        if isinstance(policy, Obstacle):
            raise _build_error(policy)
        return policy

    async def check(self, documents: list[Json]) -> None:
        """Try all objects in a dry run, so that nothing is changed if one of them cannot be applied."""
        self._has_namespace = await self._cluster.get(plans.NAMESPACE) is not None
        if not self._has_namespace:
            for api_version in sorted({document["apiVersion"] for document in documents}):
                await self._cluster.check_kinds(
                    [document for document in documents if document["apiVersion"] == api_version]
                )
        failed = []
        for document in documents:
            try:
                await self._try(document)
            except UserError as error:
                failed.append(error)
        if len(failed) == 1:
            raise failed[0]
        if failed:
            remedies = "; ".join(dict.fromkeys(error.remedy for error in failed if error.remedy))
            raise UserError("\n".join(map(str, failed)), f"nothing has been changed: {remedies}")

    async def apply(self, documents: list[Json]) -> None:
        """Apply objects in order."""
        for document in documents:
            await self._put(document)
            if document["kind"] == "CustomResourceDefinition" and not self._terms.is_dry:
                await self._await(document, "Established")

    def render_webhooks(self, policy: LoadedPolicy, client: ClientConfig) -> list[Json]:
        """Return the webhook configurations of a policy."""
        try:
            return list(render_configurations(policy.policy, client, policy.hash))
        except TooManyEntriesError as error:
            raise UserError(f"configmap/{configmap.NAME}: {error}", error.remedy) from None

    async def announce(self, plan: InstallPlan, policy: LoadedPolicy) -> None:
        """Report the objects that the servers will create themselves."""
        for reference in plans.list_written_later(plan.record, policy.policy):
            if await self._cluster.get(reference) is None:
                self._progress.on_object(reference, LATER)

    async def find_working(self, workloads: list[Json]) -> list[Json]:
        """Return the live Deployments of these names that have been rolled out."""
        found = [
            await self._cluster.get(ObjectReference.from_document(workload))
            for workload in workloads
            if workload["kind"] == "Deployment"
        ]
        return [workload for workload in found if workload is not None and plan.is_rolled_out(workload)]

    async def put_back(self, former: list[Json]) -> list[str]:
        """Restore the former content of changed Deployments; return their names."""
        changed = []
        for workload in former:
            reference = ObjectReference.from_document(workload)
            live = await self._cluster.get(reference)
            if live is not None and live["spec"] != workload["spec"]:
                operations = [{"op": "replace", "path": "/spec", "value": workload["spec"]}]
                await self._cluster.patch(reference, operations, UNDO_FIELD_MANAGER)
                self._progress.on_object(reference, PUT_BACK)
                changed.append(str(reference))
        return changed

    async def prove(self, policy: LoadedPolicy, client: ClientConfig, seconds: float) -> CallProof:
        """Prove that the API server calls Podgate, within some seconds."""
        self._progress.on_wait("the API server to call Podgate in a dry run")
        return await CallProver(self._cluster, policy, client).prove(seconds)

    async def roll_out(self, reference: ObjectReference) -> str:
        """Wait until a Deployment is rolled out; return the reason if that takes too long, else ""."""
        self._progress.on_wait(f"{reference} to be rolled out")
        end_seconds = asyncio.get_running_loop().time() + self._terms.wait_seconds
        while True:
            live = await self._cluster.get(reference)
            if live is not None and plan.is_rolled_out(live):
                return ""
            if asyncio.get_running_loop().time() >= end_seconds:
                pods = ObjectReference("v1", "Pod", "", reference.namespace)
                selected = await self._cluster.items(pods, f"app.kubernetes.io/name={reference.name}")
                return f"{reference}: {plan.describe_rollout(live, selected) if live is not None else 'deleted'}"
            await asyncio.sleep(_POLL_SECONDS)

    async def _try(self, document: Json) -> tuple[Json | None, Json | None]:
        """Apply an object in a dry run; return it before and after; None if its namespace does not exist yet."""
        reference = ObjectReference.from_document(document)
        live = await self._cluster.get(reference)
        if reference.namespace == configmap.NAMESPACE and not self._has_namespace:
            return None, None
        if live is not None and _is_kept(reference):
            return live, live
        applied = await self._apply_one(document, is_dry=True)
        if (obstacle := plans.find_deletion(reference, applied)) is not None:
            raise _build_error(obstacle)
        return live, applied

    async def _put(self, document: Json) -> None:
        reference = ObjectReference.from_document(document)
        if self._terms.is_dry:
            live, applied = await self._try(document)
        else:
            live = await self._cluster.get(reference)
            applied = live
        if live is not None and _is_kept(reference):
            is_same = live.get("data") == document["data"]
            self._progress.on_object(reference, UNCHANGED if is_same else KEPT)
            return
        taken = ownership.hand_over(live) if live is not None and self._is_taken(reference) else None
        if not self._terms.is_dry:
            if taken is not None and live is not None:
                await self._cluster.patch(reference, _build_handover(live, taken), FIELD_MANAGER)
            applied = await self._apply_one(document, is_dry=False)
        result = CREATED if live is None else UNCHANGED if taken is None else TAKEN
        is_changed = live is not None and applied is not None and differs(live, applied)
        self._progress.on_object(reference, CHANGED if is_changed else result)

    async def _apply_one(self, document: Json, *, is_dry: bool) -> Json:
        manager = OWNER_FIELD_MANAGER if _is_kept(ObjectReference.from_document(document)) else FIELD_MANAGER
        return await self._cluster.apply(document, manager, is_dry=is_dry, is_forced=self._terms.is_forced)

    def _is_taken(self, reference: ObjectReference) -> bool:
        """Return whether fields that kubectl has applied are taken over: labels of a namespace are its users'."""
        return self._terms.is_forced and reference.kind != "Namespace"

    async def _await(self, document: Json, condition: str) -> None:
        """Wait until an object has a condition."""
        reference = ObjectReference.from_document(document)
        end_seconds = asyncio.get_running_loop().time() + self._terms.wait_seconds
        while True:
            live = await self._cluster.get(reference) or {}
            conditions = (live.get("status") or {}).get("conditions") or ()
            if any(state["type"] == condition and state["status"] == "True" for state in conditions):
                return
            if asyncio.get_running_loop().time() >= end_seconds:
                raise UserError(f"{reference}: status.conditions: not {condition} in time", "see kubectl describe")
            await asyncio.sleep(_POLL_SECONDS / 10)

    async def _read_live_state(self) -> LiveState:
        references = (plans.NAMESPACE, RECORD, plans.POLICY, plans.DEPLOYMENT, plans.CONTROLLER, plans.SCHEDULING)
        namespace, record, policy, server, controller, scheduler = [
            await self._cluster.get(reference) for reference in references
        ]
        certificate, webhooks = [
            await self._cluster.get(reference) for reference in (plans.CERTIFICATE, plans.WEBHOOKS)
        ]
        data = (policy or {}).get("data") or {}
        return LiveState(
            namespace,
            InstallationRecord.from_config_map(record) if record is not None else None,
            None if policy is None else str(data.get(configmap.KEY, "")),
            LiveObjects(server, controller, scheduler, certificate, webhooks),
        )


def _is_kept(reference: ObjectReference) -> bool:
    """Return whether an object belongs to its users once it has been created."""
    return reference.kind == "ConfigMap" and reference.name in plans.KEPT


def _build_handover(live: Json, taken: list[Json]) -> list[Json]:
    """Return the JSON Patch that hands fields over, unless the object has changed meanwhile."""
    metadata = {"managedFields": taken, "resourceVersion": live["metadata"]["resourceVersion"]}
    return [{"op": "replace", "path": f"/metadata/{key}", "value": value} for key, value in metadata.items()]


def _build_error(obstacle: Obstacle) -> UserError:
    return UserError(obstacle.message, obstacle.remedy)
