"""Simulated Pods compared with those of Kubernetes' own controllers, for each kind."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from webhook.commands.manifests import Subject, read_subjects
from webhook.core.kubernetes.controllers import WORKLOAD_KINDS
from webhook.core.workloads import SimulatedPod, simulate

NAMESPACE, TWIN = "simulated", "simulated-twin"
NO_SCHEDULER = "nobody-serves-this"
"""Name of a scheduler that does not exist, so that Pods stay as their controllers created them."""
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]}]
        },
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "preference": {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}}
        ],
    }
}
TOLERATIONS = [
    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
    {"key": "dedicated", "operator": "Equal", "value": "batch", "effect": "NoSchedule"},
]
KEPT_METADATA = {"annotations": {"example.com/a": "1"}, "finalizers": ["example.com/kept"]}
VOLUME = {"name": "scratch", "emptyDir": {}}
CLAIM = {
    "metadata": {"name": "data"},
    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
}
ENV = [{"name": "JOB_COMPLETION_INDEX", "value": "own"}]
INDEXED = {"completionMode": "Indexed", "completions": 3, "parallelism": 1}


def container(name: str = "c", **more: Any) -> dict[str, Any]:
    return {"name": name, "image": "i", **more}


def workload(kind: str, name: str, labels: dict[str, str] | None = None, pod: Any = None, **spec: Any) -> Any:
    """Return an object of a kind; `pod` has more fields of the template's spec."""
    metadata = {"labels": {"app": name, **(labels or {})}, **KEPT_METADATA}
    restart_policy = {"restartPolicy": "Never"} if kind in {"Job", "CronJob"} else {}
    template = {
        "metadata": metadata,
        "spec": {"schedulerName": NO_SCHEDULER, "containers": [container()], **restart_policy},
    }
    template["spec"] |= pod or {}
    group = next(source.api_version for source in WORKLOAD_KINDS if source.kind == kind)
    body: dict[str, Any] = {"template": template}
    if kind == "ReplicationController":
        body["selector"] = {"app": name}
    elif kind not in {"Job", "CronJob"}:
        body["selector"] = {"matchLabels": {"app": name}}
    body |= spec
    if kind == "CronJob":
        body = {"schedule": "* * * * *", "jobTemplate": {"metadata": {"labels": {"of": "the-job"}}, "spec": body}}
    return {"apiVersion": group, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, "spec": body}


def make_generated(manifest: Any) -> Any:
    """Return an object with `generateName`; its Pods are found by their label."""
    name = manifest["metadata"].pop("name")
    return {**manifest, "metadata": {**manifest["metadata"], "generateName": f"{name}-"}}


MANUAL = {"manualSelector": True, "selector": {"matchLabels": {"app": "job-manual"}}}
HASHES = {"pod-template-hash": "theirs", "controller-revision-hash": "theirs", "pod-template-generation": "77"}
NUMBERS = {"statefulset.kubernetes.io/pod-name": "theirs", "apps.kubernetes.io/pod-index": "8"}
INDEX = {"batch.kubernetes.io/job-completion-index": "9"}
WORKLOADS = [
    workload("Deployment", "deployment"),
    workload("Deployment", "deployment-labelled", HASHES, {"affinity": AFFINITY, "tolerations": TOLERATIONS}),
    make_generated(workload("Deployment", "deployment-generated")),
    workload("ReplicaSet", "replicaset", HASHES),
    workload("ReplicationController", "replicationcontroller", HASHES),
    workload("StatefulSet", "statefulset", {**HASHES, **NUMBERS}),
    workload(
        "StatefulSet",
        "statefulset-claims",
        pod={"volumes": [VOLUME, {"name": "data", "emptyDir": {}}], "hostname": "own", "subdomain": "own"},
        serviceName="peers",
        replicas=2,
        ordinals={"start": 5},
        volumeClaimTemplates=[CLAIM],
    ),
    make_generated(workload("StatefulSet", "statefulset-generated")),
    workload("DaemonSet", "daemonset", HASHES),
    workload(
        "DaemonSet", "daemonset-placed", pod={"affinity": AFFINITY, "tolerations": TOLERATIONS, "hostNetwork": True}
    ),
    workload("Job", "job", pod={"schedulingGates": [{"name": "example.com/gate"}]}),
    workload("Job", "job-labelled", {"job-name": "job-labelled", "batch.kubernetes.io/job-name": "job-labelled"}),
    workload("Job", "job-manual", {"job-name": "theirs", "controller-uid": "theirs"}, **MANUAL),
    make_generated(workload("Job", "job-generated")),
    workload("Job", "job-indexed", INDEX, {"initContainers": [container("i")], "hostname": "own"}, **INDEXED),
    workload(
        "Job",
        "job-indexed-with-a-name-so-long-that-pods-names-lose-its",
        pod={"containers": [container(env=ENV), container("d")]},
        backoffLimitPerIndex=1,
        **INDEXED,
    ),
    workload("CronJob", "cronjob"),
    workload("CronJob", "cronjob-indexed", INDEX, **INDEXED),
]


