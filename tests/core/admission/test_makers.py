"""Objects of kinds that are not Kubernetes' own: warnings about each Pod template, as for a Deployment."""

import threading
from typing import Any

import msgspec
import pytest

from tests.core.admission.workloads import template
from tests.core.reviewing import ALICE, Gate, body, policy_of
from tests.core.strategies import Json
from tests.harness.nesting import nest
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.admission.makers import TEMPLATES_MAX
from webhook.core.findings import Code
from webhook.core.json_depth import DEPTH_MAX
from webhook.core.kubernetes.pod_size import CONTAINERS_MAX
from webhook.core.policy.model import LoadedPolicy
from webhook.core.workloads import custom_kinds

POLICY = """
- name: web
  match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}}
  placement: {schedulerName: podgate-scheduler, nodeSelector: {disk: ssd}}
"""
TRAIN = "workloads: [{apiGroup: example.com, kind: Train, templates: [spec.leader, spec.workers.*.template]}]"
KNOWN = policy_of(POLICY, TRAIN)
WARNING = policy_of(f"{POLICY}  modes: {{placement: Warn}}", TRAIN)
DENIED = (
    "PlacementConflict: Pods of train.example.com/web will be denied: service web: spec.schedulerName is 'theirs',"
    " the policy sets 'podgate-scheduler'; remove the field from the Pod or set it to 'podgate-scheduler'"
)
THEIRS = template(schedulerName="theirs")


def ask(spec: Json, group: str = "example.com", kind: str = "Train", **more: Any) -> Json:
    """Build the request of a user who writes an object named `web`."""
    resource = {"group": group, "version": "v1alpha1", "resource": f"{kind.lower()}s"}
    metadata = {"name": "web", "namespace": "shop", "uid": "of-the-object"}
    written = {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}
    return {"resource": resource, "object": written, **more}


async def review(spec: Json, *kind: str, loaded: LoadedPolicy = KNOWN, **more: Any) -> Decision:
    """Review an object: it is admitted and not charged."""
    gate = Gate(loaded)
    decision = await gate.validate(**ask(spec, *kind, **more))
    assert decision.allowed
    assert gate.store.requests == []
    return decision


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE"])
async def test_a_kind_of_the_policy_is_admitted_with_a_warning(operation: str) -> None:
    decision = await review({"leader": THEIRS}, operation=operation)
    assert decision.warnings == (DENIED,)
    assert (decision.workload, decision.verdict, decision.service) == ("train.example.com/web", Verdict.ADMIT, "web")
    assert (decision.call.operation, decision.call.user) == (operation, ALICE)
    assert (decision.pod, decision.pod_uid) == ("", ""), "its Pods do not exist yet"
    assert decision.audit["findings"] == "PlacementConflict/Warn"


