"""Findings in Warn and Audit: what Enforce would deny, and nothing that it would only write."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec import convert
from msgspec.structs import replace

from tests.core.resource_strategies import pod_resources, resource_rules
from tests.core.reviewing import ALICE, REPLICA_SETS, Gate, envelope, policy_of
from tests.core.rewriting import apply_json_patch, decode_pod, patch_of
from tests.core.strategies import Json, Pair, examples, pairs
from webhook.adapters.metrics import Metrics
from webhook.commands.simulator import Admission, Ask, admit
from webhook.core.admission.decision import Half, WouldWrite
from webhook.core.admission.enforcement_preview import preview_enforcement
from webhook.core.admission.mutation import apply_patch
from webhook.core.admission.validation import check
from webhook.core.findings import Code
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy.model import Match, Modes, Service
from webhook.core.policy_fields import Mode, ResourceRules

SERVICE = """
- name: web
  match: {namespaces: [shop]}
  modes: {placement: MODE, resources: MODE}
  placement:
    schedulerName: podgate-scheduler
    nodeSelector: {disk: ssd}
    topology: [{level: Zone, in: [b]}]
    priorityClassName: gold
    runtimeClassName: gvisor
    tolerations: [{key: gpu, operator: Exists}]
  resources:
    container: {default: {cpu: "1", memory: 1Gi}, max: {cpu: "2"}}
    pod: {max: {memory: 3Gi}}
    whenOutside: Clamp
"""
PLACED = ("spec.schedulerName", "spec.priorityClassName", "spec.runtimeClassName", "spec.nodeSelector")
PLACED += ("spec.affinity", "spec.tolerations")


def build_gate_and_metrics(mode: str = "Warn", change: tuple[str, str] = ("", "")) -> tuple[Gate, Metrics]:
    metrics = Metrics("test")
    return Gate(policy_of(SERVICE.replace("MODE", mode).replace(*change)), observers=[metrics]), metrics


async def admit_pod(gate: Gate, *containers: Json, **spec: Any) -> Admission:
    pod = {"metadata": {"name": "p"}, "spec": {**spec, "containers": list(containers or ({"name": "c"},))}}
    return await admit(gate.interceptor, Ask(pod, "shop", "u", ALICE))


def count_pods(metrics: Metrics, family: str) -> dict[str, int]:
    """Return by concern how many Pods of service `web` a family counts."""
    found = {}
    for line in metrics.render().decode().splitlines():
        if line.startswith(f"podgate_{family}_total{{"):
            labels, _, value = line.rpartition(" ")
            assert 'service="web"' in labels
            found[labels.split('concern="')[1].split('"')[0]] = int(float(value))
    return found


@pytest.mark.parametrize("mode", ["Warn", "Audit"])
async def test_pod_that_enforce_would_rewrite_and_admit_is_no_would_deny(mode: str) -> None:
    gate, metrics = build_gate_and_metrics(mode)
    decision = (await admit_pod(gate)).validated
    assert decision.findings == ()
    assert decision.would_write == (
        WouldWrite("placement", Mode(mode), PLACED),
        WouldWrite("resources", Mode(mode), ("resources of container c",)),
    )
    assert decision.audit["would-rewrite"] == f"placement/{mode},resources/{mode}"
    assert count_pods(metrics, "would_deny") == {}
    assert count_pods(metrics, "would_rewrite") == {"placement": 1, "resources": 1}


async def test_warn_lists_the_fields_to_rewrite_in_one_warning() -> None:
    gate, _ = build_gate_and_metrics("Warn")
    warning = f"WouldRewrite: service web: Enforce would write {', '.join(PLACED)}, resources of container c"
    assert (await admit_pod(gate)).validated.warnings == (warning,)


async def test_audit_has_no_warnings() -> None:
    gate, _ = build_gate_and_metrics("Audit")
    assert (await admit_pod(gate)).validated.warnings == ()


async def test_rewritten_pod_has_no_would_rewrite() -> None:
    gate, metrics = build_gate_and_metrics("Warn")
    enforced = (await admit_pod(build_gate_and_metrics("Enforce")[0])).pod["spec"]
    decision = (await admit_pod(gate, *enforced.pop("containers"), **enforced)).validated
    assert (decision.warnings, decision.would_write, count_pods(metrics, "would_rewrite")) == ((), (), {})


@pytest.mark.parametrize(
    ("spec", "code", "concern"),
    [
        ({"schedulerName": "theirs"}, Code.PLACEMENT_CONFLICT, "placement"),
        ({"nodeSelector": {"disk": "hdd"}}, Code.PLACEMENT_CONFLICT, "placement"),
        ({"runtimeClassName": "kata"}, Code.PLACEMENT_CONFLICT, "placement"),
        (
            {"containers": [{"name": "c", "resources": {"limits": {"memory": "4Gi"}}}]},
            Code.RESOURCES_OUTSIDE,
            "resources",
        ),
        # Four defaults of 1Gi each are more than the maximum of a Pod; the Pod itself requests nothing.
        ({"containers": [{"name": f"c{number}"} for number in range(4)]}, Code.RESOURCES_OUTSIDE, "resources"),
    ],
)
@pytest.mark.parametrize("mode", ["Warn", "Audit"])
async def test_would_deny_counts_what_enforce_denies(spec: Json, code: Code, concern: str, mode: str) -> None:
    containers = spec.get("containers", [{"name": "c"}])
    others = {key: value for key, value in spec.items() if key != "containers"}
    refused = (await admit_pod(build_gate_and_metrics("Enforce")[0], *containers, **others)).validated
    assert [finding.code for finding in refused.denials] == [code]
    gate, metrics = build_gate_and_metrics(mode)
    decision = (await admit_pod(gate, *containers, **others)).validated
    assert [(finding.code, finding.mode) for finding in decision.findings] == [(code, Mode(mode))]
    assert count_pods(metrics, "would_deny") == {concern: 1}
    # Enforce would write the fields of the other concern.
    assert count_pods(metrics, "would_rewrite") == {({"placement", "resources"} - {concern}).pop(): 1}


async def test_amount_that_clamp_corrects_is_no_would_deny() -> None:
    gate, metrics = build_gate_and_metrics("Warn")
    decision = (await admit_pod(gate, {"name": "c", "resources": {"limits": {"cpu": "16", "memory": "1Gi"}}})).validated
    assert decision.findings == ()
    assert count_pods(metrics, "would_rewrite") == {"placement": 1, "resources": 1}


async def test_enforced_placement_is_written_and_resources_in_warn_are_a_warning() -> None:
    gate, metrics = build_gate_and_metrics("Enforce", ("resources: Enforce", "resources: Warn"))
    admission = await admit_pod(gate)
    assert admission.pod["spec"]["schedulerName"] == "podgate-scheduler"
    assert "resources" not in admission.pod["spec"]["containers"][0]
    assert admission.validated.warnings == ("WouldRewrite: service web: Enforce would write resources of container c",)
    assert (count_pods(metrics, "would_deny"), count_pods(metrics, "would_rewrite")) == ({}, {"resources": 1})


async def test_enforced_resources_are_checked_without_the_placement_in_warn() -> None:
    """The overhead of the Pod's own class counts, although an enforced placement would replace the class."""
    gate, _ = build_gate_and_metrics("Warn", ("resources: Warn", "resources: Enforce"))
    spec = {"runtimeClassName": "kata", "overhead": {"memory": "4Gi"}}
    decision = (await admit_pod(gate, **spec)).validated
    assert [finding.code for finding in decision.denials] == [Code.RESOURCES_OUTSIDE]


