"""Canary in force: the policy in force with its candidate beside it, compiled, and which of both judges a request."""

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from webhook.core.admission.review import Request
from webhook.core.compiled_policy import CompiledPolicy, CompiledService
from webhook.core.policy.model import Policy
from webhook.core.policy_fields.rollout import CanaryBy
from webhook.core.quota import CounterPlan
from webhook.core.rollout.composition import build_service_keys
from webhook.core.rollout.selection import Reach, build_workload_key, find_service_name
from webhook.core.shares import SharesPlan

_NO_LABELS: Mapping[str, str] = {}
_NO_SERVICE = ""


class BasePolicy(CompiledPolicy):
    """The policy that judges what the canary has not reached, with the `canary` that judges the rest.

    It knows the services that only the candidate has, since their Pods and breakers count too; its matcher does not.
    Both have the same plans, as objects too: what a store caches of a plan holds for both. Only where one alone divides
    Pods is the other's a copy.
    """

    has_canary = True
    is_selective = True

    def __init__(
        self, base: CompiledPolicy, canary: CompiledPolicy, reach: Reach, service_keys: Mapping[str, str]
    ) -> None:
        parts = {
            name: _take_counters(part, base.parts[name]) if name in base.parts else part
            for name, part in canary.parts.items()
        }
        added = {name: part for name, part in parts.items() if name not in base.parts}
        super().__init__(base.loaded, {**base.parts, **added})
        self.canary = CompiledPolicy(canary.loaded, parts)
        self.exceptions, self.canary.exceptions = base.exceptions, canary.exceptions
        self._reach = reach
        self._service_keys = service_keys

    def assigns_as(self, other: CompiledPolicy) -> bool:
        """Return whether another one is of the same policies. Pods know the candidate by its hash."""
        if not isinstance(other, BasePolicy) or self.canary.hash != other.canary.hash:
            return False
        return self.policy == other.policy and self.canary.policy == other.canary.policy

    def may_assign_anew(self, namespace: str, before: Mapping[str, str], after: Mapping[str, str]) -> bool:
        return any(policy.matcher.may_differ(namespace, before, after) for policy in (self, self.canary))

    def list_shares(self) -> tuple[tuple[str, SharesPlan], ...]:
        """Return how services divide their Pods, by the policy in force and by the candidate."""
        return (*super().list_shares(), *self.canary.list_shares())

    def list_breakers(self) -> tuple[CounterPlan, ...]:
        """Return the plans of all breakers, with those of variants that only the candidate has."""
        own = super().list_breakers()
        names = {plan.service for plan in own}
        return (*own, *(plan for plan in self.canary.list_breakers() if plan.service not in names))

    def choose_by_hash(self, policy_hash: str) -> CompiledPolicy:
        return self.canary if policy_hash == self.canary.hash else self

    def select(self, request: Request, find_labels: Callable[[str], Mapping[str, str] | None]) -> CompiledPolicy:
        """Return the policy that judges a new Pod or a workload; `find_labels` returns cached labels of Namespaces."""
        by, candidate = self._reach.by, self.canary.hash
        if by is CanaryBy.WORKLOAD:
            is_reached = self._reach.includes(candidate, request.namespace, build_workload_key(request))
        elif by is CanaryBy.NAMESPACE:
            is_reached = self._reach.includes(candidate, request.namespace, request.namespace)
        else:
            labels = find_labels(request.namespace) or _NO_LABELS
            owner = find_service_name(request, self, labels) or find_service_name(request, self.canary, labels)
            # Namespaces do not matter: a service that is in many of them moves as a whole.
            is_reached = self._reach.includes(candidate, _NO_SERVICE, self._service_keys.get(owner, _NO_SERVICE))
        return self.canary if is_reached else self


def _take_counters(part: CompiledService, base: CompiledService) -> CompiledService:
    """Return a service of the candidate with the counters and the breakers of the policy in force.

    Whether its Pods are divided is the candidate's own, as all of their placement.
    """
    shares = None if part.shares is None else part.shares.adopt_breakers(base.shares)
    divides = part.plan.divides
    plan = base.plan if base.plan.divides is divides else replace(base.plan, divides=divides)
    return part._replace(plan=plan, counted=base.counted, shares=shares)


def pair(stable: Policy, candidate: Policy, reach: Reach) -> Callable[[CompiledPolicy, CompiledPolicy], BasePolicy]:
    """Return the function that puts both compiled policies of a canary together."""
    service_keys = build_service_keys(stable, candidate) if reach.by is CanaryBy.SERVICE else {}
    return lambda base, canary: BasePolicy(base, canary, reach, service_keys)
