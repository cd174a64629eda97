"""Attributes of spans: OpenTelemetry's semantic conventions where there is one, else `podgate.*`."""

from collections import Counter

from opentelemetry.util.types import Attributes

from webhook.adapters.traces.pod_start import PodStart
from webhook.adapters.traces.scheduling_calls import SchedulingCall
from webhook.core.admission.decision import Decision
from webhook.core.breaker import Transition
from webhook.core.kubernetes.controllers import find_owning_controller
from webhook.core.quota import UnseenPod
from webhook.core.scheduling.scheduling_record import FilterAttempt, PreemptAttempt, ScoreAttempt
from webhook.ports import Review
from webhook.ports.traces import TimedCall, TracedPod

_CONTROLLERS = {
    kind: f"k8s.{kind.lower()}"
    for kind in ("ReplicaSet", "StatefulSet", "DaemonSet", "Job", "CronJob", "ReplicationController")
}
_OK = 200
"""A denial is a response with status 200, too: `podgate.status` is the status in it."""


def describe_review(review: Review) -> Attributes:
    decision: Decision = review.decision
    attributes: dict[str, str | int | bool] = {
        "http.request.method": "POST",
        "http.route": f"/{decision.half}",
        "http.response.status_code": _OK,
        "podgate.review.uid": decision.review_uid,
        "podgate.half": decision.half,
        "podgate.operation": decision.call.operation,
        "podgate.decision": decision.verdict,
        "podgate.service": decision.service or "",
        "podgate.policy.hash": decision.policy_hash,
        "podgate.client_id": review.caller.client_id if review.caller else "",
        "podgate.code": ",".join(dict.fromkeys(finding.code for finding in decision.findings)),
        "podgate.would_rewrite": ",".join(write.concern for write in decision.would_write),
        "podgate.dry_run": decision.call.dry_run,
        "podgate.status": decision.status.code,
        "podgate.patch.operations": len(decision.patch),
        "k8s.namespace.name": decision.call.namespace,
        "k8s.pod.name": decision.pod,
        "k8s.pod.uid": decision.pod_uid,
        **_describe_controller(review),
        "podgate.workload": decision.workload,
        "user.name": decision.call.user,
    }
    return {name: value for name, value in attributes.items() if value != ""}


def _describe_controller(review: Review) -> dict[str, str]:
    """Name the workload controller that has created the Pod."""
    pod = review.request.pod if review.request is not None and review.request.workload is None else None
    owner = None if pod is None else find_owning_controller(review.decision.call.user, pod)
    prefix = _CONTROLLERS.get(owner.kind) if owner is not None else None
    return {} if owner is None or prefix is None else {f"{prefix}.name": owner.name, f"{prefix}.uid": owner.uid}


def describe_transition(transition: Transition) -> Attributes:
    service, variant = transition.owner
    return {
        "podgate.service": service,
        **({"podgate.variant": variant} if variant else {}),
        "podgate.breaker.from": transition.old,
        "podgate.breaker.to": transition.new,
        "podgate.breaker.reason": transition.reason,
        "podgate.breaker.generation": transition.generation,
    }


def describe_refund(service: str, pod: UnseenPod, cause: str) -> Attributes:
    return {"podgate.refund.cause": cause, **describe_pod(TracedPod(service, pod.namespace, pod.name, pod.uid))}


def describe_pod(pod: TracedPod) -> dict[str, str]:
    return {
        "podgate.service": pod.service,
        "k8s.namespace.name": pod.namespace,
        "k8s.pod.name": pod.name,
        "k8s.pod.uid": pod.uid,
    }


def describe_scheduling(call: SchedulingCall) -> Attributes:
    attributes: dict[str, str | int | bool] = {
        "http.request.method": "POST",
        "http.route": f"/{call.verb}",
        "http.response.status_code": _OK,
        "podgate.service": call.service,
        "podgate.mode": call.mode,
        "k8s.namespace.name": call.namespace,
        "k8s.pod.name": call.pod,
        "k8s.pod.uid": call.uid,
        "podgate.nodes.asked": call.attempt.asked,
    }
    match call.attempt:
        case FilterAttempt(passed=passed, refused=refused):
            attributes["podgate.nodes.passed"] = passed
            counts = Counter[str]()
            for found in refused:  # a rule may have two reasons: by the node alone, and with the Pod
                counts[f"podgate.nodes.refused.{found.rule}"] += found.count
            attributes |= counts
        case PreemptAttempt(passed=passed):
            attributes["podgate.nodes.passed"] = passed
        case ScoreAttempt(best=(best, *_)):
            attributes |= {"podgate.node.best": best.node, "podgate.node.score": best.score}
    return attributes


def describe_start(start: PodStart) -> Attributes:
    attributes = {
        **describe_pod(TracedPod(start.service, start.namespace, start.name, start.uid)),
        "podgate.start.result": start.result,
        "k8s.node.name": start.node,
    }
    return {name: value for name, value in attributes.items() if value}


def describe_redis_call(call: TimedCall, store: str) -> Attributes:
    """Describe a call to `store`, `HOST:PORT`, unless the call names its server of a Cluster."""
    host, _, port = (call.server or store).rpartition(":")
    server: dict[str, str | int] = {"server.address": host.strip("[]"), "server.port": int(port)} if host else {}
    return {
        "db.system.name": "redis",
        "db.operation.name": call.name,
        "podgate.redis.operations": call.shared_by,
        **server,
        **describe_failure(call),
    }


def describe_failure(call: TimedCall) -> dict[str, str]:
    """Return the class of the failure, as in `podgate_store_failures_total`."""
    return {"error.type": call.failure.summary} if call.failure is not None else {}
