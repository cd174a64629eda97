"""Workload objects: warnings about what the policy will reject in their Pods, and nothing else."""

from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given

from tests.core.admission.workloads import request, template
from tests.core.reviewing import ALICE, NOW_US, REPLICA_SETS, Gate, pod, policy_of
from tests.core.strategies import HASH, PROPERTY, Json, Pair, pairs
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedPolicy
from webhook.core.admission import workloads
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.policy_fields import Mode
from webhook.interceptor import UnknownNamespaceError
from webhook.ports import Review

LABEL, ANNOTATION = "podgate.io/service", "podgate.io/policy-hash"
POLICY = """
- name: web
  failureMode: Closed
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement:
    schedulerName: podgate-scheduler
    nodeSelector: {disk: ssd}
    topology: [{level: Zone, in: [b, g]}]
  quota: {windows: [{window: 1m, hard: {pods: 1}}]}
  breaker: {quotaExceeded: {count: 1, within: 1m, countBy: Request}, openFor: 60s, halfOpen: {probes: 1}}
"""
WEB = policy_of(POLICY)
WARNING = policy_of(f"{POLICY}\n  modes: {{placement: Warn, quota: Warn}}")

DENIED = (
    "PlacementConflict: Pods of deployment.apps/web will be denied: service web: spec.schedulerName is 'theirs',"
    " the policy sets 'podgate-scheduler'; remove the field from the Pod or set it to 'podgate-scheduler'"
)
WARNED = DENIED.replace("Pods of deployment.apps/web will be denied", "in Pods of deployment.apps/web")
THEIRS = {"schedulerName": "theirs"}
KINDS = [
    ("apps", "deployments"),
    ("apps", "replicasets"),
    ("apps", "statefulsets"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
    ("", "replicationcontrollers"),
]


async def review_workload(loaded: LoadedPolicy, pod_template: Json, *kind: str, **more: Any) -> Decision:
    """Review a workload: it is admitted and not charged."""
    gate = Gate(loaded)
    decision = await gate.validate(**request(pod_template, *kind, **more))
    assert decision.allowed
    assert gate.store.requests == []
    return decision


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(("group", "resource"), KINDS)
async def test_workload_of_each_kind_is_admitted_with_a_warning(group: str, resource: str, operation: str) -> None:
    decision = await review_workload(WEB, template(**THEIRS), group, resource, operation=operation)
    workload = f"{resource[:-1]}.{group}/web" if group else f"{resource[:-1]}/web"
    assert decision.warnings == (DENIED.replace("deployment.apps/web", workload),)
    assert (decision.workload, decision.verdict, decision.service) == (workload, Verdict.ADMIT, "web")
    assert (decision.call.operation, decision.call.user) == (operation, ALICE)
    assert (decision.pod, decision.pod_uid) == ("", ""), "a workload's Pods do not exist yet"


async def test_response_allows_and_warns() -> None:
    body = (await Gate(WEB).ask(Half.VALIDATE, **request(template(**THEIRS)))).body
    assert msgspec.json.decode(body)["response"] == {
        "uid": "review-1",
        "allowed": True,
        "warnings": [DENIED],
        "auditAnnotations": {
            "decision": "Admit",
            "policy-hash": WEB.hash,
            "client-id": "",
            "service": "web",
            "findings": "PlacementConflict/Warn",
        },
    }


@pytest.mark.parametrize(("loaded", "codes"), [(WEB, []), (WARNING, ["WouldRewrite"])])
async def test_template_needs_no_fields_that_the_rewrite_adds(loaded: LoadedPolicy, codes: list[str]) -> None:
    decision = await review_workload(loaded, template())
    assert ([warning.partition(":")[0] for warning in decision.warnings], decision.findings) == (codes, ())
    assert decision.steps[-1].found == "nothing in the template contradicts the policy"


@pytest.mark.parametrize(
    ("mode", "warnings"), [("Enforce", (DENIED,)), ("Warn", (WARNED,)), ("Audit", ()), ("Disabled", ())]
)
async def test_warning_depends_on_the_mode_and_audit_has_none(mode: str, warnings: tuple[str, ...]) -> None:
    decision = await review_workload(policy_of(f"{POLICY}\n  modes: {{placement: {mode}}}"), template(**THEIRS))
    assert decision.warnings == warnings
    assert {found.mode for found in decision.findings} <= {Mode.WARN}


@pytest.mark.parametrize("loaded", [WEB, WARNING])
async def test_template_whose_pods_fit_no_node_is_a_contradiction(loaded: LoadedPolicy) -> None:
    """Template and policy are satisfiable each; the terms of the rewritten Pod are not."""
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["elsewhere"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    decision = await review_workload(loaded, template(affinity=affinity))
    assert [found.code for found in decision.findings] == [Code.PLACEMENT_CONTRADICTION]
    warning, *_ = decision.warnings
    assert warning.startswith(
        "PlacementContradiction: in Pods of deployment.apps/web: service web: no node can match: "
    )


def build_range_policy(when_outside: str) -> LoadedPolicy:
    return policy_of(f"""
- name: web
  match: {{namespaces: [shop]}}
  resources:
    container: {{default: {{cpu: 500m}}, max: {{cpu: "1"}}}}
    pod: {{max: {{cpu: "1"}}}}
    whenOutside: {when_outside}
""")


def containers(*cpu: str | None) -> list[Json]:
    limits = ({} if amount is None else {"resources": {"limits": {"cpu": amount}}} for amount in cpu)
    return [{"name": f"c{place}", **limit} for place, limit in enumerate(limits)]


@pytest.mark.parametrize(
    ("when_outside", "cpu", "outside"),
    [
        ("Deny", ("3", None), ["container c0", "the Pod as a whole"]),
        ("Deny", (None, None), []),
        ("Deny", (None, None, None), ["the Pod as a whole"]),
        ("Clamp", ("3",), []),
        ("Clamp", ("3", None), ["the Pod as a whole"]),
    ],
)
async def test_amounts_are_checked_after_defaults_and_clamping(
    when_outside: str, cpu: tuple[str | None, ...], outside: list[str]
) -> None:
    decision = await review_workload(build_range_policy(when_outside), template(containers=containers(*cpu)))
    start = "ResourcesOutside: Pods of deployment.apps/web will be denied: service web: "
    denials = [warning for warning in decision.warnings if not warning.startswith("Rewritten: ")]
    assert [warning.removeprefix(start).partition(":")[0] for warning in denials] == outside


async def test_unreadable_amount_is_a_bad_review() -> None:
    with pytest.raises(BadReviewError, match=r"request\.object: the template's resources: .*'lots'"):
        await Gate(build_range_policy("Deny")).validate(**request(template(containers=containers("lots"))))


@pytest.mark.parametrize(
    ("unmatched", "warnings"),
    [
        ("Admit", ()),
        ("Warn", ("Unmatched: in Pods of deployment.apps/web: ",)),
        ("Deny", ("Unmatched: Pods of deployment.apps/web will be denied: ",)),
    ],
)
async def test_unmatched_decides_the_warning_about_an_unowned_template(
    unmatched: str, warnings: tuple[str, ...]
) -> None:
    decision = await review_workload(policy_of(POLICY, f"unmatched: {unmatched}"), template({"app": "nobody"}))
    assert (decision.verdict, decision.service) == (Verdict.UNMATCHED, None)
    assert len(decision.warnings) == len(warnings)
    for warning, start in zip(decision.warnings, warnings, strict=True):
        assert warning.startswith(f"{start}no service of the policy matches the labels of this Pod in namespace shop")


@pytest.mark.parametrize(
    ("labels", "text"),
    [
        ({"app": "web", LABEL: "other"}, f"service web: metadata.labels[{LABEL}] is 'other': leave the label out"),
        ({"app": "theirs", LABEL: "web"}, f"metadata.labels[{LABEL}] is 'web', and service web does not match"),
    ],
)
async def test_forged_label_is_a_warning_without_a_denial(labels: Json, text: str) -> None:
    """The mutating half overwrites or removes the label of the Pod, which is then admitted."""
    decision = await review_workload(WEB, template(labels))
    [warning] = decision.warnings
    assert warning.startswith(f"PodgateFieldImmutable: in Pods of deployment.apps/web: {text}")


@pytest.mark.parametrize("labels", [{"app": "web", LABEL: "web"}, {"app": "theirs", LABEL: "of-another-system"}])
async def test_correct_label_and_label_of_unknown_service_have_no_warning(labels: Json) -> None:
    assert (await review_workload(WEB, template(labels))).warnings == ()


async def test_audit_mode_has_no_warning_about_a_forged_label() -> None:
    audited = policy_of(f"{POLICY}\n  modes: {{placement: Audit, quota: Audit, breaker: Audit}}")
    assert (await review_workload(audited, template({"app": "web", LABEL: "other"}))).warnings == ()


@pytest.mark.parametrize("known", [True, False])
async def test_template_copied_from_a_pod_is_checked_by_the_current_policy(*, known: bool) -> None:
    """It has Podgate's label, and the hash of a former policy that is still known or no longer."""
    former = policy_of(POLICY.replace("podgate-scheduler", "theirs"))
    policies = FixedPolicy(former, VirtualClock(NOW_US))
    policies.set(WEB)
    copied = template({"app": "web", LABEL: "web"}, {ANNOTATION: former.hash if known else "f" * 16}, **THEIRS)
    decision = await Gate(WEB, policies).validate(**request(copied))
    assert (decision.warnings, decision.policy_hash) == ((DENIED,), WEB.hash)


async def test_dry_run_has_the_same_warnings() -> None:
    decision = await review_workload(WEB, template(**THEIRS), dryRun=True)
    assert (decision.call.dry_run, decision.warnings) == (True, (DENIED,))


async def test_open_breaker_and_exhausted_quota_have_no_warning() -> None:
    gate = Gate(WEB)
    placed = {"schedulerName": "podgate-scheduler", "nodeSelector": {"disk": "ssd"}}
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    placed["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    codes = [(await gate.validate(object=gate.build_owned_pod(f"u{n}", **placed))).status.code for n in range(3)]
    assert codes == [200, 429, 503], "quota, then breaker"
    calls_before = len(gate.store.requests)
    decision = await gate.validate(**request(template()))
    assert (decision.allowed, decision.warnings, len(gate.store.requests)) == (True, (), calls_before)


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(("group", "resource"), KINDS)
async def test_mutating_half_does_not_patch_templates(group: str, resource: str, operation: str) -> None:
    decision = await Gate(WEB).mutate(**request(template(**THEIRS), group, resource, operation=operation))
    assert (decision.verdict, decision.patch, decision.warnings) == (Verdict.UNMATCHED, (), ())


EXEMPT: list[tuple[str, Json, tuple[str, ...], str]] = [
    ("usernames: [alice]", {}, ("apps", "deployments"), ""),
    (f"usernames: ['{REPLICA_SETS}']", {}, ("apps", "deployments"), "username"),
    (f"usernames: ['{REPLICA_SETS}']", {}, ("apps", "statefulsets"), ""),
    ("runtimeClasses: [spared]", {"runtimeClassName": "spared"}, ("apps", "deployments"), "runtimeClass"),
    ("namespaces: [shop]", {}, ("apps", "deployments"), "namespace"),
    ("namespaces: []", {}, ("apps", "daemonsets"), "daemonSet"),
    ("daemonSets: false", {}, ("apps", "daemonsets"), ""),
]


@pytest.mark.parametrize(("exemptions", "spec", "kind", "exempt_by"), EXEMPT)
async def test_workload_is_exempt_if_its_pods_will_be(
    exemptions: str, spec: Json, kind: tuple[str, ...], exempt_by: str
) -> None:
    """A controller creates the Pods: an exemption of the workload's author does not apply to them."""
    loaded = policy_of(POLICY.replace("[shop]", "[shop, elsewhere]"), f"exemptions: {{{exemptions}}}")
    decision = await review_workload(loaded, template(**THEIRS, **spec), *kind)
    assert decision.deviation.exemption == exempt_by
    assert decision.verdict is (Verdict.EXEMPT if exempt_by else Verdict.ADMIT)
    assert decision.warnings == (() if exempt_by else (DENIED.replace("deployment", kind[1].removesuffix("s")),))


@pytest.mark.parametrize(
    ("exemptions", "omitted"),
    [
        ("", {"daemonsets"}),
        ("daemonSets: false", set()),
        (f"usernames: ['{REPLICA_SETS}']", {"daemonsets", "deployments", "replicasets"}),
    ],
)
def test_reviewed_kinds_omit_kinds_with_exempt_pods(exemptions: str, omitted: set[str]) -> None:
    loaded = policy_of(POLICY, f"exemptions: {{{exemptions}}}")
    everything = {"daemonsets", *(resource for _, resource in KINDS)}
    assert {source.resource for source in workloads.list_reviewed_kinds(loaded.policy)} == everything - omitted


@pytest.mark.parametrize(
    "more",
    [
        {"operation": "DELETE", "object": None},
        {"subResource": "scale", "object": {"kind": "Scale", "spec": {"replicas": 3}}},
        {"subResource": "status"},
        {"object": {"metadata": {"name": "web"}, "spec": {}}},
        {"object": None},
    ],
)
async def test_other_operations_and_subresources_of_workloads_are_unmatched(more: Json) -> None:
    decision = await Gate(WEB).validate(**(request(template(**THEIRS)) | more))
    assert (decision.verdict, decision.warnings, decision.workload) == (Verdict.UNMATCHED, (), "")


@pytest.mark.parametrize(
    ("pod_template", "text"),
    [
        ({"metadata": {"labels": ["x"]}}, "got `array` - at `$.spec.template.metadata.labels`"),
        ({"spec": {"nodeSelector": 7}}, "`$.spec.template.spec.nodeSelector`"),
        (7, "`$.spec.template`"),
    ],
)
async def test_template_of_a_wrong_type_is_a_bad_review_with_its_field(pod_template: Any, text: str) -> None:
    with pytest.raises(BadReviewError) as error:
        await Gate(WEB).validate(**request(pod_template))
    assert str(error.value).startswith("AdmissionReview.request.object: ")
    assert text in str(error.value)


@pytest.mark.parametrize("name", [{"name": "web"}, {"generateName": "web-"}])
async def test_workload_is_shown_by_its_name_or_generate_name(name: Json) -> None:
    workload = {"metadata": name, "spec": {"template": template()}}
    decision = await review_workload(WEB, {}, object=workload)
    assert decision.workload == ("deployment.apps/web" if "name" in name else "deployment.apps/web-*")


async def test_observers_receive_the_review_with_its_stages() -> None:
    reviews: list[Review] = []

    class ReviewRecorder:
        def on_reviewed(self, review: Review) -> None:
            reviews.append(review)

    gate = Gate(WEB, observers=[ReviewRecorder()])  # type: ignore[list-item]  this test has reviews only
    await gate.validate(**request(template(**THEIRS)))
    [review] = reviews
    assert review.stages == ("decode", "policy", "exempt", "own", "check", "answer")
    assert review.decision.findings[0].code is Code.PLACEMENT_CONFLICT


def build_selecting_policy(key: str, *values: str, unmatched: str = "Deny") -> LoadedPolicy:
    """Build a policy whose only service selects Pods by a label, and sets another scheduler than `THEIRS`."""
    expressions = f"[{{key: {key}, operator: In, values: [{', '.join(map(repr, values))}]}}]"
    services = f"""
- name: asks
  match: {{namespaces: [shop], podSelector: {{matchExpressions: {expressions}}}}}
  placement: {{schedulerName: podgate-scheduler}}
"""
    return policy_of(services, f"unmatched: {unmatched}\nexemptions: {{daemonSets: false}}")


JOB_NAME, JOB_UID = "batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"
INDEX, ORDINAL = "batch.kubernetes.io/job-completion-index", "apps.kubernetes.io/pod-index"
POD_NAME, REVISION, GENERATION = (
    "statefulset.kubernetes.io/pod-name",
    "controller-revision-hash",
    "pod-template-generation",
)
INDEXED, THREE = {"completionMode": "Indexed", "completions": 3}, {"replicas": 3}
UID = "0a1b2c3d-0000-4000-8000-00000000000f"
OWNED, UNOWNED, DEPENDS = "asks", None, "depends"
ADDED: list[tuple[str, str, Json, list[str], str | None]] = [
    ("jobs", "job-name", {}, ["web"], OWNED),
    ("jobs", JOB_NAME, {}, ["web"], OWNED),
    ("jobs", JOB_NAME, {}, ["other"], UNOWNED),
    ("jobs", JOB_NAME, {"manualSelector": True}, ["web"], UNOWNED),
    ("jobs", "controller-uid", {}, [UID], DEPENDS),
    ("jobs", JOB_UID, {}, ["no-uid"], UNOWNED),
    ("jobs", JOB_UID, {"manualSelector": True}, [UID], UNOWNED),
    ("jobs", INDEX, {}, ["0"], UNOWNED),
    ("jobs", INDEX, {"completionMode": "Indexed", "completions": 1}, ["0"], OWNED),
    ("jobs", INDEX, INDEXED, ["0"], DEPENDS),
    ("jobs", INDEX, INDEXED, ["0", "1", "2"], OWNED),
    ("jobs", INDEX, INDEXED, ["3", "01"], UNOWNED),
    ("cronjobs", "job-name", {}, ["web"], UNOWNED),
    ("cronjobs", "job-name", {}, ["web-29012345"], DEPENDS),
    ("cronjobs", "job-name", {}, ["other-29012345"], UNOWNED),
    ("deployments", "pod-template-hash", {}, ["7d4b6c9f5d"], DEPENDS),
    ("deployments", "pod-template-hash", {}, ["abc"], UNOWNED),
    ("replicasets", "pod-template-hash", {}, ["7d4b6c9f5d"], UNOWNED),
    ("replicationcontrollers", "pod-template-hash", {}, ["7d4b6c9f5d"], UNOWNED),
    ("statefulsets", ORDINAL, {}, ["0"], OWNED),
    ("statefulsets", ORDINAL, {}, ["1"], UNOWNED),
    ("statefulsets", ORDINAL, THREE, ["0"], DEPENDS),
    ("statefulsets", ORDINAL, {**THREE, "ordinals": {"start": 4}}, ["4", "5", "6"], OWNED),
    ("statefulsets", POD_NAME, {}, ["web-0"], OWNED),
    ("statefulsets", POD_NAME, THREE, ["web-2"], DEPENDS),
    ("statefulsets", POD_NAME, THREE, ["web-3", "other-0"], UNOWNED),
    ("statefulsets", REVISION, {}, ["web-7d4b6c9f5d"], DEPENDS),
    ("statefulsets", REVISION, {}, ["7d4b6c9f5d"], UNOWNED),
    ("daemonsets", REVISION, {}, ["7d4b6c9f5d"], DEPENDS),
    ("daemonsets", GENERATION, {}, ["1"], DEPENDS),
]


@pytest.mark.parametrize(("resource", "key", "spec", "values", "expected"), ADDED)
async def test_labels_that_a_controller_adds_select_the_owner(
    resource: str, key: str, spec: Json, values: list[str], expected: str | None
) -> None:
    group = {"replicationcontrollers": "", "jobs": "batch", "cronjobs": "batch"}.get(resource, "apps")
    fields = request(template(), group, resource)
    inner = fields["object"]["spec"].get("jobTemplate", fields["object"])["spec"]
    inner |= spec
    decision = await Gate(build_selecting_policy(key, *values)).validate(**fields)
    found = DEPENDS if decision.verdict is Verdict.DEPENDS else decision.service
    assert found == expected
    denials = [warning for warning in decision.warnings if "will be denied:" in warning]
    assert len(denials) == (1 if expected is UNOWNED else 0), "a warning claims a denial only if it is certain"


OF_KINDS = """
- name: asks
  match: {{namespaces: [shop], ownerKinds: [{}]}}
  placement: {{schedulerName: podgate-scheduler}}
"""


@pytest.mark.parametrize(
    ("resource", "kind"),
    [
        ("deployments", "Deployment"),
        ("replicasets", "ReplicaSet"),
        ("statefulsets", "StatefulSet"),
        ("jobs", "Job"),
        ("cronjobs", "Job"),
        ("replicationcontrollers", "ReplicationController"),
    ],
)
async def test_template_is_matched_by_the_kind_that_its_pods_will_have(resource: str, kind: str) -> None:
    group = {"replicationcontrollers": "", "jobs": "batch", "cronjobs": "batch"}.get(resource, "apps")
    others = {"Deployment", "ReplicaSet", "StatefulSet", "Job", "ReplicationController"} - {kind}
    asked = request(template(schedulerName="theirs"), group, resource)
    for kinds, service in ((kind, "asks"), (", ".join(sorted(others)), None)):
        decision = await Gate(policy_of(OF_KINDS.format(kinds))).validate(**asked)
        assert decision.service == service
        assert bool(decision.warnings) == (service is not None)


async def test_pod_of_an_owner_kind_is_one_of_the_controller_and_no_forged_one() -> None:
    gate = Gate(policy_of(OF_KINDS.format("Job")))
    job = {"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": True}
    claimed = pod({"app": "web"})
    claimed["metadata"]["ownerReferences"] = [job]
    users = {"system:serviceaccount:kube-system:job-controller": "asks", "alice": None}
    for user, service in users.items():
        decision = await gate.mutate(object=claimed, userInfo={"username": user})
        assert (decision.service, bool(decision.patch)) == (service, service is not None)


@pytest.mark.parametrize(
    ("operator", "expected"), [("Exists", OWNED), ("DoesNotExist", UNOWNED), ("NotIn", DEPENDS), ("In", DEPENDS)]
)
async def test_operator_decides_whether_the_owner_depends_on_an_unknown_value(
    operator: str, expected: str | None
) -> None:
    values = ", values: [7d4b6c9f5d]" if operator.endswith("In") else ""
    expression = f"{{key: pod-template-hash, operator: {operator}{values}}}"
    loaded = policy_of(
        f"- {{name: asks, match: {{namespaces: [shop], podSelector: {{matchExpressions: [{expression}]}}}}}}"
    )
    decision = await review_workload(loaded, template({"app": "web", "pod-template-hash": "theirs"}))
    assert (DEPENDS if decision.verdict is Verdict.DEPENDS else decision.service) == expected


CANARY = """
- name: canary
  match: {namespaces: [shop], podSelector: {matchLabels: {pod-template-hash: 7d4b6c9f5d, app: web}}}
  placement: {schedulerName: canary-scheduler}
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement: {schedulerName: podgate-scheduler}
"""


async def test_possible_owner_precedes_the_certain_owner() -> None:
    decision = await review_workload(policy_of(CANARY), template(**THEIRS))
    assert decision.verdict is Verdict.DEPENDS
    assert [(dependency.service, dependency.labels) for dependency in decision.depends_on] == [
        ("canary", ("pod-template-hash",)),
        ("web", ()),
    ]
    assert decision.service is None
    start = "PlacementConflict: Pods of deployment.apps/web will be denied if service {} owns them,"
    start += " which depends on label pod-template-hash: service {}: spec.schedulerName is 'theirs'"
    assert [
        warning.startswith(start.format(name, name))
        for name, warning in zip(("canary", "web"), decision.warnings, strict=True)
    ] == [True, True]
    assert decision.steps[-1].found == "service canary, depending on label pod-template-hash; else service web"


async def test_unmatched_warning_names_the_label_that_the_owner_depends_on() -> None:
    decision = await review_workload(build_selecting_policy("pod-template-hash", "7d4b6c9f5d"), template())
    [warning] = decision.warnings
    assert warning.startswith(
        "Unmatched: Pods of deployment.apps/web will be denied if no service owns them,"
        " which depends on label pod-template-hash: no service of the policy matches"
    )


async def test_no_warning_if_no_possible_owner_has_a_finding() -> None:
    """Two possible owners alone are no reason for a warning at each apply."""
    decision = await review_workload(policy_of(CANARY), template())
    assert (decision.verdict, decision.warnings) == (Verdict.DEPENDS, ())


async def test_service_with_an_impossible_label_value_is_no_possible_owner() -> None:
    decision = await review_workload(policy_of(CANARY.replace("7d4b6c9f5d", "never")), template(**THEIRS))
    assert (decision.verdict, decision.service) == (Verdict.ADMIT, "web")


@pytest.mark.parametrize(("dry_run", "verdict"), [(False, Verdict.ADMIT), (True, Verdict.DEPENDS)])
async def test_uid_and_generated_name_of_a_dry_run_do_not_decide_the_owner(*, dry_run: bool, verdict: Verdict) -> None:
    """The API server sets UID and generated name before validation; a dry run does not store them."""
    labels = {"job-name": "web-x7k2p", JOB_NAME: "web-x7k2p", "controller-uid": UID, JOB_UID: UID}
    metadata = {"generateName": "web-", "name": "web-x7k2p", "uid": UID}
    workload = {"metadata": metadata, "spec": {"template": template(labels)}}
    for key, value in (("job-name", "web-x7k2p"), (JOB_UID, UID)):
        fields = request({}, "batch", "jobs", object=workload, dryRun=dry_run)
        decision = await Gate(build_selecting_policy(key, value)).validate(**fields)
        assert decision.verdict is verdict


@pytest.mark.parametrize(("value", "looked_up"), [("7d4b6c9f5d", True), ("never", False)])
async def test_namespace_is_looked_up_if_the_owner_may_depend_on_its_labels(value: str, *, looked_up: bool) -> None:
    gate = Gate(
        policy_of(f"""
- name: canary
  match:
    namespaceSelector: {{matchLabels: {{tier: prod}}}}
    podSelector: {{matchLabels: {{pod-template-hash: {value}}}}}
""")
    )
    fields = request(template(), namespace="nobody-knows-it")
    if looked_up:
        with pytest.raises(UnknownNamespaceError):
            await gate.validate(**fields)
    else:
        assert (await gate.validate(**fields)).verdict is Verdict.UNMATCHED


async def test_node_affinity_terms_of_a_daemon_set_are_ignored() -> None:
    """The controller replaces them in each Pod by the name of its node."""
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["elsewhere"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
        }
    }
    loaded = policy_of(POLICY, "exemptions: {daemonSets: false}")
    decision = await review_workload(loaded, template(affinity=affinity), "apps", "daemonsets")
    assert (decision.service, decision.warnings) == ("web", ())


@PROPERTY
@given(pairs)
async def test_findings_on_a_workload_equal_those_on_its_pods(pair: Pair) -> None:
    service = pair.policy.service
    gate = Gate(LoadedPolicy(Policy("podgate.io/v1alpha1", "Policy", (service,)), HASH))
    metadata = {key: pair.pod["metadata"].get(key) for key in ("labels", "annotations")}
    fields = {"namespace": "shop", "userInfo": {"username": REPLICA_SETS}}
    drawn = {**pair.pod, "metadata": {**metadata, "namespace": "shop", "generateName": "web-"}}
    raw: Json = msgspec.json.decode(msgspec.json.encode(drawn))  # parts of the example may be the same object
    patch = (await gate.mutate(object=raw, **fields)).patch
    raw = jsonpatch.apply_patch(raw, msgspec.to_builtins(patch))
    raw["metadata"]["uid"] = "u1"
    on_pod = await gate.validate(object=raw, **fields)
    on_workload = await gate.validate(**request({"metadata": metadata, "spec": pair.pod["spec"]}))
    assert on_workload.allowed
    subject = "Pods of deployment.apps/web"
    starts = {Mode.ENFORCE: f"{subject} will be denied", Mode.WARN: f"in {subject}"}
    expected = [(found.code, f"{starts[found.mode]}: {found.message}") for found in on_pod.findings]
    assert [
        (found.code, found.message) for found in on_workload.findings if found.code is not Code.IMMUTABLE
    ] == expected


@pytest.mark.parametrize("kind", [*KINDS, ("apps", "daemonsets")])
@pytest.mark.parametrize(
    ("spec", "what"),
    [
        (
            {"containers": [{"name": f"c{n}", "image": "registry.example/image"} for n in range(2001)]},
            "2001 containers,",
        ),
        (
            {"initContainers": [{"name": f"c{n}", "image": "registry.example/image"} for n in range(2000)]},
            "2001 containers,",
        ),
        ({"tolerations": [{"operator": "Exists"}] * 20_002}, "more than 20000 entries in labels,"),
    ],
    ids=["containers", "init containers", "entries"],
)
async def test_a_template_that_is_too_large_is_a_warning_and_not_evaluated(
    kind: tuple[str, str], spec: Json, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr("webhook.core.admission.mutation.rewrite")
    loaded = policy_of(POLICY, "exemptions: {daemonSets: false}")
    decision = await review_workload(loaded, template(**spec, **THEIRS), *kind)
    [warning] = decision.warnings
    assert warning.startswith(
        f"PodTooLarge: Pods of {decision.workload} will be denied: service web: the Pod has {what}"
    )
    assert decision.verdict is Verdict.ADMIT


async def test_a_template_with_too_many_labels_belongs_to_the_service_of_its_labels() -> None:
    many_labels = {f"label-{n}": "" for n in range(20_002)}
    decision = await review_workload(WEB, template({"app": "web", **many_labels}))
    assert [warning.partition(": service web:")[0] for warning in decision.warnings] == [
        "PodTooLarge: Pods of deployment.apps/web will be denied"
    ]
    assert (await review_workload(WEB, template({"app": "other", **many_labels}))).verdict is Verdict.UNMATCHED
    many = {"tolerations": [{"operator": "Exists"}] * 20_002}
    assert (await review_workload(WEB, template({"app": "other"}, **many))).verdict is Verdict.UNMATCHED


async def test_a_template_that_is_too_large_is_only_told_where_its_pods_are_told() -> None:
    many = {"tolerations": [{"operator": "Exists"}] * 20_002}
    warned = policy_of(POLICY.replace("failureMode: Closed", "modes: {placement: Warn, quota: Warn, breaker: Warn}"))
    [warning] = (await review_workload(warned, template(**many))).warnings
    assert warning.startswith("PodTooLarge: in Pods of deployment.apps/web: service web: the Pod has more than ")
    audited = policy_of(
        POLICY.replace("failureMode: Closed", "modes: {placement: Audit, quota: Audit, breaker: Audit}")
    )
    assert (await review_workload(audited, template(**many))).warnings == ()
