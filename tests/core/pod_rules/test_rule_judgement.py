"""Rules in reviews: modes, errors, resizes, workloads, overrides of nothing else, and what is counted of them."""

import subprocess
import sys

import pytest

from tests.core.reviewing import ALICE, REPLICA_SETS, Gate, policy_of
from webhook.adapters.metrics.label_sets import ProcessRole, list_zeros
from webhook.commands.simulator import Admission, Ask, admit
from webhook.core.admission.decision import Decision, Verdict
from webhook.core.admission.validation import find_own_mode
from webhook.core.findings import Code
from webhook.core.policy_changes.differences import compare
from webhook.core.policy_fields import Mode
from webhook.core.webhook_configurations.pod_calls import list_reasons_to_validate

FEW_CORES = """
- name: web
  match: {{namespaces: [shop]}}
  failureMode: {failure_mode}
  rules:
  - name: few-cores
    when: pod.labels[?"tier"].orValue("web") == "web"
    require: pod.containers.all(c, c.requests.cpu <= quantity("2").milliValue)
    message: '"container " + pod.containers[0].name + " of " + pod.namespace'
    mode: {mode}
"""
READS_A_LABEL = """
- name: web
  match: {{namespaces: [shop]}}
  failureMode: {failure_mode}
  rules: [{{name: tiered, require: 'pod.labels["tier"] == "web"', mode: Enforce{more}}}]
"""


def rules(mode: str = "Enforce", failure_mode: str = "Open") -> str:
    return FEW_CORES.format(mode=mode, failure_mode=failure_mode)


async def admit_pod(policy: str, cpu: str = "3", labels: dict[str, str] | None = None, user: str = ALICE) -> Admission:
    resources = {"requests": {"cpu": cpu}}
    document = {
        "metadata": {"name": "p", "labels": labels or {}},
        "spec": {"containers": [{"name": "c", "resources": resources}]},
    }
    return await admit(Gate(policy_of(policy)).interceptor, Ask(document, "shop", "u", user))


def findings(decision: Decision) -> list[tuple[Code, str, Mode]]:
    return [(found.code, found.field, found.mode) for found in decision.findings]


async def test_enforced_rule_denies_with_its_message() -> None:
    decision = (await admit_pod(rules())).validated
    assert (decision.verdict, decision.status.code) == (Verdict.DENY, 403)
    assert decision.status.message == "RuleViolated: service web: rule few-cores: container c of shop"
    assert findings(decision) == [(Code.RULE_VIOLATED, "rules[few-cores]", Mode.ENFORCE)]
    assert decision.audit["findings"] == "RuleViolated/Enforce"


async def test_rule_in_warn_only_warns() -> None:
    decision = (await admit_pod(rules("Warn"))).validated
    assert decision.verdict is Verdict.ADMIT
    assert decision.warnings == ("RuleViolated: service web: rule few-cores: container c of shop",)


async def test_rule_is_only_counted_by_default() -> None:
    decision = (await admit_pod(rules().replace("    mode: Enforce\n", ""))).validated
    assert (decision.verdict, decision.warnings) == (Verdict.ADMIT, ())
    assert findings(decision) == [(Code.RULE_VIOLATED, "rules[few-cores]", Mode.AUDIT)]


async def test_disabled_rule_is_not_evaluated() -> None:
    assert findings((await admit_pod(rules("Disabled"))).validated) == []


async def test_no_rule_is_evaluated_where_all_modes_are_disabled() -> None:
    modes = "  modes: {placement: Disabled, resources: Disabled, quota: Disabled, breaker: Disabled}\n"
    assert findings((await admit_pod(rules() + modes)).validated) == []


@pytest.mark.parametrize(("cpu", "labels"), [("2", {}), ("3", {"tier": "batch"})])
async def test_pod_that_fulfils_the_rule_or_is_not_meant_is_admitted(cpu: str, labels: dict[str, str]) -> None:
    decision = (await admit_pod(rules(), cpu, labels)).validated
    assert (decision.verdict, findings(decision)) == (Verdict.ADMIT, [])


@pytest.mark.parametrize(
    ("failure_mode", "more", "expected"),
    [
        ("Closed", "", Mode.ENFORCE),
        ("Open", "", Mode.AUDIT),
        ("Closed", ", onError: Ignore", Mode.AUDIT),
        ("Open", ", onError: Deny", Mode.ENFORCE),
    ],
)
async def test_pod_that_a_rule_cannot_judge_is_denied_or_counted(failure_mode: str, more: str, expected: Mode) -> None:
    decision = (await admit_pod(READS_A_LABEL.format(failure_mode=failure_mode, more=more))).validated
    assert findings(decision) == [(Code.RULE_FAILED, "rules[tiered]", expected)]
    assert decision.allowed is (expected is Mode.AUDIT)
    assert "rule tiered cannot judge the Pod: Key not found in map" in str(decision.findings[0])


async def test_pod_with_more_than_rules_judge_is_left_to_on_error() -> None:
    many = {f"l{number}": "x" for number in range(51)}
    closed, opened = [(await admit_pod(rules("Enforce", mode), labels=many)).validated for mode in ("Closed", "Open")]
    assert findings(closed) == [(Code.RULE_FAILED, "rules[few-cores]", Mode.ENFORCE)]
    assert findings(opened) == [(Code.RULE_FAILED, "rules[few-cores]", Mode.AUDIT)]
    assert "the Pod has more than 50 labels" in closed.status.message


