"""Plan of a rollout for a file: the policies compared, and the workloads of the cluster that each step would reach."""

from collections.abc import Awaitable, Callable, Iterator

import msgspec
from msgspec import Struct

from webhook.commands.policy_argument import load_document
from webhook.core.admission.exemptions import find_exemption
from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose
from webhook.core.installation.objects import Json, ObjectReference
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS, WorkloadKind
from webhook.core.kubernetes.pod import OwnerReference, Pod
from webhook.core.policy.matching import NAME_LABEL
from webhook.core.policy_changes.differences import PolicyDifference, compare
from webhook.core.rollout.commands import describe_rejection
from webhook.core.rollout.composition import build_service_keys
from webhook.core.rollout.plan import PlannedStep, PlannedWorkload, plan_steps
from webhook.core.rollout.state import Rejection
from webhook.errors import UserError
from webhook.operations.stored_policies import open_policies
from webhook.support.kubeconfig import Kubeconfig

_NAMESPACES = ObjectReference("v1", "Namespace", "")

ListObjects = Callable[[ObjectReference], Awaitable[list[Json]]]
"""Returns the objects of a kind; none if the cluster does not have it."""


class RolloutPlan(Struct, frozen=True, rename="camel"):
    """What a rollout of a candidate would do. `warnings`: what could not be read for it."""

    candidate: str
    in_force: str
    steps: tuple[PlannedStep, ...]
    difference: PolicyDifference
    rejection: Rejection | None = None
    warnings: tuple[str, ...] = ()

    def describe(self) -> Iterator[str]:
        """Yield whether the candidate was taken back before, and what it changes."""
        if self.rejection is not None:
            why = describe_rejection(self.rejection)
            yield f"{self.candidate} was taken back: {why}: it is not tried again until podgate policy retry"
        yield from self.difference.format_lines()


class _Metadata(Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    owner_references: tuple[OwnerReference, ...] | None = None


class _Namespace(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


async def plan_rollout(name: str, raw: bytes, kubeconfig: Kubeconfig, now_us: int) -> RolloutPlan:
    """Return what a rollout of a document would do now. UserError: it has mistakes, or the cluster cannot be read."""
    candidate = load_document(name, raw, Purpose.SERVE)
    warnings: tuple[str, ...] = ()
    async with open_policies(kubeconfig) as policies:
        facts = await policies.read_facts()
        stable = await policies.load(facts.require_hash("live"), facts)
        try:
            workloads = await list_planned_workloads(policies.list_objects, CompiledPolicy(candidate))
        except UserError as error:
            workloads, warnings = (), (f"which workloads a step would reach is not known: {error}",)
    keys = build_service_keys(stable, candidate.policy)
    return RolloutPlan(
        candidate=candidate.hash,
        in_force=facts.in_force.stable,
        steps=plan_steps(stable.rollout, candidate.hash, workloads, keys, now_us),
        difference=compare(stable, candidate.policy),
        rejection=None if facts.state is None else facts.state.find_rejection(candidate.hash),
        warnings=warnings,
    )


async def list_planned_workloads(list_objects: ListObjects, policy: CompiledPolicy) -> tuple[PlannedWorkload, ...]:
    """Return the workloads whose Pods a service owns, without those that another workload creates."""
    labels = {
        found.metadata.name: {NAME_LABEL: found.metadata.name, **(found.metadata.labels or {})}
        for found in msgspec.convert(await list_objects(_NAMESPACES), list[_Namespace])
    }
    workloads = []
    for source in WORKLOAD_KINDS:
        for document in await list_objects(ObjectReference(source.api_version, source.kind, "")):
            metadata = msgspec.convert(document["metadata"], _Metadata)
            if any(map(_is_workload, metadata.owner_references or ())):
                continue
            pod = _build_pod(document, source)
            asked = Request(
                "", "CREATE", "pods", "", metadata.namespace, source.controller, dry_run=False, pod=pod, old_pod=None
            )
            if find_exemption(asked, pod, policy.policy):
                continue
            of_namespace = labels.get(metadata.namespace, {})
            service = policy.matcher.find_owner(metadata.namespace, of_namespace, pod.labels, source.owner_kind)
            if service is not None:
                workloads.append(PlannedWorkload(metadata.namespace, source.kind, metadata.name, service.name))
    return tuple(workloads)


def _is_workload(owner: OwnerReference) -> bool:
    """Return whether an owner is a workload of Kubernetes' own kinds, which counts itself."""
    return bool(owner.controller) and any(
        owner.kind == source.kind and owner.is_in_group(source.group) for source in WORKLOAD_KINDS
    )


def _build_pod(document: Json, source: WorkloadKind) -> Pod:
    """Return a Pod of a workload's template, as far as it decides who owns the Pod."""
    template = document
    for step in source.template_at:
        template = template.get(step) or {}
    return msgspec.convert({"metadata": {}, "spec": {}, **template}, Pod)