async def test_denied_pod_has_no_would_rewrite() -> None:
    metrics = Metrics("test")
    denying = policy_of(SERVICE.replace("MODE", "Warn") + "\n  quota: {windows: [{window: 1m, hard: {cpu: 1}}]}")
    gate = Gate(denying, observers=[metrics])
    decision = (await admit_pod(gate, {"name": "c", "resources": {"requests": {"cpu": "2"}}})).validated
    assert not decision.allowed
    assert (decision.would_write, count_pods(metrics, "would_rewrite")) == ((), {})


async def test_a_contradiction_is_never_a_would_deny() -> None:
    """Enforce, too, admits the Pod with a warning."""
    zone_a = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [zone_a]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    for mode in ("Enforce", "Warn", "Audit"):
        gate, metrics = build_gate_and_metrics(mode)
        decision = (await admit_pod(gate, affinity=affinity)).validated
        assert [finding.code for finding in decision.findings] == [Code.PLACEMENT_CONTRADICTION]
        assert count_pods(metrics, "would_deny") == {}


@pytest.mark.parametrize(("failure_mode", "denied"), [("Open", {}), ("Closed", {"placement": 1})])
async def test_pod_without_a_rewrite_is_a_would_deny_if_failure_mode_is_closed(
    failure_mode: str, denied: dict[str, int]
) -> None:
    gate, metrics = build_gate_and_metrics("Warn", ("name: web", f"name: web\n  failureMode: {failure_mode}"))
    unchanged = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}}
    decision = await gate.validate(object=unchanged)
    assert [finding.code for finding in decision.findings] == [Code.MUTATION_MISSING]
    assert (decision.would_write, count_pods(metrics, "would_deny")) == ((), denied)


