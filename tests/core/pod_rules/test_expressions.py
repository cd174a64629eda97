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
from webhook.core.pod_rules.view import list_fields
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
                "resources": {
                    "requests": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": 2},
                    "limits": {"cpu": 2, "memory": "1.5Gi", "ephemeral-storage": "1M"},
                },
            },
            {"name": "sidecar"},
        ],
        "initContainers": [{"name": "init", "restartPolicy": "Always"}],
        "nodeSelector": {"disk": "ssd"},
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
    fields = list_fields(Pod.from_document(POD if pod is None else pod), SUBJECT)
    activation = load_environment().activate(fields, SUBJECT)
    return compile_expression(expression, result).expression.evaluate(activation)


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
    ],
)
def test_field_of_a_pod_can_be_read(expression: str) -> None:
    assert evaluate(expression) is True


@pytest.mark.parametrize("field", ["image", "env", "annotations", "command", "args", "volumes", "affinity", "spec"])
def test_field_that_records_do_not_keep_cannot_be_read(field: str) -> None:
    """A replay would judge otherwise, and a message could show a secret."""
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
    activations = [list_fields(pod, SUBJECT) for pod in (sample.pod, recorded)]
    assert set_fields(activations[0]) == set_fields(activations[1])


def set_fields(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}
