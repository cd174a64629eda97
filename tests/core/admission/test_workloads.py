"""Workload objects: warnings about what the policy will reject in their Pods, and nothing else."""

from typing import Any

import jsonpatch
import msgspec
import pytest
from hypothesis import given

from tests.core.reviewing import ALICE, NOW_US, REPLICA_SETS, Gate, pod, policy_of
from tests.core.strategies import HASH, PROPERTY, Json, Pair, pairs
from webhook.adapters.clocks import VirtualClock
from webhook.adapters.fixed import FixedPolicy
from webhook.core.admission import workloads
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.findings import Code
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.policy.model import LoadedPolicy, Policy
from webhook.core.policy_spec import Mode
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


def template(labels: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    """Build a template that says nothing of what the policy wants, but for what is given."""
    metadata = {"labels": labels or {"app": "web"}, "annotations": annotations or {}}
    return {"metadata": metadata, "spec": pod(**spec)["spec"]}


def request(made_from: Json, group: str = "apps", resource: str = "deployments", **more: Any) -> Json:
    """Build the request of an author: a CREATE of one object named `web`."""
    spec: Json = {"template": made_from}
    if resource == "cronjobs":
        spec = {"jobTemplate": {"spec": spec}}
    metadata = {"name": "web", "namespace": "shop", "uid": "of-the-object"}
    return {
        "resource": {"group": group, "version": "v1", "resource": resource},
        "object": {"metadata": metadata, "spec": spec},
        **more,
    }


async def advised(loaded: LoadedPolicy, made_from: Json, *kind: str, **more: Any) -> Decision:
    """Review a workload; whatever comes of it, it is admitted and costs nothing."""
    gate = Gate(loaded)
    decision = await gate.validate(**request(made_from, *kind, **more))
    assert decision.allowed
    assert gate.store.asked == []
    return decision


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(("group", "resource"), KINDS)
async def test_every_kind_is_admitted_and_its_author_warned(group: str, resource: str, operation: str) -> None:
    decision = await advised(WEB, template(**THEIRS), group, resource, operation=operation)
    shown = f"{resource[:-1]}.{group}/web" if group else f"{resource[:-1]}/web"
    assert decision.warnings == (DENIED.replace("deployment.apps/web", shown),)
    assert (decision.workload, decision.verdict, decision.service) == (shown, Verdict.ADMIT, "web")
    assert (decision.operation, decision.user) == (operation, ALICE)
    assert (decision.pod, decision.pod_uid) == ("", ""), "there is none yet"


async def test_the_answer_allows_and_warns() -> None:
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


@pytest.mark.parametrize(("loaded", "noted"), [(WEB, []), (WARNING, ["WouldRewrite"])])
async def test_what_the_rewrite_will_bring_is_not_asked_of_the_author(loaded: LoadedPolicy, noted: list[str]) -> None:
    decision = await advised(loaded, template())
    assert ([warning.partition(":")[0] for warning in decision.warnings], decision.findings) == (noted, ())
    assert decision.steps[-1].found == "nothing in the template contradicts the policy"


@pytest.mark.parametrize(
    ("mode", "warnings"), [("Enforce", (DENIED,)), ("Warn", (WARNED,)), ("Audit", ()), ("Disabled", ())]
)
async def test_the_words_follow_the_mode_and_audit_says_nothing(mode: str, warnings: tuple[str, ...]) -> None:
    decision = await advised(policy_of(f"{POLICY}\n  modes: {{placement: {mode}}}"), template(**THEIRS))
    assert decision.warnings == warnings
    assert {found.mode for found in decision.findings} <= {Mode.WARN}


@pytest.mark.parametrize("loaded", [WEB, WARNING])
async def test_a_template_whose_pods_would_fit_no_node_is_reported_so(loaded: LoadedPolicy) -> None:
    """Neither the template nor the policy is at odds with itself: only the rewritten Pod is."""
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["elsewhere"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    decision = await advised(loaded, template(affinity=affinity))
    assert [found.code for found in decision.findings] == [Code.PLACEMENT_CONTRADICTION]
    warning, *_ = decision.warnings
    assert warning.startswith(
        "PlacementContradiction: in Pods of deployment.apps/web: service web: no node can match: "
    )


def ranged(when_outside: str) -> LoadedPolicy:
    return policy_of(f"""
- name: web
  match: {{namespaces: [shop]}}
  resources:
    container: {{default: {{cpu: 500m}}, max: {{cpu: "1"}}}}
    pod: {{max: {{cpu: "1"}}}}
    whenOutside: {when_outside}
""")


def containers(*cpu: str | None) -> list[Json]:
    limits = ({} if one is None else {"resources": {"limits": {"cpu": one}}} for one in cpu)
    return [{"name": f"c{place}", **one} for place, one in enumerate(limits)]


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
async def test_amounts_are_judged_as_they_will_be_with_defaults_and_clamped(
    when_outside: str, cpu: tuple[str | None, ...], outside: list[str]
) -> None:
    decision = await advised(ranged(when_outside), template(containers=containers(*cpu)))
    start = "ResourcesOutside: Pods of deployment.apps/web will be denied: service web: "
    told = [warning for warning in decision.warnings if not warning.startswith("Rewritten: ")]
    assert [warning.removeprefix(start).partition(":")[0] for warning in told] == outside


async def test_an_unreadable_amount_is_the_callers_fault() -> None:
    with pytest.raises(BadReviewError, match=r"request\.object: the template's resources: .*'lots'"):
        await Gate(ranged("Deny")).validate(**request(template(containers=containers("lots"))))


@pytest.mark.parametrize(
    ("unmatched", "warnings"),
    [
        ("Admit", ()),
        ("Warn", ("Unmatched: in Pods of deployment.apps/web: ",)),
        ("Deny", ("Unmatched: Pods of deployment.apps/web will be denied: ",)),
    ],
)
async def test_a_template_of_no_service_is_reported_what_unmatched_says(
    unmatched: str, warnings: tuple[str, ...]
) -> None:
    decision = await advised(policy_of(POLICY, f"unmatched: {unmatched}"), template({"app": "nobody"}))
    assert (decision.verdict, decision.service) == (Verdict.UNMATCHED, None)
    assert len(decision.warnings) == len(warnings)
    for warning, start in zip(decision.warnings, warnings, strict=True):
        assert warning.startswith(f"{start}no service of the policy matches the labels of this Pod in namespace shop")


@pytest.mark.parametrize(
    ("labels", "says"),
    [
        ({"app": "web", LABEL: "other"}, f"service web: metadata.labels[{LABEL}] is 'other': leave the label out"),
        ({"app": "theirs", LABEL: "web"}, f"metadata.labels[{LABEL}] is 'web', and service web does not match"),
    ],
)
async def test_a_forged_label_is_reported_and_never_called_a_denial(labels: Json, says: str) -> None:
    """The mutating half writes it over, or takes it off: the Pod itself goes on."""
    decision = await advised(WEB, template(labels))
    [warning] = decision.warnings
    assert warning.startswith(f"PodgateFieldImmutable: in Pods of deployment.apps/web: {says}")


@pytest.mark.parametrize("labels", [{"app": "web", LABEL: "web"}, {"app": "theirs", LABEL: "of-another-system"}])
async def test_a_label_that_is_right_or_names_no_service_is_no_forgery(labels: Json) -> None:
    assert (await advised(WEB, template(labels))).warnings == ()


async def test_a_forged_label_is_as_little_reported_as_its_service_wants() -> None:
    audited = policy_of(f"{POLICY}\n  modes: {{placement: Audit, quota: Audit, breaker: Audit}}")
    assert (await advised(audited, template({"app": "web", LABEL: "other"}))).warnings == ()


@pytest.mark.parametrize("known", [True, False])
async def test_a_template_copied_from_a_pod_is_judged_by_todays_policy(*, known: bool) -> None:
    """It carries our label, and the hash of a document that was in force a moment, or long, ago."""
    former = policy_of(POLICY.replace("podgate-scheduler", "theirs"))
    policies = FixedPolicy(former, VirtualClock(NOW_US))
    policies.set(WEB)
    copied = template({"app": "web", LABEL: "web"}, {ANNOTATION: former.hash if known else "f" * 16}, **THEIRS)
    decision = await Gate(WEB, policies).validate(**request(copied))
    assert (decision.warnings, decision.policy_hash) == ((DENIED,), WEB.hash)


async def test_a_dry_run_is_advised_too() -> None:
    decision = await advised(WEB, template(**THEIRS), dryRun=True)
    assert (decision.dry_run, decision.warnings) == (True, (DENIED,))


async def test_a_breaker_that_is_open_and_a_quota_that_is_full_say_nothing() -> None:
    gate = Gate(WEB)
    placed = {"schedulerName": "podgate-scheduler", "nodeSelector": {"disk": "ssd"}}
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
    placed["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    codes = [(await gate.validate(object=gate.owned(f"u{n}", **placed))).status.code for n in range(3)]
    assert codes == [200, 429, 503], "quota, then breaker"
    asked = len(gate.store.asked)
    decision = await gate.validate(**request(template()))
    assert (decision.allowed, decision.warnings, len(gate.store.asked)) == (True, (), asked)


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
@pytest.mark.parametrize(("group", "resource"), KINDS)
async def test_the_mutating_half_leaves_templates_as_they_are(group: str, resource: str, operation: str) -> None:
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


@pytest.mark.parametrize(("exemptions", "spec", "kind", "by"), EXEMPT)
async def test_those_are_spared_whose_pods_will_be(exemptions: str, spec: Json, kind: tuple[str, ...], by: str) -> None:
    """Pods are made by a controller: that their author is exempt does not help them."""
    loaded = policy_of(POLICY.replace("[shop]", "[shop, elsewhere]"), f"exemptions: {{{exemptions}}}")
    decision = await advised(loaded, template(**THEIRS, **spec), *kind)
    assert decision.exemption == by
    assert decision.verdict is (Verdict.EXEMPT if by else Verdict.ADMIT)
    assert decision.warnings == (() if by else (DENIED.replace("deployment", kind[1].removesuffix("s")),))


@pytest.mark.parametrize(
    ("exemptions", "left_out"),
    [
        ("", {"daemonsets"}),
        ("daemonSets: false", set()),
        (f"usernames: ['{REPLICA_SETS}']", {"daemonsets", "deployments", "replicasets"}),
    ],
)
def test_it_is_worth_asking_about_kinds_whose_pods_are_judged(exemptions: str, left_out: set[str]) -> None:
    loaded = policy_of(POLICY, f"exemptions: {{{exemptions}}}")
    everything = {"daemonsets", *(resource for _, resource in KINDS)}
    assert {source.resource for source in workloads.reviewed_kinds(loaded.policy)} == everything - left_out


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
async def test_other_calls_on_workloads_are_none_of_podgate(more: Json) -> None:
    decision = await Gate(WEB).validate(**(request(template(**THEIRS)) | more))
    assert (decision.verdict, decision.warnings, decision.workload) == (Verdict.UNMATCHED, (), "")


@pytest.mark.parametrize(
    ("made_from", "says"),
    [
        ({"metadata": {"labels": ["x"]}}, "got `array` - at `$.spec.template.metadata.labels`"),
        ({"spec": {"nodeSelector": 7}}, "`$.spec.template.spec.nodeSelector`"),
        (7, "`$.spec.template`"),
    ],
)
async def test_a_template_of_a_wrong_shape_is_the_callers_fault_with_the_place_named(made_from: Any, says: str) -> None:
    with pytest.raises(BadReviewError) as refused:
        await Gate(WEB).validate(**request(made_from))
    assert str(refused.value).startswith("AdmissionReview.request.object: ")
    assert says in str(refused.value)


@pytest.mark.parametrize("name", [{"name": "web"}, {"generateName": "web-"}])
async def test_an_object_is_called_by_what_is_known_of_its_name(name: Json) -> None:
    found = {"metadata": name, "spec": {"template": template()}}
    decision = await advised(WEB, {}, object=found)
    assert decision.workload == ("deployment.apps/web" if "name" in name else "deployment.apps/web-*")


async def test_observers_are_reported_of_the_advice_with_its_stages() -> None:
    seen: list[Review] = []

    class Looking:
        def reviewed(self, review: Review) -> None:
            seen.append(review)

    gate = Gate(WEB, observers=[Looking()])  # type: ignore[list-item]  it is told of reviews alone here
    await gate.validate(**request(template(**THEIRS)))
    [review] = seen
    assert [name for name, _ in review.stages] == ["decode", "policy", "exempt", "own", "check", "answer"]
    assert review.decision.findings[0].code is Code.PLACEMENT_CONFLICT


def asking(key: str, *values: str, unmatched: str = "Deny") -> LoadedPolicy:
    """Build a policy whose first service asks for a label, and wants another scheduler than `THEIRS`."""
    wanted = f"[{{key: {key}, operator: In, values: [{', '.join(map(repr, values))}]}}]"
    services = f"""
- name: asks
  match: {{namespaces: [shop], podSelector: {{matchExpressions: {wanted}}}}}
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
OWNED, NOBODYS, DEPENDS = "asks", None, "depends"
ADDED: list[tuple[str, str, Json, list[str], str | None]] = [
    ("jobs", "job-name", {}, ["web"], OWNED),
    ("jobs", JOB_NAME, {}, ["web"], OWNED),
    ("jobs", JOB_NAME, {}, ["other"], NOBODYS),
    ("jobs", JOB_NAME, {"manualSelector": True}, ["web"], NOBODYS),
    ("jobs", "controller-uid", {}, [UID], DEPENDS),
    ("jobs", JOB_UID, {}, ["no-uid"], NOBODYS),
    ("jobs", JOB_UID, {"manualSelector": True}, [UID], NOBODYS),
    ("jobs", INDEX, {}, ["0"], NOBODYS),
    ("jobs", INDEX, {"completionMode": "Indexed", "completions": 1}, ["0"], OWNED),
    ("jobs", INDEX, INDEXED, ["0"], DEPENDS),
    ("jobs", INDEX, INDEXED, ["0", "1", "2"], OWNED),
    ("jobs", INDEX, INDEXED, ["3", "01"], NOBODYS),
    ("cronjobs", "job-name", {}, ["web"], NOBODYS),
    ("cronjobs", "job-name", {}, ["web-29012345"], DEPENDS),
    ("cronjobs", "job-name", {}, ["other-29012345"], NOBODYS),
    ("deployments", "pod-template-hash", {}, ["7d4b6c9f5d"], DEPENDS),
    ("deployments", "pod-template-hash", {}, ["abc"], NOBODYS),
    ("replicasets", "pod-template-hash", {}, ["7d4b6c9f5d"], NOBODYS),
    ("replicationcontrollers", "pod-template-hash", {}, ["7d4b6c9f5d"], NOBODYS),
    ("statefulsets", ORDINAL, {}, ["0"], OWNED),
    ("statefulsets", ORDINAL, {}, ["1"], NOBODYS),
    ("statefulsets", ORDINAL, THREE, ["0"], DEPENDS),
    ("statefulsets", ORDINAL, {**THREE, "ordinals": {"start": 4}}, ["4", "5", "6"], OWNED),
    ("statefulsets", POD_NAME, {}, ["web-0"], OWNED),
    ("statefulsets", POD_NAME, THREE, ["web-2"], DEPENDS),
    ("statefulsets", POD_NAME, THREE, ["web-3", "other-0"], NOBODYS),
    ("statefulsets", REVISION, {}, ["web-7d4b6c9f5d"], DEPENDS),
    ("statefulsets", REVISION, {}, ["7d4b6c9f5d"], NOBODYS),
    ("daemonsets", REVISION, {}, ["7d4b6c9f5d"], DEPENDS),
    ("daemonsets", GENERATION, {}, ["1"], DEPENDS),
]


@pytest.mark.parametrize(("resource", "key", "spec", "values", "expected"), ADDED)
async def test_labels_that_a_controller_adds_count_for_the_pods_of_a_workload(
    resource: str, key: str, spec: Json, values: list[str], expected: str | None
) -> None:
    group = {"replicationcontrollers": "", "jobs": "batch", "cronjobs": "batch"}.get(resource, "apps")
    asked = request(template(), group, resource)
    inner = asked["object"]["spec"].get("jobTemplate", asked["object"])["spec"]
    inner |= spec
    decision = await Gate(asking(key, *values)).validate(**asked)
    found = DEPENDS if decision.verdict is Verdict.DEPENDS else decision.service
    assert found == expected
    denials = [warning for warning in decision.warnings if "will be denied:" in warning]
    assert len(denials) == (1 if expected is NOBODYS else 0), "no claim of a denial but where it is certain"


@pytest.mark.parametrize(
    ("operator", "expected"), [("Exists", OWNED), ("DoesNotExist", NOBODYS), ("NotIn", DEPENDS), ("In", DEPENDS)]
)
async def test_an_expression_about_a_value_that_is_not_known_yet(operator: str, expected: str | None) -> None:
    values = ", values: [7d4b6c9f5d]" if operator.endswith("In") else ""
    wanted = f"{{key: pod-template-hash, operator: {operator}{values}}}"
    loaded = policy_of(
        f"- {{name: asks, match: {{namespaces: [shop], podSelector: {{matchExpressions: [{wanted}]}}}}}}"
    )
    decision = await advised(loaded, template({"app": "web", "pod-template-hash": "theirs"}))
    assert (DEPENDS if decision.verdict is Verdict.DEPENDS else decision.service) == expected


CANARY = """
- name: canary
  match: {namespaces: [shop], podSelector: {matchLabels: {pod-template-hash: 7d4b6c9f5d, app: web}}}
  placement: {schedulerName: canary-scheduler}
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement: {schedulerName: podgate-scheduler}
"""


async def test_a_service_that_may_own_the_pods_comes_before_one_that_does() -> None:
    decision = await advised(policy_of(CANARY), template(**THEIRS))
    assert decision.verdict is Verdict.DEPENDS
    assert [(one.service, one.labels) for one in decision.depends_on] == [
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


async def test_who_is_reported_of_no_service_is_reported_on_what_it_depends() -> None:
    decision = await advised(asking("pod-template-hash", "7d4b6c9f5d"), template())
    [warning] = decision.warnings
    assert warning.startswith(
        "Unmatched: Pods of deployment.apps/web will be denied if no service owns them,"
        " which depends on label pod-template-hash: no service of the policy matches"
    )


async def test_nothing_is_said_where_no_possible_service_objects() -> None:
    """To say at each apply that there are two possibilities would be noise."""
    decision = await advised(policy_of(CANARY), template())
    assert (decision.verdict, decision.warnings) == (Verdict.DEPENDS, ())


async def test_a_service_that_asks_for_what_can_never_be_decides_nothing() -> None:
    decision = await advised(policy_of(CANARY.replace("7d4b6c9f5d", "never")), template(**THEIRS))
    assert (decision.verdict, decision.service) == (Verdict.ADMIT, "web")


@pytest.mark.parametrize(("dry_run", "verdict"), [(False, Verdict.ADMIT), (True, Verdict.DEPENDS)])
async def test_a_uid_and_a_name_that_a_dry_run_gave_are_nobodys(*, dry_run: bool, verdict: Verdict) -> None:
    """The validating call sees what the API server wrote into a Job; only what is stored keeps it."""
    labels = {"job-name": "web-x7k2p", JOB_NAME: "web-x7k2p", "controller-uid": UID, JOB_UID: UID}
    metadata = {"generateName": "web-", "name": "web-x7k2p", "uid": UID}
    given = {"metadata": metadata, "spec": {"template": template(labels)}}
    for key, value in (("job-name", "web-x7k2p"), (JOB_UID, UID)):
        asked = request({}, "batch", "jobs", object=given, dryRun=dry_run)
        decision = await Gate(asking(key, value)).validate(**asked)
        assert decision.verdict is verdict


@pytest.mark.parametrize(("value", "asks"), [("7d4b6c9f5d", True), ("never", False)])
async def test_labels_of_a_namespace_are_asked_for_where_the_owner_may_depend_on_them(
    value: str, *, asks: bool
) -> None:
    gate = Gate(
        policy_of(f"""
- name: canary
  match:
    namespaceSelector: {{matchLabels: {{tier: prod}}}}
    podSelector: {{matchLabels: {{pod-template-hash: {value}}}}}
""")
    )
    asked = request(template(), namespace="nobody-knows-it")
    if asks:
        with pytest.raises(UnknownNamespaceError):
            await gate.validate(**asked)
    else:
        assert (await gate.validate(**asked)).verdict is Verdict.UNMATCHED


async def test_a_daemon_sets_own_terms_for_nodes_give_way_to_one_node() -> None:
    """The controller replaces them: they say where Pods are made, and are not in the Pods."""
    zone = {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["elsewhere"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}
        }
    }
    loaded = policy_of(POLICY, "exemptions: {daemonSets: false}")
    decision = await advised(loaded, template(affinity=affinity), "apps", "daemonsets")
    assert (decision.service, decision.warnings) == ("web", ())


@PROPERTY
@given(pairs)
async def test_what_an_author_is_reported_is_what_becomes_of_the_pods(pair: Pair) -> None:
    service = pair.policy.service
    gate = Gate(LoadedPolicy(Policy("podgate.io/v1alpha1", "Policy", (service,)), HASH))
    metadata = {key: pair.pod["metadata"].get(key) for key in ("labels", "annotations")}
    asked = {"namespace": "shop", "userInfo": {"username": REPLICA_SETS}}
    drawn = {**pair.pod, "metadata": {**metadata, "namespace": "shop", "generateName": "web-"}}
    made: Json = msgspec.json.decode(msgspec.json.encode(drawn))  # parts of what is drawn may be one and the same
    patch = (await gate.mutate(object=made, **asked)).patch
    made = jsonpatch.apply_patch(made, msgspec.to_builtins(patch))
    made["metadata"]["uid"] = "u1"
    became = await gate.validate(object=made, **asked)
    told = await gate.validate(**request({"metadata": metadata, "spec": pair.pod["spec"]}))
    assert told.allowed
    shown = "Pods of deployment.apps/web"
    starts = {Mode.ENFORCE: f"{shown} will be denied", Mode.WARN: f"in {shown}"}
    expected = [(found.code, f"{starts[found.mode]}: {found.message}") for found in became.findings]
    assert [(found.code, found.message) for found in told.findings if found.code is not Code.IMMUTABLE] == expected
