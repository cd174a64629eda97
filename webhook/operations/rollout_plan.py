"""Plan of a rollout for a file: the policies compared, and the workloads of the cluster that each step would reach."""

from collections.abc import Iterator

import msgspec
from msgspec import Struct

from webhook.commands.policy_argument import load_document
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.document import Purpose
from webhook.core.installation.objects import ObjectReference
from webhook.core.kubernetes.pod import OwnerReference
from webhook.core.policy.matching import NAME_LABEL
from webhook.core.policy_changes.differences import PolicyDifference, compare
from webhook.core.rollout.commands import describe_rejection
from webhook.core.rollout.composition import build_service_keys
from webhook.core.rollout.plan import PlannedStep, PlannedWorkload, plan_steps
from webhook.core.rollout.state import Rejection
from webhook.errors import UserError
from webhook.operations.stored_policies import StoredPolicies, open_policies
from webhook.support.kubeconfig import Kubeconfig

_KINDS = (("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("apps/v1", "DaemonSet"), ("batch/v1", "Job"))
_NAMESPACES = ObjectReference("v1", "Namespace", "")


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


class _Template(Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Spec(Struct, frozen=True):
    template: _Template = _Template()


class _Object(Struct, frozen=True):
    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()


async def plan_rollout(name: str, raw: bytes, kubeconfig: Kubeconfig, now_us: int) -> RolloutPlan:
    """Return what a rollout of a document would do now. UserError: it has mistakes, or the cluster cannot be read."""
    candidate = load_document(name, raw, Purpose.SERVE)
    warnings: tuple[str, ...] = ()
    async with open_policies(kubeconfig) as policies:
        facts = await policies.read_facts()
        stable = await policies.load(facts.require_hash("live"), facts)
        try:
            workloads = await _list_workloads(policies, CompiledPolicy(candidate))
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


async def _list_workloads(policies: StoredPolicies, policy: CompiledPolicy) -> tuple[PlannedWorkload, ...]:
    """Return the workloads that a service owns, without those that another workload creates."""
    labels = {
        found.metadata.name: {NAME_LABEL: found.metadata.name, **(found.metadata.labels or {})}
        for found in msgspec.convert(await policies.list_objects(_NAMESPACES), list[_Object])
    }
    workloads = []
    for api_version, kind in _KINDS:
        listed = await policies.list_objects(ObjectReference(api_version, kind, ""))
        for found in msgspec.convert(listed, list[_Object]):
            metadata = found.metadata
            if any(owner.controller for owner in metadata.owner_references or ()):
                continue
            of_pods, of_namespace = found.spec.template.metadata.labels or {}, labels.get(metadata.namespace, {})
            service = policy.matcher.find_owner(metadata.namespace, of_namespace, of_pods, kind)
            if service is not None:
                workloads.append(PlannedWorkload(metadata.namespace, kind, metadata.name, service.name))
    return tuple(workloads)