def label_of(document: Any) -> str:
    """Return the label `app` of an object's Pods."""
    spec = document["spec"].get("jobTemplate", {}).get("spec") or document["spec"]
    return str(spec["template"]["metadata"]["labels"]["app"])


CreatedWorkloads = dict[str, tuple[Any, Any]]


@pytest.fixture(scope="module")
def created_workloads(plane: ControlPlane) -> Iterator[CreatedWorkloads]:
    """Create all workloads; return each stored object and its first Pod."""
    for namespace in (NAMESPACE, TWIN):
        plane.create_namespace(namespace)
    object_list = {"apiVersion": "v1", "kind": "List", "items": WORKLOADS}
    created = plane.kubectl("create", "-f", "-", "-o", "json", input=json.dumps(object_list)).stdout
    stored = {label_of(document): document for document in _documents(created)}
    plane.wait(lambda: stored.keys() <= _pods(plane).keys(), "a Pod of each workload", "kube-controller-manager")
    pods = _pods(plane)
    yield {name: (document, pods[name]) for name, document in stored.items()}
    for item in _items(plane):
        patch = json.dumps({"metadata": {"finalizers": None}})
        plane.kubectl(
            "patch", "pod", item["metadata"]["name"], "-n", NAMESPACE, "--type=merge", "-p", patch, check=False
        )
    plane.kubectl("delete", "namespace", NAMESPACE, TWIN, "--wait=false")


def _documents(text: str) -> list[Any]:
    """Parse concatenated JSON objects."""
    decoder, documents, offset = json.JSONDecoder(), [], 0
    while text[offset:].strip():
        document, offset = decoder.raw_decode(text, len(text) - len(text[offset:].lstrip()))
        documents += document.get("items", [document])
    return documents


def _items(plane: ControlPlane) -> list[Any]:
    return list(plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"])


def _pods(plane: ControlPlane) -> dict[str, Any]:
    """Return the first Pod of each workload, by index where they have one."""
    items = sorted(_items(plane), key=lambda pod: pod["metadata"]["name"], reverse=True)
    return {pod["metadata"]["labels"]["app"]: pod for pod in items}


def fits(simulated_value: str, real_value: str) -> bool:
    """Whether a real value matches a simulated one, in which text in angle brackets is a wildcard."""
    parts = re.split(r"<[^>]*>", simulated_value)
    return re.fullmatch(".+".join(re.escape(part) for part in parts), real_value) is not None


@pytest.fixture(params=WORKLOADS, ids=label_of)
def case(request: pytest.FixtureRequest, created_workloads: CreatedWorkloads, tmp_path: Path) -> tuple[Any, Any, Any]:
    """Return a workload as read from a file, as stored, and its Pod."""
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(request.param))
    (subject,) = read_subjects(path, NAMESPACE)
    assert isinstance(subject, Subject)
    return subject, *created_workloads[label_of(request.param)]


def simulations(subject: Subject, stored: Any) -> Iterator[SimulatedPod]:
    """Yield the Pod as `review` simulates it from a file, and as the server simulates it from the stored object."""
    source = subject.source
    assert source is not None
    for document in (subject.workload, stored):
        template = document
        for key in source.template_at:
            template = template[key]
        yield simulate(source, document, template, NAMESPACE, is_stored=document is stored)