@pytest.mark.parametrize(
    ("group", "kind", "spec"),
    [
        ("jobset.x-k8s.io", "JobSet", {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": THEIRS}}}]}),
        ("leaderworkerset.x-k8s.io", "LeaderWorkerSet", {"leaderWorkerTemplate": {"workerTemplate": THEIRS}}),
        ("batch.volcano.sh", "Job", {"tasks": [{"template": THEIRS}]}),
        ("ray.io", "RayCluster", {"headGroupSpec": {"template": THEIRS}}),
        ("kubeflow.org", "PyTorchJob", {"pytorchReplicaSpecs": {"Master": {"template": THEIRS}}}),
        ("argoproj.io", "Rollout", {"template": THEIRS}),
    ],
)
async def test_a_kind_that_podgate_knows_is_admitted_with_a_warning(group: str, kind: str, spec: Json) -> None:
    decision = await review(spec, group, kind, loaded=policy_of(POLICY))
    assert decision.warnings == (DENIED.replace("train.example.com", f"{kind.lower()}.{group}"),)


async def test_what_holds_for_all_templates_is_said_once_and_else_where() -> None:
    both = await review({"leader": THEIRS, "workers": [{"template": THEIRS}, {"template": THEIRS}]})
    assert both.warnings == (DENIED,)
    one = await review({"leader": template(), "workers": [{"template": template()}, {"template": THEIRS}]})
    assert one.warnings == (f"{DENIED} (spec.workers.1.template)",)
    most = await review({"leader": template(), "workers": [{"template": THEIRS}] * 4})
    assert most.warnings == (f"{DENIED} (spec.workers.0.template, spec.workers.1.template and 2 more)",)


async def test_fields_that_only_enforce_writes_are_told_once() -> None:
    decision = await review({"leader": template(), "workers": [{"template": template()}]}, loaded=WARNING)
    [warning] = decision.warnings
    assert warning == (
        "WouldRewrite: in Pods of train.example.com/web: service web:"
        " Enforce would write spec.schedulerName, spec.nodeSelector"
    )


async def test_templates_of_several_services_are_judged_apart() -> None:
    batch = "- name: batch\n  match: {namespaces: [shop], podSelector: {matchLabels: {app: batch}}}\n"
    batch += "  placement: {schedulerName: batch-scheduler}\n"
    of_batch = template({"app": "batch"}, schedulerName="theirs")
    loaded = policy_of(POLICY + batch, TRAIN)
    decision = await review({"leader": THEIRS, "workers": [{"template": of_batch}]}, loaded=loaded)
    assert [finding.message.partition(": ")[2].partition(":")[0] for finding in decision.findings] == [
        "service web",
        "service batch",
    ]
    assert [warning.rpartition(" ")[2] for warning in decision.warnings] == [
        "(spec.leader)",
        "(spec.workers.0.template)",
    ]


async def test_an_owner_that_depends_on_a_label_is_told() -> None:
    label = "jobset.sigs.k8s.io/job-index"
    first = f"- name: first\n  match: {{namespaces: [shop], podSelector: {{matchLabels: {{{label}: '0'}}}}}}\n"
    first += "  placement: {schedulerName: first-scheduler}\n"
    job = {"name": "a", "replicas": 2, "template": {"spec": {"template": THEIRS}}}
    loaded = policy_of(first + POLICY)
    decision = await review({"replicatedJobs": [job]}, "jobset.x-k8s.io", "JobSet", loaded=loaded)
    assert decision.verdict is Verdict.DEPENDS
    assert [dependence.service for dependence in decision.depends_on] == ["first", "web"]
    assert f"will be denied if service first owns them, which depends on label {label}" in decision.warnings[0]


@pytest.mark.parametrize("kind", ["Queue", "Unknown"])
async def test_a_kind_without_templates_is_not_handled(kind: str) -> None:
    head = f"{TRAIN[:-1]}, {{apiGroup: example.com, kind: Queue, templates: []}}]"
    decision = await review({"leader": THEIRS}, "example.com", kind, loaded=policy_of(POLICY, head))
    assert (decision.verdict, decision.workload, decision.warnings) == (Verdict.UNMATCHED, "", ())
    assert decision.steps[-1].found == f"CREATE of {kind.lower()}s.example.com is not handled by Podgate"


async def test_the_mutating_half_leaves_templates_as_they_are() -> None:
    answer = await Gate(KNOWN).ask(Half.MUTATE, **ask({"leader": THEIRS}))
    assert (answer.decision.verdict, answer.decision.warnings) == (Verdict.UNMATCHED, ())
    assert "patch" not in msgspec.json.decode(answer.body)["response"]


@pytest.mark.parametrize(
    ("spec", "note"),
    [
        ({}, "no template can be reviewed"),
        ({"leader": 1}, "spec.leader is not a mapping"),
        ({"leader": {"metadata": {}}}, "spec.leader.spec is not a mapping"),
        ({"leader": {"spec": {"containers": 5}}}, "spec.leader: Expected `array"),
    ],
)
async def test_a_template_that_is_none_is_passed_over(spec: Json, note: str) -> None:
    decision = await review(spec)
    assert (decision.verdict, decision.warnings) == (Verdict.UNMATCHED, ())
    assert any(note in step.found for step in decision.steps)
    others = await review({**spec, "workers": [{"template": THEIRS}]})
    assert others.warnings == (DENIED,)


async def test_amounts_that_cannot_be_read_are_noted_and_other_templates_reviewed() -> None:
    """The API server does not check what it does not know to be a Pod template."""
    container = {"name": "c", "resources": {"requests": {"cpu": "much"}}}
    loaded = policy_of(f"{POLICY}  resources: {{container: {{max: {{cpu: 4}}}}}}\n", TRAIN)
    decision = await review(
        {"leader": template(containers=[container]), "workers": [{"template": THEIRS}]}, loaded=loaded
    )
    assert decision.warnings == (f"{DENIED} (spec.workers.0.template)",)
    assert any("the template's resources: " in step.found for step in decision.steps)


@pytest.mark.parametrize("replicas", [10**30, -1, "x", None, {}])
async def test_numbers_of_pods_that_make_no_sense_are_passed_over(replicas: Any) -> None:
    job = {"name": "a", "replicas": replicas, "template": {"spec": {"completions": replicas, "template": THEIRS}}}
    decision = await review({"replicatedJobs": [job]}, "jobset.x-k8s.io", "JobSet", loaded=policy_of(POLICY))
    assert len(decision.warnings) == 1


async def test_an_object_that_is_nested_deeply_is_reviewed() -> None:
    below = DEPTH_MAX - 2  # of the object and its spec

    def build_body(levels: int) -> bytes:
        return body(**ask({"leader": THEIRS, "more": "<more>"})).replace(b'"<more>"', nest(levels).encode())

    for levels in (below, below + 1, 5_000):
        answer = await Gate(KNOWN).interceptor.review(Half.VALIDATE, build_body(levels))
        assert answer.decision.warnings == (DENIED,), "what is deeper is left out"


async def test_of_very_many_templates_the_first_are_reviewed() -> None:
    workers = [{"template": template(schedulerName=f"s{number}")} for number in range(TEMPLATES_MAX + 5)]
    decision = await review({"workers": workers})
    assert len(decision.warnings) == TEMPLATES_MAX
    assert "only the first 16 templates are reviewed" in [step.found for step in decision.steps]


async def test_the_path_of_a_template_is_cut() -> None:
    decision = await review({"leader": template(), "workers": {"x" * 10_000: {"template": THEIRS}}})
    assert len(decision.warnings[0]) < 500


async def test_an_object_that_is_deleted_is_passed_over() -> None:
    decision = await review({}, operation="DELETE", object=None)
    assert (decision.verdict, decision.workload) == (Verdict.UNMATCHED, "")


async def test_rules_judge_each_template() -> None:
    rules = '  rules: [{name: no-host, require: "!pod.hostNetwork", message: "\'no host network\'", mode: Enforce}]\n'
    decision = await review({"leader": template(hostNetwork=True)}, loaded=policy_of(POLICY + rules, TRAIN))
    assert [finding.code for finding in decision.findings] == [Code.RULE_VIOLATED]


def grow(number: int, labels: Json | None = None) -> Json:
    return template(labels, containers=[{"name": f"c{n}", "image": "registry.example/image"} for n in range(number)])


def reasons_of(decision: Decision) -> list[str]:
    return [step.found for step in decision.steps if step.stage == "templates"]


async def test_a_template_that_is_too_large_is_told_and_the_others_are_reviewed() -> None:
    decision = await review({"leader": grow(CONTAINERS_MAX + 1), "workers": [{"template": THEIRS}]})
    assert decision.warnings == (
        (
            "PodTooLarge: Pods of train.example.com/web will be denied: service web: the Pod has 2001 containers,"
            " at most 2000 are read: write fewer (spec.leader)"
        ),
        f"{DENIED} (spec.workers.0.template)",
    )


async def test_templates_together_are_no_larger_than_one_pod() -> None:
    half = grow(CONTAINERS_MAX // 2)
    decision = await review({"leader": half, "workers": [{"template": part} for part in (half, THEIRS, half, THEIRS)]})
    assert decision.warnings == ()
    text = "spec.workers.{}.template: the templates together are too large to be reviewed"
    assert reasons_of(decision) == [text.format(number) for number in (1, 2, 3)]


async def test_a_large_object_is_read_and_reviewed_beside_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = set[str]()

    def build_pod(*arguments: Any) -> Any:
        threads.add(threading.current_thread().name)
        return custom_kinds.build_pod(*arguments)

    monkeypatch.setattr("webhook.core.admission.makers.build_pod", build_pod)
    leader = grow(CONTAINERS_MAX)
    for spec in ({"leader": leader}, {"leader": leader, "containers": [{"name": "c"}]}):
        await review(spec)
    assert threads == {"large-pod_0"}
