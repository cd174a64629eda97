"""Cost of rules in CEL: ten of them on a usual Pod, and expressions near the limit of cost on the largest Pod."""

import statistics
import time
from collections.abc import Callable
from typing import Any

import msgspec

from webhook.core.pod_rules import COST_MAX, RulePlan, RuleSubject, compile_expression
from webhook.core.pod_rules.environment import load_environment
from webhook.core.pod_rules.fields import ENTRIES_MAX, MESSAGES
from webhook.core.pod_rules.view import PodFields, ViewReader
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
    'pod.containers.all(c, !c.image.endsWith(":latest") && c.image.startsWith("registry.example.com/"))',
)
NEAR_THE_LIMIT = (
    "pod.containers.all(a, pod.tolerations.all(b, a.name != b.key))",
    "pod.containers.all(a, pod.containers.all(b, a.requests.cpu == b.requests.cpu))",
    f'user.matches("{"[^a]" * 400}")',
    f'user.matches("{"[[:^alpha:]]" * 150}")',
    "pod.labels.all(k, pod.labels == pod.labels) && pod.labels.all(k, pod.labels == pod.labels)",
    'pod.containers.map(c, c.requests.named).all(m, m == {"a": 1})',
    "pod.containers.all(c, c.env.map(e, c.image) != [] && c.env.map(e, c.image) != [])",
    'pod.containers.filter(c, c.name != "").map(c, c.name).filter(n, n != "a").size() == 50',
    'pod.containers.all(c, c.image.matches("^[a-z]*$"))',
    "pod.containers.all(c, c.env.all(e, e.name != c.image))",
    "(user + user + user + user + user + user).matches('[^a][^b][^c]')",
    "[pod.containers + pod.containers].all(l, l.all(c, c.image.contains('x')))",
    "pod.schedulingGates.all(a, a in pod.schedulingGates || a in pod.schedulingGates)",
)
_READER = ViewReader(frozenset((message, field) for message, fields in MESSAGES.items() for field in fields))


def make_usual_pod() -> bytes:
    """Return a Pod with two containers, as most are."""
    resources = {"requests": {"cpu": "250m", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
    secret = {"secretKeyRef": {"name": "payment-api", "key": "password"}}
    container = {
        "image": "registry.example.com/payments/payment-api@sha256:" + "0" * 64,
        "resources": resources,
        "env": [{"name": f"SETTING_{number}", "value": "x" * 30} for number in range(20)]
        + [{"name": "PASSWORD", "valueFrom": secret}],
        "volumeMounts": [{"name": "token", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
        "securityContext": {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 10},
    }
    return msgspec.json.encode(
        {
            "metadata": {"name": "payment-api-7d4b6c9f5d-x2x4z", "labels": {"tier": "web", "app": "payment-api"}},
            "spec": {
                "schedulerName": "default-scheduler",
                "containers": [container | {"name": "app"}, container | {"name": "proxy"}],
                "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}],
                "volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
            },
        }
    )


def make_largest_pod() -> bytes:
    """Return a Pod with as many entries as rules judge, each as long as Kubernetes accepts."""
    names = [f"entry-{number:02}-{'x' * 50}" for number in range(ENTRIES_MAX)]
    resources = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
    spread = {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}
    container = {
        "image": "i" * 1024,
        "resources": resources,
        "env": [{"name": "e" * 200, "valueFrom": {"secretKeyRef": {"name": "s" * 200, "key": "k" * 200}}}] * 2,
        "ports": [{"name": "p" * 15, "containerPort": 80, "protocol": "TCP"}] * 2,
        "volumeMounts": [{"name": "v" * 63, "mountPath": "/" * 1024}] * 2,
        "securityContext": {"capabilities": {"add": ["NET_ADMIN"], "drop": ["ALL"]}},
        "livenessProbe": {"periodSeconds": 10},
    }
    return msgspec.json.encode(
        {
            "metadata": {
                "name": "p" * 253,
                "labels": dict.fromkeys(names, "v" * 63),
                "annotations": dict.fromkeys(names, "v" * 1024),
            },
            "spec": {
                "containers": [container | {"name": name} for name in names],
                "initContainers": [container | {"name": name} for name in names],
                "nodeSelector": dict.fromkeys(names, "v" * 63),
                "tolerations": [{"key": f"t{name}", "value": "v" * 63, "effect": "NoSchedule"} for name in names],
                "topologySpreadConstraints": [{"topologyKey": name, **spread} for name in names],
                "schedulingGates": [{"name": name} for name in names],
                "volumes": [{"name": name, "secret": {"secretName": name}} for name in names],
            },
        }
    )


def read_whole(pod: bytes, subject: RuleSubject) -> PodFields:
    """Return the view of a Pod for rules that read every field."""
    return _READER.read(pod, subject)


def measure(rounds: int) -> list[str]:
    """Return a line for ten rules, and one for each expression near the limit; in microseconds of CPU, medians."""
    rules = [Rule(f"r{number}", text) for number, text in enumerate(TEN)]
    plan, pod = RulePlan.compile(rules, ignores_errors=False), make_usual_pod()
    judged = _took(lambda: plan.judge(pod, SUBJECT), rounds)
    lines = [f"{'ten rules, with the view of the Pod':60} {judged:>9.1f} us"]
    subject, largest = SUBJECT._replace(user="u" * 1024), make_largest_pod()
    viewed = _took(lambda: load_environment().activate(read_whole(largest, subject).values, subject), rounds)
    lines.append(f"{'the view of the largest Pod':60} {viewed:>9.1f} us")
    found = read_whole(largest, subject)
    if found.excess:
        raise ValueError(f"more than rules judge: {dict(found.excess)}")
    activation: Any = load_environment().activate(found.values, subject)
    for text in NEAR_THE_LIMIT:
        expression, cost, _ = compile_expression(text, "bool")
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
