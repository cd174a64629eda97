"""Findings in Warn and Audit: what Enforce would deny, and nothing that it would only write."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from msgspec import convert
from msgspec.structs import replace

from tests.core.resource_strategies import pod_resources, resource_rules
from tests.core.reviewing import ALICE, REPLICA_SETS, Gate, envelope, policy_of
from tests.core.rewriting import applied, patch_of, read
from tests.core.strategies import Json, Pair, examples, pairs
from webhook.adapters.metrics import Metrics
from webhook.core.admission.decision import Half, WouldWrite
from webhook.core.admission.enforcement_preview import enforced_pod
from webhook.core.admission.mutation import patched
from webhook.core.admission.validation import check
from webhook.core.findings import Code
from webhook.core.kubernetes.quantity import Quantity
from webhook.core.policy.model import Match, Modes, Service
from webhook.core.policy_spec import Mode, ResourceRules
from webhook.offline.simulator import Admission, Ask, admit

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


def gate(mode: str = "Warn", change: tuple[str, str] = ("", "")) -> tuple[Gate, Metrics]:
    metrics = Metrics("test")
    return Gate(policy_of(SERVICE.replace("MODE", mode).replace(*change)), observers=[metrics]), metrics


async def asked(at: Gate, *containers: Json, **spec: Any) -> Admission:
    given = {"metadata": {"name": "p"}, "spec": {**spec, "containers": list(containers or ({"name": "c"},))}}
    return await admit(at.interceptor, Ask(given, "shop", "u", ALICE))


def counted(metrics: Metrics, family: str) -> dict[str, int]:
    """Return by concern how many Pods of service `web` a family counts."""
    found = {}
    for line in metrics.render().decode().splitlines():
        if line.startswith(f"podgate_{family}_total{{"):
            labels, _, value = line.rpartition(" ")
            assert 'service="web"' in labels
            found[labels.split('concern="')[1].split('"')[0]] = int(float(value))
    return found


@pytest.mark.parametrize("mode", ["Warn", "Audit"])
async def test_a_pod_that_enforce_would_write_into_and_admit_is_no_would_deny(mode: str) -> None:
    at, metrics = gate(mode)
    decision = (await asked(at)).validated
    assert decision.findings == ()
    assert decision.would_write == (
        WouldWrite("placement", Mode(mode), PLACED),
        WouldWrite("resources", Mode(mode), ("resources of container c",)),
    )
    assert decision.audit["would-rewrite"] == f"placement/{mode},resources/{mode}"
    assert counted(metrics, "would_deny") == {}
    assert counted(metrics, "would_rewrite") == {"placement": 1, "resources": 1}


async def test_warn_says_in_one_note_what_would_be_written() -> None:
    at, _ = gate("Warn")
    note = f"WouldRewrite: service web: Enforce would write {', '.join(PLACED)}, resources of container c"
    assert (await asked(at)).validated.warnings == (note,)


async def test_audit_says_nothing_to_the_user() -> None:
    at, _ = gate("Audit")
    assert (await asked(at)).validated.warnings == ()


async def test_what_has_been_written_already_needs_no_note() -> None:
    at, metrics = gate("Warn")
    enforced = (await asked(gate("Enforce")[0])).pod["spec"]
    decision = (await asked(at, *enforced.pop("containers"), **enforced)).validated
    assert (decision.warnings, decision.would_write, counted(metrics, "would_rewrite")) == ((), (), {})


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
        # Four defaults of 1Gi each are more than a Pod may take: the Pod itself asks for nothing.
        ({"containers": [{"name": f"c{number}"} for number in range(4)]}, Code.RESOURCES_OUTSIDE, "resources"),
    ],
)
@pytest.mark.parametrize("mode", ["Warn", "Audit"])
async def test_would_deny_counts_what_enforce_denies(spec: Json, code: Code, concern: str, mode: str) -> None:
    containers = spec.get("containers", [{"name": "c"}])
    others = {key: value for key, value in spec.items() if key != "containers"}
    refused = (await asked(gate("Enforce")[0], *containers, **others)).validated
    assert [finding.code for finding in refused.denials] == [code]
    at, metrics = gate(mode)
    decision = (await asked(at, *containers, **others)).validated
    assert [(finding.code, finding.mode) for finding in decision.findings] == [(code, Mode(mode))]
    assert counted(metrics, "would_deny") == {concern: 1}
    # The other concern would be written all the same.
    assert counted(metrics, "would_rewrite") == {({"placement", "resources"} - {concern}).pop(): 1}


async def test_what_clamp_brings_inside_is_no_denial() -> None:
    at, metrics = gate("Warn")
    decision = (await asked(at, {"name": "c", "resources": {"limits": {"cpu": "16", "memory": "1Gi"}}})).validated
    assert decision.findings == ()
    assert counted(metrics, "would_rewrite") == {"placement": 1, "resources": 1}


async def test_one_concern_enforced_and_the_other_tried() -> None:
    at, metrics = gate("Enforce", ("resources: Enforce", "resources: Warn"))
    admission = await asked(at)
    assert admission.pod["spec"]["schedulerName"] == "podgate-scheduler"
    assert "resources" not in admission.pod["spec"]["containers"][0]
    assert admission.validated.warnings == ("WouldRewrite: service web: Enforce would write resources of container c",)
    assert (counted(metrics, "would_deny"), counted(metrics, "would_rewrite")) == ({}, {"resources": 1})


async def test_what_is_enforced_is_judged_as_it_is() -> None:
    """The overhead of another class than ours counts, although the trial of the placement would replace it."""
    at, _ = gate("Warn", ("resources: Warn", "resources: Enforce"))
    spec = {"runtimeClassName": "kata", "overhead": {"memory": "4Gi"}}
    decision = (await asked(at, **spec)).validated
    assert [finding.code for finding in decision.denials] == [Code.RESOURCES_OUTSIDE]


async def test_a_denied_pod_is_reported_of_its_denial_only() -> None:
    metrics = Metrics("test")
    denying = policy_of(SERVICE.replace("MODE", "Warn") + "\n  quota: {windows: [{window: 1m, hard: {cpu: 1}}]}")
    at = Gate(denying, observers=[metrics])
    decision = (await asked(at, {"name": "c", "resources": {"requests": {"cpu": "2"}}})).validated
    assert not decision.allowed
    assert (decision.would_write, counted(metrics, "would_rewrite")) == ((), {})


async def test_a_contradiction_is_never_a_would_deny() -> None:
    """Enforce admits it, too, with a warning."""
    zone_a = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [zone_a]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    for mode in ("Enforce", "Warn", "Audit"):
        at, metrics = gate(mode)
        decision = (await asked(at, affinity=affinity)).validated
        assert [finding.code for finding in decision.findings] == [Code.PLACEMENT_CONTRADICTION]
        assert counted(metrics, "would_deny") == {}


@pytest.mark.parametrize(("failure_mode", "denied"), [("Open", {}), ("Closed", {"placement": 1})])
async def test_a_pod_that_was_never_rewritten_is_denied_where_the_service_is_closed(
    failure_mode: str, denied: dict[str, int]
) -> None:
    at, metrics = gate("Warn", ("name: web", f"name: web\n  failureMode: {failure_mode}"))
    bare = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}}
    decision = await at.validate(object=bare)
    assert [finding.code for finding in decision.findings] == [Code.MUTATION_MISSING]
    assert (decision.would_write, counted(metrics, "would_deny")) == ((), denied)


@pytest.mark.parametrize(("mode", "says"), [("Warn", True), ("Audit", False), ("Enforce", False)])
async def test_the_author_of_a_workload_is_reported_the_same(mode: str, says: bool) -> None:  # noqa: FBT001  a parameter
    at, metrics = gate(mode)
    request = envelope(
        resource={"group": "apps", "version": "v1", "resource": "deployments"},
        object={"metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": [{"name": "c"}]}}}},
    )
    decision = (await at.interceptor.review(Half.VALIDATE, msgspec.json.encode(request))).decision
    fields = f"{', '.join(PLACED)}, resources of container c"
    note = f"WouldRewrite: in Pods of deployment.apps/web: service web: Enforce would write {fields}"
    assert decision.warnings == ((note,) if says else ())
    assert counted(metrics, "would_rewrite") == {}  # its Pods will be counted


async def test_many_containers_make_no_long_note() -> None:
    at, _ = gate("Warn", ("pod: {max: {memory: 3Gi}}", "pod: {}"))
    decision = (await asked(at, *({"name": f"c{number}"} for number in range(500)))).validated
    (note,) = decision.warnings
    assert note.endswith("resources of containers c0, c1, c2 and 497 more")


async def test_label_and_annotation_are_written_in_every_mode_but_disabled() -> None:
    for mode in ("Enforce", "Warn", "Audit", "Disabled"):
        off = ("resources: MODE", "resources: MODE, quota: MODE, breaker: MODE") if mode == "Disabled" else ("", "")
        at = Gate(policy_of(SERVICE.replace(*off).replace("MODE", mode)))
        admission = await asked(at)
        ours = {"podgate.io/service", "podgate.io/policy-hash"}
        metadata = admission.pod["metadata"]
        written = {*metadata.get("labels", {}), *metadata.get("annotations", {})}
        assert written == (set() if mode == "Disabled" else ours)
        if mode != "Enforce":
            assert admission.pod["spec"] == {"containers": [{"name": "c"}]}


def judged(raw: Json, service: Service, mode: Mode) -> tuple[set[str], bool]:
    """Return what denies a Pod under Enforce, would deny it else; and whether it is, or would be, written into."""
    acting = replace(service, modes=Modes(placement=mode, resources=mode))
    patch = patch_of(raw, acting)
    trial = enforced_pod(read(applied(raw, patch)), acting)
    findings = check(trial.pod, acting, hash_known=True)
    writes = any(one.path.startswith("/spec/") and one.op != "remove" for one in patch) or bool(trial.writes)
    return {f"{one.code} {one.message}" for one in findings if not one.is_advice and one.mode is mode}, writes


@examples(150)
@given(pairs)
def test_a_trial_of_a_placement_comes_to_what_enforce_does(pair: Pair) -> None:
    assert judged(pair.pod, pair.service, Mode.WARN) == judged(pair.pod, pair.service, Mode.ENFORCE)


@examples(150)
@given(resource_rules(), pod_resources())
def test_a_trial_of_resources_comes_to_what_enforce_does(rules: Json, spec: Json) -> None:
    ranges = convert(rules, ResourceRules, dec_hook=lambda _, value: Quantity.parse(str(value)))
    service = Service("s", Match(any_namespace=True), resources=ranges)
    raw = {"metadata": {"name": "p"}, "spec": spec}
    assert judged(raw, service, Mode.AUDIT) == judged(raw, service, Mode.ENFORCE)


@examples(120)
@given(pairs)
def test_a_patch_is_carried_out_as_any_library_does(pair: Pair) -> None:
    patch = patch_of(pair.pod, pair.service)
    assert patched(read(pair.pod), patch) == read(applied(pair.pod, patch))
    assert patch_of(pair.pod, pair.service) == patch  # and the policy's plan is as it was


async def test_a_controllers_pod_is_counted_like_any_other() -> None:
    at, metrics = gate("Audit")
    given = {"metadata": {"generateName": "web-"}, "spec": {"containers": [{"name": "c"}]}}
    await admit(at.interceptor, Ask(given, "shop", "u", REPLICA_SETS))
    assert counted(metrics, "would_rewrite") == {"placement": 1, "resources": 1}
