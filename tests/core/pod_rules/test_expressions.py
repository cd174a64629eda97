"""Expressions: what CEL means, the fields of a Pod, the types that are checked, and the library that may be absent."""

import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from webhook.core.document import DocumentError, Purpose, load
from webhook.core.kubernetes.pod import Pod
from webhook.core.pod_rules import ExpressionError, RuleSubject, compile_expression
from webhook.core.pod_rules.environment import EvaluationError, load_environment
from webhook.core.pod_rules.fields import MESSAGES, PACKAGE, list_unrecorded
from webhook.core.pod_rules.messages import build_messages, find_message_class
from webhook.core.pod_rules.view import ViewReader
from webhook.core.proof.corpus import CORPUS, Sample
from webhook.core.reporting.pod_record import record_pod

CONFORMANCE = yaml.safe_load(Path(__file__).with_name("conformance.yaml").read_text(encoding="utf-8"))
POD = {
    "metadata": {"name": "web-1", "generateName": "web-", "labels": {"tier": "web"}, "annotations": {"a": "secret"}},
    "spec": {
        "containers": [
            {
                "name": "app",
                "image": "nginx:latest",
                "imagePullPolicy": "IfNotPresent",
                "command": ["sh", "-c", "secret"],
                "ports": [{"name": "http", "containerPort": 80, "hostPort": 8080, "protocol": "TCP"}],
                "env": [
                    {"name": "PLAIN", "value": "secret"},
                    {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "web", "key": "password"}}},
                ],
                "envFrom": [{"configMapRef": {"name": "web"}}],
                "volumeMounts": [{"name": "host", "mountPath": "/host", "readOnly": True}],
                "securityContext": {
                    "privileged": False,
                    "runAsNonRoot": True,
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "livenessProbe": {"httpGet": {"path": "/", "port": 80}},
                "resources": {
                    "requests": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": 2},
                    "limits": {"cpu": 2, "memory": "1.5Gi", "ephemeral-storage": "1M"},
                },
            },
            {"name": "sidecar", "image": "envoy:1.31"},
        ],
        "initContainers": [{"name": "init", "image": "busybox", "restartPolicy": "Always"}],
        "nodeSelector": {"disk": "ssd"},
        "hostNetwork": True,
        "serviceAccountName": "web",
        "automountServiceAccountToken": False,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "imagePullSecrets": [{"name": "registry"}],
        "securityContext": {"runAsUser": 1000, "fsGroup": 2000, "sysctls": [{"name": "kernel.shm_rmid_forced"}]},
        "volumes": [
            {"name": "host", "hostPath": {"path": "/var/log", "type": "Directory"}},
            {"name": "scratch", "emptyDir": {}},
            {"name": "certs", "secret": {"secretName": "web-tls", "defaultMode": 420}},
            {"name": "all", "projected": {"sources": []}},
        ],
        "tolerations": [{"key": "spot", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "priorityClassName": "high",
        "runtimeClassName": "gvisor",
        "schedulerName": "default-scheduler",
        "schedulingGates": [{"name": "example.com/wait"}],
    },
}
SUBJECT = RuleSubject("shop", "web", "alice", "Deployment")


def evaluate(expression: str, result: str = "bool", pod: dict[str, Any] | None = None) -> Any:
    compiled = compile_expression(expression, result)
    found = ViewReader(compiled.reads).read(msgspec.json.encode(POD if pod is None else pod), SUBJECT)
    assert found.excess == {}
    return compiled.expression.evaluate(load_environment().activate(found.values, SUBJECT))


def policy(*rules: dict[str, Any]) -> bytes:
    service = {"name": "web", "match": {"namespaces": ["shop"]}, "rules": list(rules)}
    return yaml.safe_dump({"apiVersion": "podgate.io/v1alpha1", "kind": "Policy", "services": [service]}).encode()


@pytest.mark.parametrize("case", CONFORMANCE, ids=lambda case: case["expression"])
def test_expression_means_what_cel_says(case: dict[str, Any]) -> None:
    result = "string" if "text" in case else "bool"
    if "refused" in case:
        with pytest.raises(ExpressionError) as refused:
            evaluate(case["expression"], result)
        assert case["refused"] in refused.value.reason
    elif "fails" in case:
        with pytest.raises(EvaluationError, match=case["fails"]):
            evaluate(case["expression"], result)
    else:
        assert evaluate(case["expression"], result) == case.get("text", case.get("value"))


@pytest.mark.parametrize(
    "expression",
    [
        'pod.name == "web-1" && pod.generateName == "web-" && pod.ownerKind == "Deployment"',
        'pod.namespace == "shop" && service == "web" && user == "alice"',
        'pod.containers.map(c, c.name) == ["app", "sidecar"]',
        'pod.initContainers[0].restartPolicy == "Always"',
        "pod.containers[0].requests.cpu == 1500 && pod.containers[0].limits.cpu == 2000",
        "pod.containers[0].requests.memory == 1073741824",
        "pod.containers[0].limits.ephemeralStorage == 1000000",
        'pod.containers[0].requests.named["nvidia.com/gpu"] == 2',
        "!has(pod.containers[1].requests) && pod.containers[1].requests.cpu == 0",
        "!has(pod.containers[0].requests.ephemeralStorage)",
        'pod.nodeSelector == {"disk": "ssd"}',
        'pod.tolerations.exists(t, t.key == "spot" && t.operator == "Exists" && t.tolerationSeconds == 30)',
        'pod.topologySpreadConstraints[0].topologyKey == "zone" && pod.topologySpreadConstraints[0].maxSkew == 1',
        'pod.priorityClassName == "high" && pod.runtimeClassName == "gvisor" && !has(pod.priority)',
        'pod.schedulerName == "default-scheduler" && pod.nodeName == "" && pod.preemptionPolicy == ""',
        '"example.com/wait" in pod.schedulingGates',
        'pod.containers[0].image.endsWith(":latest") && pod.containers[0].imagePullPolicy == "IfNotPresent"',
        "pod.containers[0].ports.exists(p, p.hostPort == 8080 && p.containerPort == 80 && p.name == 'http')",
        "pod.containers[0].env.map(e, e.name) == ['PLAIN', 'PASSWORD']",
        "pod.containers[0].env.exists(e, e.valueFrom.secretKeyRef.name == 'web')",
        "!has(pod.containers[0].env[0].valueFrom) && has(pod.containers[0].envFrom[0].configMapRef)",
        "pod.containers[0].volumeMounts.all(m, m.name == 'host' && m.mountPath == '/host' && m.readOnly)",
        "pod.containers[0].securityContext.runAsNonRoot && !has(pod.containers[1].securityContext.runAsNonRoot)",
        "!pod.containers[0].securityContext.privileged && has(pod.containers[0].securityContext.privileged)",
        "pod.containers[0].securityContext.capabilities.drop == ['ALL']",
        "pod.containers[0].securityContext.seccompProfile.type == 'RuntimeDefault'",
        "has(pod.containers[0].livenessProbe) && !has(pod.containers[0].readinessProbe)",
        "pod.hostNetwork && !pod.hostPID && !pod.hostIPC && !pod.shareProcessNamespace",
        "pod.serviceAccountName == 'web' && has(pod.automountServiceAccountToken) && !pod.automountServiceAccountToken",
        "pod.restartPolicy == 'Always' && pod.terminationGracePeriodSeconds == 30 && pod.dnsPolicy == 'ClusterFirst'",
        "pod.imagePullSecrets == ['registry'] && pod.annotations['a'] == 'secret'",
        "pod.securityContext.runAsUser == 1000 && pod.securityContext.fsGroup == 2000",
        "pod.securityContext.sysctls.all(s, s.name == 'kernel.shm_rmid_forced')",
        "pod.volumes.map(v, v.kind) == ['hostPath', 'emptyDir', 'secret', 'projected']",
        "pod.volumes[0].hostPath.path == '/var/log' && pod.volumes[2].secret.secretName == 'web-tls'",
        "pod.volumes.filter(v, has(v.hostPath)).size() == 1",
        "pod.?priorityClassName.orValue('none') == 'high'",
        "pod.labels[?'tier'].orValue('') == 'web' && pod.?labels[?'x'].orValue('y') == 'y'",
    ],
)
def test_field_of_a_pod_can_be_read(expression: str) -> None:
    assert evaluate(expression) is True


@pytest.mark.parametrize("field", ["command", "args", "affinity", "spec", "managedFields"])
def test_field_outside_the_declared_view_cannot_be_read(field: str) -> None:
    """A message could show a secret in an argument."""
    for holder in ("pod", "pod.containers[0]"):
        with pytest.raises(ExpressionError) as refused:
            compile_expression(f'{holder}.{field} == ""', "bool")
        assert refused.value.reason.startswith(f"undefined field '{field}'")


@pytest.mark.parametrize(
    ("text", "value", "milli_value"),
    [
        ("500m", 1, 500),
        ("1.5Gi", 1610612736, 1610612736000),
        ("2", 2, 2000),
        ("1n", 1, 1),
        ("1e30", 2**63 - 1, 2**63 - 1),
    ],
)
def test_quantity_is_rounded_up_as_kubernetes_does(text: str, value: int, milli_value: int) -> None:
    assert evaluate(f'quantity("{text}").value == {value} && quantity("{text}").milliValue == {milli_value}')


def test_quantity_is_compared_with_an_amount_only_in_a_unit() -> None:
    with pytest.raises(ExpressionError) as refused:
        compile_expression('pod.containers[0].requests.cpu <= quantity("2")', "bool")
    assert "'(int, podgate.Quantity)'" in refused.value.reason


def test_text_that_is_no_quantity_is_an_error_of_the_rule() -> None:
    with pytest.raises(EvaluationError, match="not a Kubernetes quantity"):
        evaluate("quantity(pod.name).value > 1")


@pytest.mark.parametrize(
    ("expression", "line", "column"),
    [
        ("pod.image", 1, 4),
        ("true &&\n  pod.nope", 2, 6),
        ("user + 1", 1, 6),
        ("namespace", 1, 1),
        ("user.matches(user)", 1, 14),
    ],
)
def test_mistake_has_its_place_in_the_expression(expression: str, line: int, column: int) -> None:
    with pytest.raises(ExpressionError) as refused:
        compile_expression(expression, "bool")
    assert (refused.value.line, refused.value.column) == (line, column)
    assert refused.value.remedy


@pytest.mark.parametrize("odd", ["\u202e", "\x07", "\u2028", "\x85"])
def test_mistake_is_told_on_one_printable_line(odd: str) -> None:
    with pytest.raises(ExpressionError) as refused:
        compile_expression(f'user != "\u00e9" &&\n    {odd}\n', "bool")
    assert refused.value.reason.isprintable(), ascii(refused.value.reason)
    assert "Syntax error" in refused.value.reason


def test_rules_without_the_library_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cel_expr_python", None)
    load_environment.cache_clear()
    compile_expression.cache_clear()
    try:
        with pytest.raises(DocumentError) as refused:
            load(policy({"name": "a", "require": "true"}), Purpose.SERVE)
    finally:
        load_environment.cache_clear()
    (problem,) = refused.value.problems
    assert problem.path == "services[0].rules"
    assert problem.reason == "rules need the CEL library, which is not installed"
    assert "pip install 'podgate[cel]'" in problem.remedy


def test_number_and_length_of_rules_have_limits() -> None:
    rules = [{"name": f"r{number}", "require": "true"} for number in range(21)]
    load(policy(*rules[:20]), Purpose.SERVE)
    with pytest.raises(DocumentError, match="longer than 20"):
        load(policy(*rules), Purpose.SERVE)
    long = f'pod.name != "{"x" * 1100}"'
    with pytest.raises(DocumentError, match="more than 2048"):
        load(policy({"name": "a", "when": long, "require": long}), Purpose.SERVE)


@pytest.mark.parametrize("sample", CORPUS, ids=lambda sample: sample.name)
def test_rules_read_of_a_recorded_pod_what_they_read_of_the_pod(sample: Sample) -> None:
    recorded = msgspec.json.decode(msgspec.json.encode(record_pod(sample.pod)), type=Pod)
    every_field = frozenset((message, field) for message, fields in MESSAGES.items() for field in fields)
    recorded_fields = frozenset(field for field in every_field if not list_unrecorded(frozenset({field})))
    reader = ViewReader(recorded_fields)
    found = [reader.read(raw, SUBJECT).values for raw in (sample.raw, msgspec.json.encode(recorded))]
    kind = find_message_class(build_messages(PACKAGE, MESSAGES), f"{PACKAGE}.Pod")
    assert kind(**found[0]) == kind(**found[1])


def read(expression: str, **spec: Any) -> dict[tuple[str, str], str]:
    """Return why a rule with the expression cannot judge a Pod."""
    compiled = compile_expression(expression, "bool")
    pod = {"metadata": {"name": "p", **spec.pop("metadata", {})}, "spec": {"containers": [{"image": "i"}], **spec}}
    return dict(ViewReader(compiled.reads).read(msgspec.json.encode(pod), SUBJECT).excess)


@pytest.mark.parametrize(
    ("expression", "spec", "field", "reason"),
    [
        ("pod.labels == {}", {"metadata": {"labels": dict.fromkeys(map(str, range(51)), "x")}}, "labels", "pod.labels"),
        ("pod.annotations == {}", {"metadata": {"annotations": {"a": "x" * 1025}}}, "annotations", "a has more than"),
        ("pod.volumes == []", {"volumes": [{"name": "x" * 1025}]}, "volumes", "at most 1024"),
        ("pod.hostPID", {"hostPID": "yes"}, "hostPID", "pod.hostPID: expected `bool`, got `str`"),
        (
            "pod.containers.all(c, c.image != '')",
            {"containers": [{"image": "i" * 1025}]},
            "image",
            "a container's image",
        ),
        (
            "pod.containers.all(c, c.env.all(e, e.name != ''))",
            {"containers": [{"image": "i", "env": [{"name": "A"}] * 40}] * 20},
            "env",
            "the containers' env have more than 500 entries together",
        ),
        (
            "pod.containers.all(c, c.requests.cpu > 1)",
            {"containers": [{"resources": {"requests": {"cpu": "x"}}}]},
            "requests",
            "not a Kubernetes quantity",
        ),
    ],
)
def test_field_with_more_than_rules_judge_is_named(
    expression: str, spec: dict[str, Any], field: str, reason: str
) -> None:
    excess = {name: text for (_, name), text in read(expression.replace("== []", ".size() == 0"), **spec).items()}
    assert reason in excess[field]


def test_field_that_no_rule_reads_may_have_more_than_rules_judge() -> None:
    many = {"containers": [{"image": "i", "env": [{"name": "A"}] * 51}], "metadata": {"annotations": {"a": "x" * 2000}}}
    assert read("pod.containers.all(c, c.image != '')", **many) == {}


def test_copy_of_the_pod_in_its_annotations_is_not_read() -> None:
    applied = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 5000, "a": "b"}
    pod = {"metadata": {"annotations": applied}, "spec": {}}
    assert evaluate("pod.annotations == {'a': 'b'}", pod=pod) is True
