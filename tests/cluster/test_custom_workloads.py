"""Objects of custom kinds on a real control plane: warnings for their authors, and explanations of their Pods."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.command_runner import Done, podgate
from tests.cluster.controlplane import ControlPlane
from tests.cluster.custom_kinds import build_crd, custom_kinds
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate

SPACE = "custom"
POLICY = f"""\
apiVersion: podgate.io/v1alpha1
kind: Policy
workloads:
- {{apiGroup: example.com, kind: Train, templates: [spec.leader, spec.workers.*.template]}}
services:
- name: training
  match: {{namespaces: [{SPACE}]}}
  placement: {{schedulerName: podgate-scheduler}}
"""
CRDS = (
    build_crd("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets"),
    build_crd("trainer.kubeflow.org", "v1alpha1", "TrainJob", "trainjobs"),
    build_crd("example.com", "v1", "Train", "trains"),
    build_crd("example.com", "v1", "Queue", "queues"),
)
CONFLICT = "PlacementConflict: service training: spec.schedulerName is 'theirs', the policy sets 'podgate-scheduler'"
METADATA = ("name", "uid", "namespace")


@pytest.fixture(scope="module")
def installation(plane: ControlPlane, identities: Identities) -> Iterator[Installation]:
    arguments = ("--drain", "0s", "--decision-listen", "127.0.0.1:0")
    with (
        custom_kinds(plane, CRDS),
        install_podgate(plane, identities.files, POLICY, [SPACE], arguments=arguments) as installation,
    ):
        installation.wait_for_calls()
        yield installation


def template(scheduler: str = "") -> dict[str, Any]:
    spec = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}
    return {
        "metadata": {"labels": {"app": "train"}},
        "spec": spec | ({"schedulerName": scheduler} if scheduler else {}),
    }


def train(name: str, spec: dict[str, Any], kind: str = "Train") -> dict[str, Any]:
    return {"apiVersion": "example.com/v1", "kind": kind, "metadata": {"name": name, "namespace": SPACE}, "spec": spec}


def kubectl(installation: Installation, *arguments: str, manifest: Any = None) -> list[str]:
    """Run kubectl, which must succeed; return the warnings that it printed."""
    read = () if manifest is None else ("-f", "-")
    text = None if manifest is None else json.dumps(manifest)
    done = installation.plane.kubectl(*arguments, *read, "-n", SPACE, input=text)
    return [line for line in done.stderr.splitlines() if line.startswith("Warning:")]


def explain(installation: Installation, *arguments: str) -> Done:
    where = ("--server", f"http://{installation.servers[0].decisions}", "--kubeconfig", installation.plane.kubeconfig)
    return podgate("explain", *arguments, "-n", SPACE, *where)


def read(installation: Installation, name: str) -> dict[str, Any]:
    found: dict[str, Any] = installation.plane.api.get(f"/apis/example.com/v1/namespaces/{SPACE}/trains/{name}")
    return found


def make_owner(document: dict[str, Any]) -> dict[str, Any]:
    metadata = document["metadata"]
    of = {"apiVersion": document["apiVersion"], "kind": document["kind"], "controller": True}
    return {**of, "name": metadata["name"], "uid": metadata["uid"]}


def test_authors_are_warned_as_of_a_deployment(installation: Installation) -> None:
    job = {"name": "workers", "template": {"spec": {"template": template("theirs")}}}
    job_set = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "mnist", "namespace": SPACE},
        "spec": {"replicatedJobs": [job]},
    }
    [warning] = kubectl(installation, "create", "--dry-run=server", manifest=job_set)
    head = "Warning: PlacementConflict: Pods of {} will be denied: service training: spec.schedulerName is 'theirs'"
    assert warning.startswith(head.format("jobset.jobset.x-k8s.io/mnist"))
    one_of_two = train("mnist", {"leader": template(), "workers": [{"template": template("theirs")}]})
    [warning] = kubectl(installation, "create", "--dry-run=server", manifest=one_of_two)
    assert warning.startswith(head.format("train.example.com/mnist"))
    assert warning.endswith(" (spec.workers.0.template)")
    quiet = train("quiet", {"leader": template()})
    assert kubectl(installation, "create", "--dry-run=server", manifest=quiet) == []


def test_only_a_new_or_changed_object_of_a_known_kind_is_reviewed(installation: Installation) -> None:
    def count() -> float:
        return sum(server.total("podgate_workload_reviews_total") for server in installation.servers)

    before = count()
    assert kubectl(installation, "create", manifest=train("queue", {"leader": template("theirs")}, "Queue")) == []
    assert count() == before, "a kind without templates"
    [warning] = kubectl(installation, "create", manifest=train("changing", {"leader": template("theirs")}))
    assert count() == before + 1
    assert kubectl(installation, "label", "train/changing", "a=1") == []
    assert count() == before + 1
    patch = json.dumps({"spec": {"workers": [{"template": template()}]}})
    [warning] = kubectl(installation, "patch", "train/changing", "--type=merge", "-p", patch)
    assert warning.endswith(" (spec.leader)")
    assert count() == before + 2
    made = train("made", {"leader": template("theirs")})
    made["metadata"]["ownerReferences"] = [make_owner(read(installation, "changing"))]
    assert kubectl(installation, "create", manifest=made) == []
    assert count() == before + 2, "its controller would not read the warning"


def test_a_recorded_review_of_an_object_is_judged_by_the_command_alike(installation: Installation) -> None:
    server = installation.servers[0].decisions
    kubectl(installation, "create", "--dry-run=server", manifest=train("recorded", {"leader": template("theirs")}))
    done = podgate("decisions", "--server", f"http://{server}", "-o", "json", "-n", SPACE)
    assert done.code == 0, done.err
    assert "train.example.com/recorded" in done.out


def test_an_object_without_pods_is_judged_by_its_templates(installation: Installation) -> None:
    kubectl(
        installation,
        "create",
        manifest=train("judged", {"leader": template(), "workers": [{"template": template("theirs")}]}),
    )
    done = explain(installation, "train.example.com/judged")
    assert done.code == 3, done.out + done.err
    first, *rest = done.out.splitlines()
    assert first.startswith(f"Denied: it has no Pods yet; those of spec.workers.0.template will be denied: {CONFLICT}")
    assert "template    spec.leader: Admit, service training by the policy in force" in rest
    assert not [line for line in rest if line.startswith("not read")]


def test_refused_pods_of_a_job_between_are_told(installation: Installation) -> None:
    plane = installation.plane
    kubectl(installation, "create", manifest=train("between", {"leader": template()}))
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "between-0",
            "namespace": SPACE,
            "ownerReferences": [make_owner(read(installation, "between"))],
        },
        "spec": {"template": template("theirs"), "backoffLimit": 0},
    }
    plane.apply(job)
    plane.wait(
        lambda: "1 Denied" in explain(installation, "trains.example.com", "between").out, "the denial to be told"
    )
    done = explain(installation, "train.example.com/between", "-o", "json")
    document = json.loads(done.out)
    assert (done.code, document["token"], document["subject"]["kind"]) == (3, "Denied", "Train")
    assert document["admission"]["codes"] == ["PlacementConflict"]


def test_a_pod_names_its_owners_and_is_found_by_the_object(installation: Installation) -> None:
    plane = installation.plane
    kubectl(installation, "create", manifest=train("running", {"leader": template()}))
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "running-0",
            "namespace": SPACE,
            "ownerReferences": [make_owner(read(installation, "running"))],
        },
        "spec": {"template": template(), "backoffLimit": 0},
    }
    plane.apply(job)

    def find_pod() -> str:
        pods = installation.pods(SPACE)
        names = [pod["metadata"]["name"] for pod in pods]
        return next((name for name in names if name.startswith("running-0-")), "")

    name = plane.wait(find_pod, "the Job's Pod")
    page = explain(installation, "pod", name).out
    assert f"Pod {SPACE}/{name}, of Job/running-0 of Train/running" in page
    document = json.loads(explain(installation, "train.example.com/running", "-o", "json").out)
    assert sum(document["pods"].values()) == 1


def test_a_refusal_that_the_kinds_own_controller_reports_is_told(installation: Installation) -> None:
    plane = installation.plane
    kubectl(installation, "create", manifest=train("direct", {"leader": template("theirs")}))
    document = read(installation, "direct")
    status, answer = plane.api.request(
        "POST",
        f"/api/v1/namespaces/{SPACE}/pods",
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "direct-0", "namespace": SPACE, "ownerReferences": [make_owner(document)]},
            "spec": template("theirs")["spec"],
        },
    )
    assert status == 403, answer
    about = {"apiVersion": document["apiVersion"], "kind": "Train", "name": "direct", "namespace": SPACE}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "direct.1", "namespace": SPACE},
        "involvedObject": {**about, "uid": document["metadata"]["uid"]},
        "type": "Warning",
        "reason": "FailedCreatePod",
        "message": f"cannot create direct-0: {answer['message']}",
        "lastTimestamp": plane.api.get(f"/api/v1/namespaces/{SPACE}")["metadata"]["creationTimestamp"],
    }
    assert plane.api.request("POST", f"/api/v1/namespaces/{SPACE}/events", event)[0] == 201
    done = explain(installation, "train.example.com/direct")
    assert done.code == 3, done.out + done.err
    assert done.out.startswith("Denied: 1 of 1 Pods: ")
    assert CONFLICT.partition(": ")[2] in done.out


def test_pods_of_what_an_object_has_made_of_another_group_are_found(installation: Installation) -> None:
    """A TrainJob makes a JobSet, and that a Job. A Deployment between is found, too."""
    plane = installation.plane
    train_job = {"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob"}
    job_set = {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet"}
    path = "/apis/{}/namespaces/{}/{}/far"
    for document, plural, owners in ((train_job, "trainjobs", []), (job_set, "jobsets", [train_job])):
        metadata = {"name": "far", "namespace": SPACE, "ownerReferences": [make_owner(owner) for owner in owners]}
        plane.apply({**document, "metadata": metadata, "spec": {}})
        document.update(plane.api.get(path.format(document["apiVersion"], SPACE, plural)))
    labels = {"app": "train"}
    made = [
        ("batch/v1", "Job", job_set, {"template": template("theirs"), "backoffLimit": 0}),
        ("apps/v1", "Deployment", train_job, {"selector": {"matchLabels": labels}, "template": template("theirs")}),
    ]
    made[1][3]["template"]["spec"].pop("restartPolicy")
    for api_version, kind, owner, spec in made:
        metadata = {"name": f"far-{kind.lower()}", "namespace": SPACE, "ownerReferences": [make_owner(owner)]}
        plane.apply({"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec})
    plane.wait(
        lambda: "1 of 2 Pods: PlacementConflict" in explain(installation, "trainjob.trainer.kubeflow.org/far").out,
        "both denials to be told",
    )


def test_what_the_user_may_not_read_is_named(installation: Installation) -> None:
    plane = installation.plane
    kubectl(installation, "create", manifest=train("secret", {"leader": template()}))
    plane.kubectl("create", "rolebinding", "custom-view", "--clusterrole=view", "--user=custom-viewer", "-n", SPACE)
    viewer = plane.write_kubeconfig("custom-viewer")
    where = ("-n", SPACE, "--kubeconfig", viewer, "--server", "http://127.0.0.1:1")
    done = podgate("explain", "train.example.com/secret", *where)
    assert done.code == 4, done.out
    assert "train.example.com custom/secret: the object cannot be read, and its records cannot be read" in done.err
    assert "you may not get trains.example.com named secret in custom" in done.err


def test_an_object_that_does_not_exist_is_exit_4(installation: Installation) -> None:
    done = explain(installation, "train.example.com/absent")
    assert done.code == 4, done.out
    assert "nothing is known of train.example.com custom/absent: no such object" in done.err
    unserved = explain(installation, "rayjob.ray.io/absent")
    assert unserved.code == 4
    assert "no such object" in unserved.err
