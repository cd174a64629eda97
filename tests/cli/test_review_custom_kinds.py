"""`podgate review` of kinds that are not Kubernetes' own: their Pod templates, and the groups of their Pods."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.command_runner import Json, podgate, policy_text

GROUPS = "groups: {from: [Annotations, JobSet, LeaderWorkerSet, Volcano, Job]}"
POLICY = policy_text(
    "- name: batch\n  match: {namespaces: [ml]}\n  placement: {nodeSelector: {disk: ssd}}\n"
    "  quota: {windows: [{window: 1m, hard: {pods: 90, cpu: 8}}], whenExceeded: Queue,"
    f" queue: {{whenExpired: Keep, {GROUPS}}}}}\n"
)


@pytest.fixture(autouse=True)
def policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY)


def template(cpu: int = 1) -> Json:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"labels": {"app": "train"}}, "spec": {"containers": [container]}}


def job() -> Json:
    return {"spec": {"parallelism": 2, "template": template()}}


UID = "00000000-0000-4000-8000-000000000000"
ROLES = {"Leader": {"template": template()}, "Worker": {"template": template()}}
RAY = {"headGroupSpec": {"template": template()}, "workerGroupSpecs": [{"template": template()}] * 2}
JOB_SET = {"replicatedJobs": [{"name": "driver", "template": job()}, {"name": "workers", "template": job()}]}
OBJECTS = [
    ("jobset.x-k8s.io/v1alpha2", "JobSet", JOB_SET, 2),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", {"leaderWorkerTemplate": {"workerTemplate": template()}}, 1),
    (
        "leaderworkerset.x-k8s.io/v1",
        "LeaderWorkerSet",
        {"leaderWorkerTemplate": {"size": 3, "leaderTemplate": template(), "workerTemplate": template()}},
        2,
    ),
    ("batch.volcano.sh/v1alpha1", "Job", {"tasks": [{"name": "a", "template": template()}] * 3}, 3),
    ("batch.volcano.sh/v1alpha1", "CronJob", {"jobTemplate": {"spec": {"tasks": [{"template": template()}]}}}, 1),
    ("ray.io/v1", "RayCluster", RAY, 3),
    ("ray.io/v1", "RayJob", {"rayClusterSpec": RAY, "submitterPodTemplate": template()}, 4),
    ("ray.io/v1", "RayService", {"rayClusterConfig": RAY}, 3),
    ("kubeflow.org/v1", "PyTorchJob", {"pytorchReplicaSpecs": ROLES}, 2),
    ("kubeflow.org/v1", "TFJob", {"tfReplicaSpecs": ROLES}, 2),
    ("kubeflow.org/v1", "XGBoostJob", {"xgbReplicaSpecs": ROLES}, 2),
    ("kubeflow.org/v1", "PaddleJob", {"paddleReplicaSpecs": ROLES}, 2),
    ("kubeflow.org/v1", "JAXJob", {"jaxReplicaSpecs": ROLES}, 2),
    ("kubeflow.org/v2beta1", "MPIJob", {"mpiReplicaSpecs": ROLES}, 2),
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime", {"template": {"spec": JOB_SET}}, 2),
    (
        "disaggregatedset.x-k8s.io/v1",
        "DisaggregatedSet",
        {"roles": [{"spec": {"leaderWorkerTemplate": {"workerTemplate": template()}}}] * 2},
        2,
    ),
    ("agents.x-k8s.io/v1alpha1", "Sandbox", {"podTemplate": template()}, 1),
    ("argoproj.io/v1alpha1", "Rollout", {"template": template()}, 1),
    (
        "sparkoperator.k8s.io/v1beta2",
        "SparkApplication",
        {"driver": {"template": template()}, "executor": {"template": template()}},
        2,
    ),
]


def make(api_version: str, kind: str, spec: Json, **metadata: str) -> Json:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"namespace": "ml", **metadata}, "spec": spec}


def review(*documents: Json, code: int = 0) -> list[Any]:
    text = json.dumps({"kind": "List", "items": documents})
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=text)
    assert done.code == code, done.out + done.err
    return done.lines


@pytest.mark.parametrize("named", [{"name": "train"}, {"generateName": "train-"}])
@pytest.mark.parametrize(("api_version", "kind", "spec", "pods"), OBJECTS)
def test_each_template_is_judged(api_version: str, kind: str, spec: Json, pods: int, named: dict[str, str]) -> None:
    lines = review(make(api_version, kind, spec, **named))
    assert [(line["kind"], line["service"], line["decision"]) for line in lines] == [(kind, "batch", "Admit")] * pods
    assert len({line["place"] for line in lines}) == pods
    assert all(line["pod"]["spec"]["nodeSelector"] == {"disk": "ssd"} for line in lines)
    assert all(line["pod"]["metadata"]["labels"]["app"] == "train" for line in lines)


def test_a_template_above_a_whole_limit_is_denied_and_named() -> None:
    tasks = [{"name": "ps", "template": template()}, {"name": "worker", "template": template(9)}]
    first, second = review(make("batch.volcano.sh/v1alpha1", "Job", {"tasks": tasks}, name="train"), code=3)
    assert (first["decision"], second["decision"]) == ("Admit", "Deny")
    assert second["place"] == "items[0]: spec.tasks.1.template"


@pytest.mark.parametrize(
    ("api_version", "kind", "spec", "groups"),
    [
        (
            "jobset.x-k8s.io/v1alpha2",
            "JobSet",
            JOB_SET,
            ["train (JobSet) until as many Pods as its JobSet has wait and fit"] * 2,
        ),
        (
            "leaderworkerset.x-k8s.io/v1",
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"size": 3, "leaderTemplate": template(), "workerTemplate": template()}},
            ["06995edb0897b1c2dc6ecd5e476d6163f281f212 (LeaderWorkerSet) until 3 Pods wait and fit"] * 2,
        ),
        (
            "batch.volcano.sh/v1alpha1",
            "Job",
            {"tasks": [{"template": template()}]},
            [f"train-{UID} (Volcano) until as many Pods as its PodGroup has wait and fit"],
        ),
    ],
)
def test_pods_are_in_the_group_of_their_kind(api_version: str, kind: str, spec: Json, groups: list[str]) -> None:
    text = json.dumps(make(api_version, kind, spec, name="train"))
    done = podgate("review", "-", "--policy", "policy.yaml", "--explain", stdin=text)
    assert done.code == 0, done.err
    found = [line for line in done.out.splitlines() if "waits with its group" in line]
    assert [line.partition("waits with its group ")[2] for line in found] == groups


def test_a_manifest_to_commit_has_all_rewritten_templates_once() -> None:
    documents = [make("jobset.x-k8s.io/v1alpha2", "JobSet", JOB_SET, name=name) for name in ("one", "two")]
    text = json.dumps({"kind": "List", "items": documents})
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "yaml", stdin=text)
    assert done.code == 0, done.err
    written = [document for document in yaml.safe_load_all(done.out) if document is not None]
    assert [document["metadata"]["name"] for document in written] == ["one", "two"]
    jobs = [job["template"]["spec"]["template"] for document in written for job in document["spec"]["replicatedJobs"]]
    assert [job["spec"].pop("nodeSelector") for job in jobs] == [{"disk": "ssd"}] * 4
    assert jobs == [template()] * 4, "what controllers add is not the manifest's"
    assert done.out.count("Admit (service batch)") == 4


def test_a_path_of_ones_own_replaces_those_of_a_known_kind() -> None:
    for kind, api_version in (("JobSet", "jobset.x-k8s.io/v1"), ("Job", "batch.volcano.sh/v1")):
        group = api_version.partition("/")[0]
        flags = ("--templates", f"{group}/{kind}=spec.extra.template", "--templates", f"{group}/{kind}=spec.tasks.*.x")
        spec = {"extra": {"template": template()}, "tasks": [{"x": template()}]}
        text = json.dumps(make(api_version, kind, spec, name="train"))
        done = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", *flags, stdin=text)
        assert (done.code, len(done.lines)) == (0, 2), done.err


@pytest.mark.parametrize(
    ("tasks", "error"),
    [
        ([{"template": 1}], "Job ml/train: spec.tasks.0.template: expected a mapping"),
        ([{"template": {"metadata": {}}}], "Job ml/train: spec.tasks.0.template.spec: expected a mapping"),
        ([{"template": {"metadata": [], "spec": {}}}], "spec.tasks.0.template.metadata: expected a mapping"),
        (
            [{"template": {"spec": {"containers": [{"name": 5}]}}}],
            "spec.tasks.0.template.spec.containers[0].name",
        ),
    ],
)
def test_a_wrong_template_is_named(tasks: list[Json], error: str) -> None:
    text = json.dumps(make("batch.volcano.sh/v1alpha1", "Job", {"tasks": tasks}, name="train"))
    done = podgate("review", "-", "--policy", "policy.yaml", stdin=text)
    assert done.code == 2
    assert error in done.err


@pytest.mark.parametrize("spec", [{}, {"driver": {}}, {"driver": []}])
def test_an_object_without_templates_is_named(spec: Json) -> None:
    text = json.dumps(make("sparkoperator.k8s.io/v1beta2", "SparkApplication", spec, name="pi"))
    done = podgate("review", "-", "--policy", "policy.yaml", stdin=text)
    assert done.code == 0
    assert "SparkApplication ml/pi: not handled by Podgate: it has no Pod template" in done.err


UNKNOWN = make("example.com/v1", "Train", {"workers": [{"template": template()}, {"template": template(9)}]}, name="t")


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        ((), 0, "Train ml/t: not handled by Podgate: not one of Kubernetes' own kinds"),
        (
            ("--strict-kinds",),
            2,
            "Train ml/t: not one of Kubernetes' own kinds: say where it has Pod templates: --templates",
        ),
        (("--strict-kinds", "--templates", "example.com/Train=spec.workers.*.template"), 3, "Admit 1, Deny 1"),
        (
            ("--strict-kinds", "--templates", "example.com/Train="),
            0,
            "Train ml/t: not handled by Podgate: makes no Pods",
        ),
        (("--templates", "example.com/Train"), 2, "--templates: 'example.com/Train': not GROUP/KIND=PATH"),
        (("--templates", "Train=spec.template"), 2, "not GROUP/KIND=PATH: write it as example.com/Train="),
    ],
)
def test_a_kind_that_is_not_known_is_told_or_given(flags: tuple[str, ...], code: int, said: str) -> None:
    done = podgate("review", "-", "--policy", "policy.yaml", *flags, stdin=json.dumps(UNKNOWN))
    assert done.code == code, done.err
    assert said in done.err


TRAIN = "- {apiGroup: example.com, kind: Train, templates: [spec.workers.*.template]}"


@pytest.mark.parametrize(
    ("flags", "code", "said"),
    [
        (("--strict-kinds",), 3, "Admit 1, Deny 1"),
        (("--strict-kinds", "--templates", "example.com/Train=spec.other"), 0, "it has no Pod template"),
        (("--templates", "example.com/Train="), 0, "Train ml/t: not handled by Podgate: makes no Pods"),
    ],
)
def test_the_policy_may_say_where_templates_are_and_a_flag_outranks_it(
    flags: tuple[str, ...], code: int, said: str
) -> None:
    Path("policy.yaml").write_text(POLICY.replace("services:", f"workloads:\n{TRAIN}\nservices:"))
    done = podgate("review", "-", "--policy", "policy.yaml", *flags, stdin=json.dumps(UNKNOWN))
    assert done.code == code, done.err
    assert said in done.err


def test_the_policy_may_say_that_a_kind_makes_no_pods() -> None:
    queue = "- {apiGroup: example.com, kind: Queue, templates: []}\n- {apiGroup: ray.io, kind: RayJob, templates: []}"
    Path("policy.yaml").write_text(POLICY.replace("services:", f"workloads:\n{queue}\nservices:"))
    documents = [make("example.com/v1", "Queue", {}, name="q"), make("ray.io/v1", "RayJob", OBJECTS[6][2], name="r")]
    text = json.dumps({"kind": "List", "items": documents})
    done = podgate("review", "-", "--policy", "policy.yaml", "--strict-kinds", stdin=text)
    assert (done.code, done.err.count("not handled by Podgate: makes no Pods")) == (0, 2), done.err


def test_a_policy_test_reads_custom_kinds_as_its_policy_says() -> None:
    Path("policy.yaml").write_text(POLICY.replace("services:", f"workloads:\n{TRAIN}\nservices:"))
    Path("train.yaml").write_text(json.dumps(UNKNOWN))
    case = "cases: [{name: train, objects: [train.yaml], expect: {decision: Admit}}]"
    Path("test.yaml").write_text(f"apiVersion: podgate.io/v1alpha1\nkind: PolicyTest\npolicy: policy.yaml\n{case}\n")
    done = podgate("test", "test.yaml")
    assert done.code == 1, done.out + done.err
    assert "spec.workers.1.template: Train ml/t" in done.out
    begun = podgate("test", "--init", "train.yaml", "--policy", "policy.yaml")
    assert (begun.code, begun.out.count("decision: Deny")) == (0, 1), begun.err


def test_a_review_of_an_object_is_answered_with_the_warnings_of_a_server() -> None:
    Path("policy.yaml").write_text(POLICY.replace("services:", f"workloads:\n{TRAIN}\nservices:"))
    workers = [{"template": template()}, {"template": {"spec": {**template()["spec"], "nodeSelector": {"disk": "x"}}}}]
    request = {
        "uid": "r1",
        "operation": "CREATE",
        "namespace": "ml",
        "resource": {"group": "example.com", "version": "v1", "resource": "trains"},
        "object": make("example.com/v1", "Train", {"workers": workers}, name="t"),
    }
    asked = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    (line,) = review(asked)
    assert (line["decision"], line["service"]) == ("Admit", "batch")
    (warning,) = line["warnings"]
    assert warning.startswith("PlacementConflict: Pods of train.example.com/t will be denied: service batch: ")
    assert warning.endswith(" (spec.workers.1.template)")


def test_a_leader_worker_set_that_cannot_gather_is_denied() -> None:
    spec = {"leaderWorkerTemplate": {"size": 2, "workerTemplate": template()}}
    written = make("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", spec, name="train")
    written["metadata"]["annotations"] = {"leaderworkerset.sigs.k8s.io/exclusive-topology": "zone"}
    (line,) = review(written, code=3)
    assert "GroupInvalid: service batch: metadata.annotations[leaderworkerset" in line["status"]["message"]
