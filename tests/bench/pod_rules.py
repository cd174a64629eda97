"""Cost of rules in CEL: ten of them on a usual Pod, and expressions near the limit of cost on the largest Pod."""

import statistics
import time
from collections.abc import Callable
from typing import Any

from webhook.core.kubernetes.pod import Pod
from webhook.core.pod_rules import COST_MAX, RulePlan, RuleSubject, compile_expression
from webhook.core.pod_rules.environment import load_environment
from webhook.core.pod_rules.view import ENTRIES_MAX, list_fields
from webhook.core.policy_fields import Rule

SUBJECT = RuleSubject(
    "payments", "payment-api", "system:serviceaccount:kube-system:replicaset-controller", "Deployment"
)
TEN = (
    'pod.labels[?"tier"].orValue("") in ["web", "api"]',
    'pod.containers.all(c, c.requests.cpu <= quantity("4").milliValue)',
    'pod.containers.all(c, c.limits.memory <= quantity("16Gi").value)',
    "pod.containers.all(c, has(c.requests.memory))",
    'pod.tolerations.all(t, t.key != "")',
    "!has(pod.priority) || pod.priority < 1000",
    'pod.nodeName == "" || pod.ownerKind != ""',
    'pod.topologySpreadConstraints.all(s, s.whenUnsatisfiable != "DoNotSchedule")',
    'user.startsWith("system:serviceaccount:")',
    'pod.schedulerName == "default-scheduler"',
)
NEAR_THE_LIMIT = (
    "pod.containers.all(a, pod.tolerations.all(b, a.name != b.key))",
    "pod.containers.all(a, pod.containers.all(b, a.requests.cpu == b.requests.cpu))",
    f'user.matches("{"[^a]" * 400}")',
    f'user.matches("{"[[:^alpha:]]" * 150}")',
    "pod.labels.all(k, pod.labels == pod.labels) && pod.labels.all(k, pod.labels == pod.labels)",
    "pod.containers.map(c, c.requests.named).all(m, m == pod.labels.map(k, m)[0])",
    'pod.containers.filter(c, c.name != "").map(c, c.name).filter(n, n != "a").size() == 50',
    "pod.schedulingGates.all(a, a in pod.schedulingGates || a in pod.schedulingGates)",
)


def usual_pod() -> Pod:
    """Return a Pod with two containers, as most are."""
    resources = {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
    return Pod.from_document(
        {
            "metadata": {"name": "payment-api-7d4b6c9f5d-x2x4z", "labels": {"tier": "web", "app": "payment-api"}},
            "spec": {
                "schedulerName": "default-scheduler",
                "containers": [{"name": "app", "resources": resources}, {"name": "proxy", "resources": resources}],
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
            },
        }
    )


def largest_pod() -> Pod:
    """Return a Pod with as many entries as rules judge, each as long as Kubernetes accepts."""
    names = [f"entry-{number:02}-{'x' * 50}" for number in range(ENTRIES_MAX)]
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
    spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    return Pod.from_document(
        {
            "metadata": {"name": "p" * 253, "labels": dict.fromkeys(names, "v" * 63)},
            "spec": {
                "containers": [{"name": name, "resources": resources} for name in names],
                "initContainers": [{"name": name, "resources": resources} for name in names],
                "nodeSelector": dict.fromkeys(names, "v" * 63),
                "tolerations": [{"key": f"t{name}", "value": "v" * 63, "effect": "NoSchedule"} for name in names],
                "topologySpreadConstraints": [{"topologyKey": name, **spread} for name in names],
                "schedulingGates": [{"name": name} for name in names],
            },
        }
    )


def measured(rounds: int) -> list[str]:
    """Return a line for ten rules, and one for each expression near the limit; in microseconds of CPU, medians."""
    plan, pod = (
        RulePlan.of([Rule(f"r{number}", text) for number, text in enumerate(TEN)], ignores_errors=False),
        usual_pod(),
    )
    judged = _took(lambda: list(plan.judge(pod, SUBJECT)), rounds)
    lines = [f"{'ten rules, with the view of the Pod':60} {judged:>9.1f} us"]
    subject = SUBJECT._replace(user="u" * 1024)
    viewed = _took(lambda: load_environment().activate(list_fields(largest_pod(), subject), subject), rounds)
    lines.append(f"{'the view of the largest Pod':60} {viewed:>9.1f} us")
    activation: Any = load_environment().activate(list_fields(largest_pod(), subject), subject)
    for text in NEAR_THE_LIMIT:
        expression, cost = compile_expression(text, "bool")
        took = _took(lambda expression=expression: expression.evaluate(activation), rounds)  # type: ignore[misc]  bound now
        shown = text if len(text) <= 60 else f"{text[:59]}…"
        lines.append(f"{shown:60} {took:>9.1f} us, at the limit {took * COST_MAX / cost:>9.1f} us")
    return lines


def _took(work: Callable[[], object], rounds: int) -> float:
    """Return the median of microseconds of CPU that one call takes."""
    spans = []
    for _ in range(rounds):
        started = time.process_time_ns()
        for _ in range(20):
            work()
        spans.append((time.process_time_ns() - started) / 20 / 1000)
    return statistics.median(spans)