def test_simulated_metadata_equals_what_the_controller_writes(case: tuple[Subject, Any, Any]) -> None:
    subject, stored, pod = case
    real_metadata = pod["metadata"]
    for simulated in simulations(subject, stored):
        metadata = simulated.document["metadata"]
        assert metadata["labels"].keys() == real_metadata["labels"].keys()
        for key, value in real_metadata["labels"].items():
            unresolved = simulated.unresolved.get(key)
            assert (
                metadata["labels"][key] == value if unresolved is None else unresolved.is_among((value,)) is not False
            ), key
        assert metadata["annotations"] == real_metadata["annotations"]
        assert sorted(metadata["finalizers"]) == sorted(real_metadata["finalizers"])
        assert metadata["namespace"] == real_metadata["namespace"]
        assert fits(metadata["generateName"], real_metadata["generateName"])
        assert fits(metadata.get("name", "<generated>"), real_metadata["name"])
        (simulated_owner,), (owner,) = metadata["ownerReferences"], real_metadata["ownerReferences"]
        assert simulated_owner.keys() == owner.keys()
        assert all(fits(simulated_owner[key], owner[key]) for key in ("apiVersion", "kind", "name", "uid"))
        assert (simulated_owner["controller"], simulated_owner["blockOwnerDeletion"]) == (True, True)


UNKNOWN_WHEN_STORED = {
    "Deployment": {"pod-template-hash"},
    "StatefulSet": {"controller-revision-hash"},
    "DaemonSet": {"controller-revision-hash"},
    "CronJob": {"job-name", "batch.kubernetes.io/job-name", "controller-uid", "batch.kubernetes.io/controller-uid"},
}
UNKNOWN_PER_POD = {
    "statefulset-claims": {"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"},
    "cronjob-indexed": {"batch.kubernetes.io/job-completion-index"},
    "job-indexed": {"batch.kubernetes.io/job-completion-index"},
    "job-indexed-with-a-name-so-long-that-pods-names-lose-its": {"batch.kubernetes.io/job-completion-index"},
}


def test_simulation_of_a_stored_object_leaves_only_expected_fields_unresolved(case: tuple[Subject, Any, Any]) -> None:
    subject, stored, _ = case
    _, simulated = simulations(subject, stored)
    expected = UNKNOWN_WHEN_STORED.get(subject.kind, set()) | UNKNOWN_PER_POD.get(label_of(stored), set())
    assert simulated.unresolved.keys() == expected


def test_simulated_spec_equals_what_the_controller_writes(case: tuple[Subject, Any, Any], plane: ControlPlane) -> None:
    """The API server defaults both specs."""
    subject, _, pod = case
    real_spec, owner = pod["spec"], pod["metadata"]["ownerReferences"][0]["name"]
    simulated_pod = copy.deepcopy(subject.pod)
    # Values that are generated later are copied from the real Pod.
    simulated_owner = simulated_pod["metadata"].pop("ownerReferences")[0]["name"]
    copied_fields = ("name", "generateName", "labels")
    simulated_pod["metadata"] |= {
        "namespace": TWIN,
        **{key: pod["metadata"][key] for key in copied_fields if key in simulated_pod["metadata"]},
    }
    text = json.dumps(simulated_pod["spec"]).replace(simulated_owner, owner)
    if "<node>" in text:
        terms = real_spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][
            "nodeSelectorTerms"
        ]
        text = text.replace("<node>", terms[0]["matchFields"][0]["values"][0])
    simulated_pod["spec"] = json.loads(text)
    status, answer = plane.api.request("POST", f"/api/v1/namespaces/{TWIN}/pods?dryRun=All", simulated_pod)
    assert status == 201, answer
    assert _normalize(answer["spec"]) == _normalize(real_spec)


def _normalize(spec: Any) -> Any:
    """Return a spec without the generated name of the token's volume, and volumes in one order."""
    text = re.sub(r"kube-api-access-[a-z0-9]+", "kube-api-access", json.dumps(spec))
    comparable = json.loads(text)
    comparable["volumes"].sort(key=lambda volume: volume["name"])
    return comparable
