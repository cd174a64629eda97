"""Rules in reviews: modes, errors, resizes, workloads, overrides of nothing else, and what is counted of them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.core.reviewing import ALICE, REPLICA_SETS, Gate, policy_of
from webhook.adapters.fixed import FixedNamespaces, FixedPolicy
from webhook.adapters.metrics.label_sets import ProcessRole, list_zeros
from webhook.commands.simulator import Admission, Ask, admit
from webhook.core.admission import stages
from webhook.core.admission.decision import Decision, Verdict
from webhook.core.admission.validation import find_own_mode
from webhook.core.findings import Code
from webhook.core.overrides import apply_overrides, list_remarks
from webhook.core.overrides.editing import parse_entry
from webhook.core.pod_rules.fields import MESSAGES
from webhook.core.policy_changes.differences import compare
from webhook.core.policy_fields import Mode
from webhook.core.webhook_configurations.conditions import render_updates
from webhook.core.webhook_configurations.pod_calls import list_reasons_to_validate
from webhook.interceptor import Interceptor
from webhook.observers import Observers

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
    assert "cannot judge the Pod: pod.labels: expected `object` of length <= 50" in closed.status.message


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


def test_page_that_an_error_names_lists_the_fields_of_a_pod() -> None:
    page = (Path(__file__).parents[3] / "docs" / "rules.md").read_text()
    assert [field for message in ("Pod", "Container") for field in MESSAGES[message] if field not in page] == []


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


PINNED = """
- name: web
  match: {{namespaces: [shop]}}
  rules:
  - name: pinned
    require: pod.containers.all(c, !c.image.endsWith(":latest"))
    message: '"image " + pod.containers[0].image + " must be pinned"'
    mode: {mode}
  - {{name: never, when: 'false', require: 'false'}}
"""


def with_image(gate: Gate, image: str) -> dict[str, Any]:
    return gate.build_owned_pod("u", containers=[{"name": "c", "image": image}])


@pytest.mark.parametrize("order", [("nginx:1.27", "nginx:latest"), ("nginx:latest", "nginx:1.27")])
async def test_pods_that_differ_only_in_what_rules_read_are_judged_apart(order: tuple[str, str]) -> None:
    """The results of other checks are shared by such Pods."""
    gate = Gate(policy_of(PINNED.format(mode="Enforce")))
    decisions = {image: await gate.validate(object=with_image(gate, image)) for image in order}
    assert decisions["nginx:1.27"].allowed
    assert not decisions["nginx:latest"].allowed
    message = "RuleViolated: service web: rule pinned: image nginx:latest must be pinned"
    assert decisions["nginx:latest"].status.message == message


async def test_every_rule_leaves_a_note_of_what_it_found() -> None:
    gate = Gate(policy_of(PINNED.format(mode="Audit")))
    notes = {}
    for image in ("nginx:1.27", "nginx:latest"):
        decision = await gate.validate(object=with_image(gate, image))
        notes[image] = [step.found for step in decision.steps if step.stage == "check"]
    assert notes["nginx:1.27"][:2] == ["rule pinned: fulfilled", "rule never: not for this Pod"]
    assert notes["nginx:latest"] == [
        "rule never: not for this Pod",
        "Audit: RuleViolated: service web: rule pinned: image nginx:latest must be pinned",
    ]


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [("a:1", "a:latest", False), ("a:latest", "b:latest", True), ("a:latest", "a:1", True)],
)
async def test_update_of_an_image_may_violate_only_what_was_violated(before: str, after: str, *, allowed: bool) -> None:
    gate = Gate(policy_of(PINNED.format(mode="Enforce")))
    versions = {"oldObject": with_image(gate, before), "object": with_image(gate, after)}
    assert (await gate.validate(operation="UPDATE", **versions)).allowed is allowed


async def test_image_of_a_workload_is_judged() -> None:
    gate = Gate(policy_of(PINNED.format(mode="Enforce")))
    template = {"spec": {"containers": [{"name": "c", "image": "nginx:latest"}]}}
    decision = await gate.validate(
        resource={"group": "apps", "version": "v1", "resource": "deployments"},
        object={"metadata": {"name": "web"}, "spec": {"template": template}},
    )
    (warning,) = decision.warnings
    assert warning.endswith("web will be denied: service web: rule pinned: image nginx:latest must be pinned")


def test_configuration_calls_for_updates_that_rules_judge() -> None:
    def condition(rule: str) -> str:
        service = f"- {{name: web, match: {{namespaces: [shop]}}, rules: [{{name: r, require: '{rule}'}}]}}"
        (found,) = render_updates(policy_of(service).policy.services)
        return found["expression"]

    images = "map(c, c.?image.orValue(''))"
    assert images not in condition("pod.name != pod.namespace")
    assert condition("pod.containers.all(c, c.image != pod.name)").count(images) == 4
    assert "object.metadata.?labels != oldObject.metadata.?labels ||" in condition("pod.labels.all(k, k != pod.name)")
    assert "object.spec.?tolerations != oldObject" in condition("pod.tolerations.all(t, t.key != pod.name)")


@pytest.mark.parametrize(("mode", "allowed", "found"), [("Audit", True, [Mode.AUDIT]), ("Disabled", True, [])])
async def test_override_sets_the_mode_of_all_rules(mode: str, found: list[Mode], *, allowed: bool) -> None:
    loaded = policy_of(PINNED.format(mode="Enforce"))
    entry = parse_entry(
        {"service": "web", "modes": {"rules": mode}, "until": "2030-01-01T00:00:00Z", "reason": "INC-1"}
    )
    gate = Gate(apply_overrides(loaded, {"web": (entry,)}))
    decision = await gate.validate(object=with_image(gate, "nginx:latest"))
    assert decision.allowed is allowed
    assert [finding.mode for finding in decision.findings] == found


async def test_override_does_not_enable_a_disabled_rule() -> None:
    entry = parse_entry(
        {"service": "web", "modes": {"rules": "Enforce"}, "until": "2030-01-01T00:00:00Z", "reason": "INC-1"}
    )
    gate = Gate(apply_overrides(policy_of(PINNED.format(mode="Disabled")), {"web": (entry,)}))
    assert (await gate.validate(object=with_image(gate, "nginx:latest"))).findings == ()


def test_override_of_rules_that_a_service_has_not_is_remarked() -> None:
    entry = parse_entry(
        {"service": "web", "modes": {"rules": "Audit"}, "until": "2030-01-01T00:00:00Z", "reason": "INC-1"}
    )
    policy = policy_of("- {name: web, match: {namespaces: [shop]}}").policy
    assert list_remarks(policy, entry) == ("modes.rules: the service has no rules",)


async def test_replay_of_a_record_judges_by_no_rule_that_reads_more() -> None:
    """A record has no images: to judge without them would admit what was denied."""
    gate = Gate(policy_of(PINNED.format(mode="Enforce").replace('!c.image.endsWith(":latest")', 'c.image != ""')))
    replay = Interceptor(
        FixedPolicy(gate.loaded, gate.clock),
        gate.store,
        FixedNamespaces({"shop": {}}),
        Observers(),
        check=stages.check_recorded,
    )
    recorded = Ask({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}}, "shop", "u")
    whole = Ask({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}, "shop", "u")
    assert not (await admit(gate.interceptor, recorded)).validated.allowed
    decision = (await admit(replay, recorded)).validated
    assert decision.allowed
    notes = [step.found for step in decision.steps]
    assert "rule pinned: not judged: records do not keep containers.image" in notes
    judged = [step.found for step in (await admit(replay, whole)).validated.steps]
    assert "rule pinned: fulfilled" in judged
