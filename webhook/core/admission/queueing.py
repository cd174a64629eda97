"""Stage "queue": a Pod that has to wait gets a scheduling gate; a gated Pod is registered instead of charged."""

from webhook.core.admission import charging, validation
from webhook.core.admission.decision import Deviation, Finding, Verdict
from webhook.core.admission.evaluation import Evaluation
from webhook.core.admission.mutation import QUEUE_GATE, has_queue_gate, is_gate_written
from webhook.core.findings import Code
from webhook.core.kubernetes.pod import Pod
from webhook.core.policy.model import Service
from webhook.core.policy_fields import Mode
from webhook.core.quota import Acquire, Cost, CounterPlan, DeniedBy, Receipt

PRIORITY_ANNOTATION = "podgate.io/priority"
PREFIX = "podgate.io/"
MESSAGE_NAME_MAX = 80
WAITS = "waits: charged when it is released"
PRIORITY_MAX = 1_000_000_000


def priority_of(pod: Pod) -> int:
    """Return a Pod's priority within its service, 0 if its annotation is absent or not an integer."""
    try:
        return max(-PRIORITY_MAX, min(PRIORITY_MAX, int(pod.annotations.get(PRIORITY_ANNOTATION, "0"))))
    except ValueError:
        return 0


def may_be_gated(evaluation: Evaluation) -> bool:
    """Return whether the rewrite may add the gate: to a new Pod of a service with a queue, within all limits."""
    plan, pod = evaluation.plan, evaluation.pod
    if plan.queue is None or evaluation.request.operation != "CREATE" or evaluation.request.excess:
        return False
    if pod.spec.node_name or has_queue_gate(pod):
        return False
    return fits_limits(plan, charging.foresee_acquire(evaluation).cost)


def add_gate(evaluation: Evaluation, reason: str) -> None:
    evaluation.is_gated = True
    evaluation.note("queue", f"waits: {reason}")


def gate_on_overload(evaluation: Evaluation, reason: str) -> None:
    """Gate a Pod without judging it."""
    overload = f"this server is overloaded: {reason}"
    evaluation.deviation = Deviation(overload=overload)
    add_gate(evaluation, overload)


def gate_without_store(evaluation: Evaluation, reason: str) -> None:
    """Gate a Pod because the store gave no answer, if its service's queue allows that; else the other half decides."""
    rules = evaluation.plan.queue
    if rules is None or not rules.on_overload:
        return evaluation.note("queue", f"not gated: {reason}")
    return gate_on_overload(evaluation, f"the store does not respond: {reason}")


def is_waiting(evaluation: Evaluation) -> bool:
    """Return whether a new Pod is gated, and is to be registered. A Pod above a whole limit is charged, and denied."""
    plan = evaluation.plan
    if plan.queue is None or evaluation.request.operation != "CREATE" or not has_queue_gate(evaluation.pod):
        return False
    return fits_limits(plan, charging.build_acquire(evaluation).cost)


def fits_limits(plan: CounterPlan, cost: Cost) -> bool:
    """Return whether no limit is below the cost of one Pod."""
    return all(cost.get(resource, 0) <= most for resource, most in plan.ceilings)


def find_obstacle(plan: CounterPlan, receipt: Receipt) -> str:
    """Return why a Pod with this receipt waits, "" if it is admitted, or denied."""
    if plan.queue is None or receipt.refused is None:
        return ""
    if receipt.refused is DeniedBy.QUOTA:
        return "a limit is reached" if plan.queue.for_quota else ""
    return "the breaker is open" if plan.queue.for_breaker else ""


def check_gate(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Return the finding about a new Pod, of a service or of none, with a gate of Podgate's that Podgate did not write.

    A Pod with such a gate would not count as live, and its creator could remove a gate that Podgate does not know.
    """
    gates = evaluation.pod.spec.scheduling_gates
    if not gates:
        return ()
    service = evaluation.service
    if service is not None and service.modes.is_all_disabled():
        return ()
    waits = service is not None and evaluation.plan.queue is not None
    is_ours = waits or is_gate_written(evaluation.pod.metadata)
    for gate in gates:
        if gate.name.startswith(PREFIX) and not (is_ours and gate.name == QUEUE_GATE):
            return (_build_gate_finding(gate.name, service),)
    return ()


def _build_gate_finding(name: str, service: Service | None) -> Finding:
    owner = "a Pod of no service does" if service is None else f"Pods of service {service.name} do"
    reason = f"{owner} not wait" if name == QUEUE_GATE else f"gates with the prefix {PREFIX} are Podgate's own"
    message = f"{validation.GATE} has {name[:MESSAGE_NAME_MAX]}, and {reason}: leave the gate out"
    mode = Mode.ENFORCE if service is None else validation.find_own_mode(service)
    return Finding(Code.IMMUTABLE, "placement", mode, message, validation.GATE)


def check_resize(evaluation: Evaluation) -> tuple[Finding, ...]:
    """Return the violation by a resize that makes a waiting Pod larger: it may be charged already, or about to be."""
    request, service = evaluation.request, evaluation.owner
    mode = validation.find_gate_mode(service)
    if request.sub_resource != "resize" or mode is None or not has_queue_gate(evaluation.pod):
        return ()
    asked = charging.build_acquire(evaluation, peek=True)
    before = asked.resize_from or {}
    larger = sorted(name for name, amount in asked.cost.items() if amount > before.get(name, 0))
    if not larger:
        return ()
    message = (
        f"service {service.name}: the Pod waits to be charged, and its {' and '.join(larger)} cannot grow meanwhile:"
        " resize it once it is released, or create another one"
    )
    return (Finding(Code.IMMUTABLE, "placement", mode, message, "spec.containers[*].resources"),)


def record_waiting(evaluation: Evaluation, asked: Acquire, *, is_accepted: bool) -> None:
    """Decide about a gated Pod: it waits, or the queue is full."""
    if is_accepted:
        return evaluation.decide(Verdict.QUEUE, "queue", WAITS)
    message = (
        f"service {evaluation.owner.name}: {asked.plan.waiting_max} Pods wait already, which is queue.maxPods: try"
        " again later, or have an admin raise the quota or maxPods"
    )
    return evaluation.add_findings("queue", (Finding(Code.QUEUE_FULL, "quota", Mode.ENFORCE, message),))