async def test_pod_of_a_mebibyte_is_judged() -> None:
    gate = Gate(policy_of(rules()))
    large = gate.build_owned_pod("u", containers=[{"name": "c", "resources": {"requests": {"cpu": "3"}}}])
    large["metadata"]["annotations"] |= {f"example.com/a{number}": "x" * 60_000 for number in range(17)}
    decision = await gate.validate(object=large)
    assert findings(decision) == [(Code.RULE_VIOLATED, "rules[few-cores]", Mode.ENFORCE)]


async def test_message_that_fails_does_not_hide_the_violation() -> None:
    policy = rules().replace("pod.containers[0].name", "pod.containers[7].name")
    message = (await admit_pod(policy)).validated.status.message
    assert message.startswith("RuleViolated: service web: rule few-cores: require is not fulfilled (message: ")


async def test_message_shows_no_control_characters() -> None:
    policy = rules().replace(
        """'"container " + pod.containers[0].name + " of " + pod.namespace'""", r"""'"a\n\u001b[31m"'"""
    )
    assert (await admit_pod(policy)).validated.status.message.endswith(r"a\x0a\x1b[31m")


async def test_owner_kind_is_believed_only_of_controllers() -> None:
    policy = """
- name: web
  match: {namespaces: [shop]}
  rules: [{name: owned, require: 'pod.ownerKind == "ReplicaSet"', mode: Enforce}]
"""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": True}
    document = {"metadata": {"name": "p", "ownerReferences": [owner]}, "spec": {"containers": [{"name": "c"}]}}
    interceptor = Gate(policy_of(policy)).interceptor
    allowed = [
        (await admit(interceptor, Ask(document, "shop", "u", user))).validated.allowed for user in (REPLICA_SETS, ALICE)
    ]
    assert allowed == [True, False]


@pytest.mark.parametrize(("before", "after", "denied"), [("1", "3", True), ("3", "4", False), ("3", "1", False)])
async def test_resize_may_violate_only_what_it_violated_before(before: str, after: str, *, denied: bool) -> None:
    gate = Gate(policy_of(rules()))
    versions = [
        gate.build_owned_pod("u", containers=[{"name": "c", "resources": {"requests": {"cpu": cpu}}}])
        for cpu in (before, after)
    ]
    decision = await gate.validate(operation="UPDATE", subResource="resize", oldObject=versions[0], object=versions[1])
    assert decision.allowed is not denied


async def test_other_update_is_not_judged() -> None:
    gate = Gate(policy_of(rules()))
    costly = gate.build_owned_pod("u", containers=[{"name": "c", "resources": {"requests": {"cpu": "9"}}}])
    decision = await gate.validate(operation="UPDATE", oldObject=costly, object=costly)
    assert decision.allowed


async def test_workload_gets_a_warning_about_its_pods() -> None:
    gate = Gate(policy_of(rules()))
    template = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]}}
    decision = await gate.validate(
        resource={"group": "apps", "version": "v1", "resource": "deployments"},
        object={"metadata": {"name": "web"}, "spec": {"template": template}},
    )
    assert decision.allowed
    text = "RuleViolated: Pods of deployment.apps/web will be denied: service web: rule few-cores: container c of shop"
    assert decision.warnings == (text,)


def test_rules_need_the_validating_call() -> None:
    def reasons(mode: str) -> tuple[str, ...]:
        return list_reasons_to_validate(policy_of(rules(mode)).policy.services[0])

    assert (reasons("Enforce"), reasons("Audit")) == (("rules (Enforce)",), ("rules (Audit)",))
    assert reasons("Disabled") == ()


def test_service_that_only_tries_rules_denies_nothing_of_its_own() -> None:
    found = [find_own_mode(policy_of(rules(mode)).policy.services[0]) for mode in ("Enforce", "Warn", "Audit")]
    assert found == [Mode.ENFORCE, Mode.WARN, Mode.AUDIT]


@pytest.mark.parametrize("mode", ["Enforce", "Warn", "Audit"])
async def test_every_series_of_a_rule_starts_at_zero(mode: str) -> None:
    loaded = policy_of(rules(mode))
    series = {
        (family.name, labels) for family, of in list_zeros(loaded.policy, ProcessRole.REVIEWS).items() for labels in of
    }
    decision = (await admit_pod(rules(mode))).validated
    for found in decision.findings:
        assert ("podgate_findings_total", ("web", found.code, found.mode)) in series
    if decision.allowed:
        assert ("podgate_would_deny_total", ("web", "rules")) in series


def test_policy_without_rules_never_loads_the_library() -> None:
    code = (
        "import sys\n"
        "from webhook.core.document import Purpose, load\n"
        "from webhook.core.compiled_policy import CompiledPolicy\n"
        "raw = b'apiVersion: podgate.io/v1alpha1\\nkind: Policy\\nservices: [{name: a, match: {namespaces: [a]}}]'\n"
        "CompiledPolicy(load(raw, Purpose.SERVE).policy)\n"
        "print([name for name in sys.modules if name.startswith(('cel_expr_python', 'google'))])"
    )
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"


def test_difference_of_policies_names_the_rule_and_its_field() -> None:
    before, after = policy_of(rules()).policy, policy_of(rules("Warn")).policy
    assert [line.strip() for line in compare(before, after).format_lines()][-1] == (
        "rules[few-cores].mode: Enforce -> Warn"
    )
