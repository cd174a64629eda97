"""Simulated Pods compared with those of Kubernetes' own controllers, for each kind."""

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.controlplane import ControlPlane
from webhook.core.kubernetes.pod_templates import WORKLOAD_KINDS
from webhook.core.simulation import SimulatedPod, simulate
from webhook.offline.manifests import Subject, subjects

NAMESPACE, TWIN = "simulated", "simulated-twin"
NOBODY = "nobody-serves-this"
"""A scheduler's name: Pods stay as their controller made them."""
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
KEPT = {"annotations": {"example.com/a": "1"}, "finalizers": ["example.com/kept"]}
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
    """Return an object of a kind; `pod` is what the template's spec has beside a container."""
    metadata = {"labels": {"app": name, **(labels or {})}, **KEPT}
    of_jobs = {"restartPolicy": "Never"} if kind in {"Job", "CronJob"} else {}
    template = {"metadata": metadata, "spec": {"schedulerName": NOBODY, "containers": [container()], **of_jobs}}
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


def generated(of: Any) -> Any:
    """Return an object whose name the API server generates; its Pods are found by their label."""
    name = of["metadata"].pop("name")
    return {**of, "metadata": {**of["metadata"], "generateName": f"{name}-"}}


MANUAL = {"manualSelector": True, "selector": {"matchLabels": {"app": "job-manual"}}}
HASHES = {"pod-template-hash": "theirs", "controller-revision-hash": "theirs", "pod-template-generation": "77"}
NUMBERS = {"statefulset.kubernetes.io/pod-name": "theirs", "apps.kubernetes.io/pod-index": "8"}
INDEX = {"batch.kubernetes.io/job-completion-index": "9"}
WORKLOADS = [
    workload("Deployment", "deployment"),
    workload("Deployment", "deployment-labelled", HASHES, {"affinity": AFFINITY, "tolerations": TOLERATIONS}),
    generated(workload("Deployment", "deployment-generated")),
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
    generated(workload("StatefulSet", "statefulset-generated")),
    workload("DaemonSet", "daemonset", HASHES),
    workload(
        "DaemonSet", "daemonset-placed", pod={"affinity": AFFINITY, "tolerations": TOLERATIONS, "hostNetwork": True}
    ),
    workload("Job", "job", pod={"schedulingGates": [{"name": "example.com/gate"}]}),
    workload("Job", "job-labelled", {"job-name": "job-labelled", "batch.kubernetes.io/job-name": "job-labelled"}),
    workload("Job", "job-manual", {"job-name": "theirs", "controller-uid": "theirs"}, **MANUAL),
    generated(workload("Job", "job-generated")),
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


def label_of(one: Any) -> str:
    """Return the label `app` of an object's Pods."""
    spec = one["spec"].get("jobTemplate", {}).get("spec") or one["spec"]
    return str(spec["template"]["metadata"]["labels"]["app"])


Found = dict[str, tuple[Any, Any]]


@pytest.fixture(scope="module")
def found(plane: ControlPlane) -> Iterator[Found]:
    """Create everything; return each as it is stored, and the first Pod of it."""
    for namespace in (NAMESPACE, TWIN):
        plane.create_namespace(namespace)
    everything = {"apiVersion": "v1", "kind": "List", "items": WORKLOADS}
    created = plane.kubectl("create", "-f", "-", "-o", "json", input=json.dumps(everything)).stdout
    stored = {label_of(one): one for one in _documents(created)}
    plane.wait(lambda: stored.keys() <= _pods(plane).keys(), "a Pod of each workload", "kube-controller-manager")
    pods = _pods(plane)
    yield {name: (one, pods[name]) for name, one in stored.items()}
    for one in _items(plane):
        patch = json.dumps({"metadata": {"finalizers": None}})
        plane.kubectl(
            "patch", "pod", one["metadata"]["name"], "-n", NAMESPACE, "--type=merge", "-p", patch, check=False
        )
    plane.kubectl("delete", "namespace", NAMESPACE, TWIN, "--wait=false")


def _documents(text: str) -> list[Any]:
    """Read objects that stand one after another."""
    decoder, read, place = json.JSONDecoder(), [], 0
    while text[place:].strip():
        one, place = decoder.raw_decode(text, len(text) - len(text[place:].lstrip()))
        read += one.get("items", [one])
    return read


def _items(plane: ControlPlane) -> list[Any]:
    return list(plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"])


def _pods(plane: ControlPlane) -> dict[str, Any]:
    """Return the first Pod of each workload, by index where they have one."""
    items = sorted(_items(plane), key=lambda pod: pod["metadata"]["name"], reverse=True)
    return {pod["metadata"]["labels"]["app"]: pod for pod in items}


def fits(shown: str, real: str) -> bool:
    """Say whether a real value fits what a simulated one shows; what stands in angle brackets may be anything."""
    parts = re.split(r"<[^>]*>", shown)
    return re.fullmatch(".+".join(re.escape(part) for part in parts), real) is not None


@pytest.fixture(params=WORKLOADS, ids=label_of)
def case(request: pytest.FixtureRequest, found: Found, tmp_path: Path) -> tuple[Any, Any, Any]:
    """Return a workload as `review` reads it from a file, as it is stored, and its Pod."""
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(request.param))
    (subject,) = subjects(path, NAMESPACE)
    assert isinstance(subject, Subject)
    return subject, *found[label_of(request.param)]


def simulations(subject: Subject, stored: Any) -> Iterator[SimulatedPod]:
    """Yield the Pod as `review` simulates it from a file, and as the server does of an object that is stored."""
    source = subject.source
    assert source is not None
    for document in (subject.workload, stored):
        template = document
        for key in source.template_at:
            template = template[key]
        yield simulate(source, document, template, NAMESPACE, is_stored=document is stored)


def test_simulated_metadata_equals_what_the_controller_writes(case: tuple[Subject, Any, Any]) -> None:
    subject, stored, pod = case
    real = pod["metadata"]
    for simulated in simulations(subject, stored):
        ours = simulated.document["metadata"]
        assert ours["labels"].keys() == real["labels"].keys()
        for key, value in real["labels"].items():
            unresolved = simulated.unresolved.get(key)
            assert ours["labels"][key] == value if unresolved is None else unresolved.among((value,)) is not False, key
        assert ours["annotations"] == real["annotations"]
        assert sorted(ours["finalizers"]) == sorted(real["finalizers"])
        assert ours["namespace"] == real["namespace"]
        assert fits(ours["generateName"], real["generateName"])
        assert fits(ours.get("name", "<generated>"), real["name"])
        (our_owner,), (owner,) = ours["ownerReferences"], real["ownerReferences"]
        assert our_owner.keys() == owner.keys()
        assert all(fits(our_owner[key], owner[key]) for key in ("apiVersion", "kind", "name", "uid"))
        assert (our_owner["controller"], our_owner["blockOwnerDeletion"]) == (True, True)


UNKNOWN_WHEN_STORED = {
    "Deployment": {"pod-template-hash"},
    "StatefulSet": {"controller-revision-hash"},
    "DaemonSet": {"controller-revision-hash"},
    "CronJob": {"job-name", "batch.kubernetes.io/job-name", "controller-uid", "batch.kubernetes.io/controller-uid"},
}
EACH_ITS_OWN = {
    "statefulset-claims": {"statefulset.kubernetes.io/pod-name", "apps.kubernetes.io/pod-index"},
    "cronjob-indexed": {"batch.kubernetes.io/job-completion-index"},
    "job-indexed": {"batch.kubernetes.io/job-completion-index"},
    "job-indexed-with-a-name-so-long-that-pods-names-lose-its": {"batch.kubernetes.io/job-completion-index"},
}


def test_simulation_of_a_stored_object_leaves_only_expected_fields_unresolved(case: tuple[Subject, Any, Any]) -> None:
    subject, stored, _ = case
    _, simulated = simulations(subject, stored)
    expected = UNKNOWN_WHEN_STORED.get(subject.kind, set()) | EACH_ITS_OWN.get(label_of(stored), set())
    assert simulated.unresolved.keys() == expected


def test_simulated_spec_equals_what_the_controller_writes(case: tuple[Subject, Any, Any], plane: ControlPlane) -> None:
    """Both go through the API server's own defaulting: what it adds is no difference."""
    subject, _, pod = case
    real, owner = pod["spec"], pod["metadata"]["ownerReferences"][0]["name"]
    ours = copy.deepcopy(subject.pod)
    # What is not known beforehand is filled in from the real one.
    our_owner = ours["metadata"].pop("ownerReferences")[0]["name"]
    given = ("name", "generateName", "labels")
    ours["metadata"] |= {"namespace": TWIN, **{key: pod["metadata"][key] for key in given if key in ours["metadata"]}}
    text = json.dumps(ours["spec"]).replace(our_owner, owner)
    if "<node>" in text:
        terms = real["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        text = text.replace("<node>", terms[0]["matchFields"][0]["values"][0])
    ours["spec"] = json.loads(text)
    status, taken = plane.api.request("POST", f"/api/v1/namespaces/{TWIN}/pods?dryRun=All", ours)
    assert status == 201, taken
    assert _comparable(taken["spec"]) == _comparable(real)


def _comparable(spec: Any) -> Any:
    """Return a spec without the generated name of the token's volume, and volumes in one order."""
    text = re.sub(r"kube-api-access-[a-z0-9]+", "kube-api-access", json.dumps(spec))
    read = json.loads(text)
    read["volumes"].sort(key=lambda one: one["name"])
    return read
