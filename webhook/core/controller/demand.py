"""Demand of a controller's Pods: their service, and what one Pod takes of each limit that can deny it."""

from collections.abc import Mapping

from msgspec import Struct

from webhook.core.admission.mutation import apply_resources
from webhook.core.compiled_policy import CompiledPolicy, CompiledService
from webhook.core.controller.held_controller import CreatingController
from webhook.core.kubernetes.pod import Pod
from webhook.core.pods.ownership import find_ownership
from webhook.core.policy.model import Policy, Service
from webhook.core.policy_fields import Mode, WhenOpen
from webhook.core.quota import Cost, CounterPlan, Holder, pod_cost

LimitKey = tuple[str, str, str, str, str]
"""A limit: its holder, the name of that holder, the namespace if each is counted apart, window and resource."""

_BREAKER = "breaker"


class Demand(Struct, frozen=True):
    """`priority`: of the service's class. `amounts`: what one Pod takes, by limit."""

    service: str
    tag: str
    namespace: str
    priority: int
    team: str
    amounts: Mapping[LimitKey, int]


def compute_demand(
    controller: CreatingController, compiled: CompiledPolicy, namespace_labels: Mapping[str, str]
) -> Demand | None:
    """Return the demand of a controller's Pods, None if no service denies them.

    Pods that wait in a queue need no room: one is denied only if another Pod takes the last place at the same moment.
    """
    pod = controller.pod
    found = find_ownership(pod, compiled, namespace_labels)
    is_exempt = controller.kind == "DaemonSet" and compiled.policy.exemptions.daemon_sets
    if found is None or is_exempt:
        return None
    part = compiled.parts[found.service]
    plan, amounts = part.plan, dict[LimitKey, int]()
    if plan.quota_mode is Mode.ENFORCE and not (plan.queue is not None and plan.queue.for_quota):
        scope, cost = plan.scope_of(found), _compute_cost(pod, part) or found.cost
        for holder, window, limit in plan.limits:
            amount = cost.get(limit.counts, 0)
            if amount:  # a Pod that asks for none of a resource is not denied for it
                amounts[make_limit_key(plan, holder, scope, window.name, limit.resource)] = amount
    if _denies_by_breaker(part):
        amounts[make_breaker_key(plan)] = 1
    priority = _find_priority(part.service, compiled.policy)
    return Demand(found.service, plan.tag, found.namespace, priority, found.team, amounts)


def _compute_cost(pod: Pod, part: CompiledService) -> Cost:
    """Return what the Pod costs once it is rewritten; empty if that is unreadable."""
    try:
        return pod_cost.compute_cost(apply_resources(pod, part.service), part.counted)
    except ValueError:
        return {}


def make_limit_key(plan: CounterPlan, holder: Holder, scope: str, window: str, resource: str) -> LimitKey:
    if holder is Holder.POOL:
        # With guarantees, each member has room of its own.
        member = plan.service if plan.has_guarantees else ""
        return holder, plan.pool.name if plan.pool else "", member, window, resource
    return holder, plan.service, scope, window, resource


def make_breaker_key(plan: CounterPlan) -> LimitKey:
    return _BREAKER, plan.service, "", "", ""


def _denies_by_breaker(part: CompiledService) -> bool:
    """Whether the service's open breaker denies Pods."""
    breaker = part.service.breaker
    return breaker is not None and part.plan.breaker_mode is Mode.ENFORCE and breaker.when_open is WhenOpen.DENY


def _find_priority(service: Service, policy: Policy) -> int:
    return next((sla_class.priority for sla_class in policy.sla_classes if sla_class.name == service.sla_class), 0)