@pytest.mark.parametrize(("mode", "has_warning"), [("Warn", True), ("Audit", False), ("Enforce", False)])
async def test_author_of_a_workload_gets_the_same_warning(mode: str, has_warning: bool) -> None:  # noqa: FBT001  a parameter
    gate, metrics = build_gate_and_metrics(mode)
    request = envelope(
        resource={"group": "apps", "version": "v1", "resource": "deployments"},
        object={"metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}},
    )
    decision = (await gate.interceptor.review(Half.VALIDATE, msgspec.json.encode(request))).decision
    fields = f"{', '.join(PLACED)}, resources of container c"
    warning = f"WouldRewrite: in Pods of deployment.apps/web: service web: Enforce would write {fields}"
    assert decision.warnings == ((warning,) if has_warning else ())
    assert count_pods(metrics, "would_rewrite") == {}  # only Pods are counted


async def test_warning_about_many_containers_is_short() -> None:
    gate, _ = build_gate_and_metrics("Warn", ("pod: {max: {memory: 3Gi}}", "pod: {}"))
    decision = (await admit_pod(gate, *({"name": f"c{number}"} for number in range(500)))).validated
    (warning,) = decision.warnings
    assert warning.endswith("resources of containers c0, c1, c2 and 497 more")


async def test_label_and_annotation_are_written_in_every_mode_but_disabled() -> None:
    for mode in ("Enforce", "Warn", "Audit", "Disabled"):
        off = ("resources: MODE", "resources: MODE, quota: MODE, breaker: MODE") if mode == "Disabled" else ("", "")
        gate = Gate(policy_of(SERVICE.replace(*off).replace("MODE", mode)))
        admission = await admit_pod(gate)
        podgates_keys = {"podgate.io/service", "podgate.io/policy-hash"}
        metadata = admission.pod["metadata"]
        written = {*metadata.get("labels", {}), *metadata.get("annotations", {})}
        assert written == (set() if mode == "Disabled" else podgates_keys)
        if mode != "Enforce":
            assert admission.pod["spec"] == {"containers": [{"name": "c"}]}


def find_findings_and_rewrite(raw: Json, service: Service, mode: Mode) -> tuple[set[str], bool]:
    """Return the findings that deny, or would deny, a Pod; and whether its spec is, or would be, rewritten."""
    in_mode = replace(service, modes=Modes(placement=mode, resources=mode))
    patch = patch_of(raw, in_mode)
    trial = preview_enforcement(decode_pod(apply_json_patch(raw, patch)), in_mode)
    findings = check(trial.pod, in_mode, hash_known=True)
    of_trial = (field for write in trial.writes for field in write.fields if not field.startswith("metadata."))
    of_patch = (
        operation.path.startswith("/spec/") and (operation.op != "remove" or "/limits/" in operation.path)
        for operation in patch
    )
    refusals = (finding for finding in findings if not finding.is_advice and finding.mode is mode)
    return {f"{finding.code} {finding.message}" for finding in refusals}, any(of_patch) or any(of_trial)


@examples(150)
@given(pairs)
def test_placement_in_warn_has_the_findings_of_enforce(pair: Pair) -> None:
    assert find_findings_and_rewrite(pair.pod, pair.service, Mode.WARN) == find_findings_and_rewrite(
        pair.pod, pair.service, Mode.ENFORCE
    )


@examples(150)
@given(resource_rules(), pod_resources())
def test_resources_in_audit_have_the_findings_of_enforce(rules: Json, spec: Json) -> None:
    ranges = convert(rules, ResourceRules, dec_hook=lambda _, value: Quantity.parse(str(value)))
    service = Service("s", Match(any_namespace=True), resources=ranges)
    raw = {"metadata": {"name": "p"}, "spec": spec}
    assert find_findings_and_rewrite(raw, service, Mode.AUDIT) == find_findings_and_rewrite(raw, service, Mode.ENFORCE)


@examples(120)
@given(pairs)
def test_patched_pod_equals_that_of_an_independent_library(pair: Pair) -> None:
    patch = patch_of(pair.pod, pair.service)
    assert apply_patch(decode_pod(pair.pod), patch) == decode_pod(apply_json_patch(pair.pod, patch))
    assert patch_of(pair.pod, pair.service) == patch  # the first patch did not change the policy's plan


async def test_pod_of_a_controller_is_counted() -> None:
    gate, metrics = build_gate_and_metrics("Audit")
    pod = {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c"}]}}
    await admit(gate.interceptor, Ask(pod, "shop", "u", REPLICA_SETS))
    assert count_pods(metrics, "would_rewrite") == {"placement": 1, "resources": 1}
