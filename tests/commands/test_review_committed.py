"""`podgate review -o yaml` prints a manifest to commit; Pods read from a cluster have a hint."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.command_runner import Json, podgate, policy_text
from webhook.commands.rewritten_manifest import rewrite_manifest
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.patch import add, append

POLICY = policy_text(
    "- {name: web, match: {namespaces: [shop], podSelector: {matchLabels: {app: web}}},\n"
    "   placement: {nodeSelector: {disk: ssd}, topology: [{level: Zone, in: [b]}],\n"
    "     tolerations: [{key: gpu, operator: Exists}], priorityClassName: high, onConflict: {default: Override}},\n"
    "   resources: {container: {default: {memory: 1Gi}}}}\n",
)
TEMPLATES = {
    "Deployment": ("spec", "template"),
    "ReplicaSet": ("spec", "template"),
    "StatefulSet": ("spec", "template"),
    "DaemonSet": ("spec", "template"),
    "Job": ("spec", "template"),
    "CronJob": ("spec", "jobTemplate", "spec", "template"),
    "ReplicationController": ("spec", "template"),
    "PodTemplate": ("template",),
    "Pod": (),
}
OURS = {"podgate.io/service": "web", "podgate.io/policy-hash": "0123456789abcdef"}


def manifest(kind: str, labels: Json | None = None, annotations: Json | None = None) -> Json:
    """Build an object of a kind around one Pod."""
    metadata: Json = {"labels": {"app": "web", **(labels or {})}}
    if annotations:
        metadata["annotations"] = annotations
    containers = [{"name": "c", "image": "i"}]
    inner: Json = {"metadata": metadata, "spec": {"containers": containers, "nodeSelector": {"disk": "hdd"}}}
    for step in reversed(TEMPLATES[kind]):
        inner = {step: inner}
    inner["metadata"] = {**inner.get("metadata", {}), "name": "web", "namespace": "shop"}
    if kind in {"Deployment", "ReplicaSet", "StatefulSet", "DaemonSet"}:
        inner["spec"]["selector"] = {"matchLabels": {"app": "web"}}
    return {"kind": kind, **inner}


def template_of(document: Json, kind: str) -> Json:
    for step in TEMPLATES[kind]:
        document = document[step]
    return document


def review_yaml(document: Json) -> tuple[str, Json]:
    """Return the text, and its parsed value without comments."""
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "yaml", stdin=json.dumps(document))
    assert done.code == 0, done.err
    found: Json = yaml.safe_load(done.out)
    return done.out, found


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("policy.yaml").write_text(POLICY.replace("services:", "exemptions: {daemonSets: false}\nservices:"))


@pytest.mark.parametrize("kind", TEMPLATES)
def test_yaml_is_the_input_object_with_its_pod_spec_rewritten(kind: str) -> None:
    document = manifest(kind)
    _, found = review_yaml(document)
    spec = template_of(found, kind).pop("spec")
    assert spec["nodeSelector"] == {"disk": "ssd"}
    assert spec["priorityClassName"] == "high"
    assert spec["tolerations"] == [{"key": "gpu", "operator": "Exists"}], "no toleration that its controller adds"
    assert (
        spec["containers"] == [{"name": "c", "resources": {"limits": {"memory": "1Gi"}}}]
        or spec["containers"][0]["resources"]
    )
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert list(term) == ["matchExpressions"], "no field that its controller adds"
    template_of(document, kind).pop("spec")
    assert found == document, "all other fields are unchanged"


@pytest.mark.parametrize("kind", TEMPLATES)
def test_nulls_stay_as_they_are_written(kind: str) -> None:
    document = manifest(kind, {"version": None})
    document["status"] = document["metadata"]["generateName"] = None
    spec = template_of(document, kind)["spec"]
    spec |= {"priorityClassName": None, "tolerations": [{"key": "a", "operator": "Exists", "value": None}]}
    spec["containers"][0] |= {"ports": None, "resources": {"requests": {"cpu": None}, "limits": None}}
    _, found = review_yaml(document)
    rewritten = template_of(found, kind).pop("spec")
    assert rewritten["tolerations"] == [*spec["tolerations"], {"key": "gpu", "operator": "Exists"}]
    assert rewritten["priorityClassName"] == "high"
    container = rewritten["containers"][0]
    assert (container["ports"], container["resources"]["requests"]["cpu"]) == (None, None)
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    template_of(document, kind).pop("spec")
    assert found == document


@pytest.mark.parametrize("kind", TEMPLATES)
def test_review_of_its_own_yaml_changes_nothing(kind: str) -> None:
    _, found = review_yaml(manifest(kind))
    text, again = review_yaml(found)
    assert again == found
    assert "# warning" not in text, "nothing is replaced again"


@pytest.mark.parametrize("kind", ["Deployment", "Pod"])
def test_label_and_annotation_of_podgate_are_removed(kind: str) -> None:
    labels = {"podgate.io/service": "web"}
    carrying = manifest(kind, labels, {"podgate.io/policy-hash": "0123456789abcdef"})
    _, found = review_yaml(carrying)
    metadata = template_of(found, kind)["metadata"]
    assert metadata["labels"] == {"app": "web"}
    assert "annotations" not in metadata
    _, kept = review_yaml(manifest(kind, labels, {"podgate.io/policy-hash": "x", "mine": "1"}))
    assert template_of(kept, kind)["metadata"]["annotations"] == {"mine": "1"}


def test_service_label_is_removed_from_a_template_of_unowned_pods() -> None:
    forged = manifest("Deployment", {"podgate.io/service": "web", "app": "other"})
    forged["spec"]["selector"]["matchLabels"]["app"] = "other"
    _, found = review_yaml(forged)
    del forged["spec"]["template"]["metadata"]["labels"]["podgate.io/service"]
    assert found == forged


def test_exempt_object_is_unchanged() -> None:
    exempt = manifest("Deployment", {"podgate.io/service": "web"})
    exempt["metadata"]["namespace"] = "kube-system"
    assert review_yaml(exempt)[1] == exempt


def test_denied_object_is_marked_as_denied() -> None:
    Path("policy.yaml").write_text(POLICY.replace("default: Override", "default: Deny"))
    done = podgate("review", "-", "--policy", "policy.yaml", "-o", "yaml", stdin=json.dumps(manifest("Deployment")))
    assert done.code == 3
    assert "\n# Deployment shop/web: Deny (service web)\n# 403 Forbidden: PlacementConflict" in done.out


def make_live_pod(owner: Json | None = None, annotations: Json | None = None, **spec: Any) -> Json:
    pod = manifest("Pod", annotations=annotations)
    pod["metadata"] |= {"uid": "u", "resourceVersion": "7", **({"ownerReferences": [owner]} if owner else {})}
    return {**pod, "spec": {**pod["spec"], **spec}, "status": {"phase": "Running"}}


def owner(kind: str, *, controller: bool = True) -> Json:
    return {"apiVersion": "apps/v1", "kind": kind, "name": "web-1", "uid": "o", "controller": controller}


def hint_of(kind: str) -> str:
    return (
        f"read from a cluster, made by {kind} web-1: reviewed as requested by its controller."
        f" Review what it is made from: kubectl -n shop get {kind.lower()}.apps web-1 -o yaml | podgate review -"
    )


LIVE = {
    "written": (manifest("Pod"), "Admit", ""),
    "bare": (make_live_pod(), "Admit", "read from a cluster: reviewed as a new Pod"),
    "mirror": (
        make_live_pod(annotations={"kubernetes.io/config.mirror": "x"}, nodeName="node-1"),
        "Exempt",
        "a mirror Pod, made by the kubelet of node node-1 from a file: reviewed as requested by the kubelet",
    ),
    "of a DaemonSet": (
        make_live_pod(owner("DaemonSet")),
        "Exempt",
        hint_of("DaemonSet"),
    ),
    "of a ReplicaSet": (
        make_live_pod(owner("ReplicaSet")),
        "Admit",
        hint_of("ReplicaSet"),
    ),
    "of another's kind": (make_live_pod(owner("Rollout")), "Admit", "read from a cluster: reviewed as a new Pod"),
    "of no controller": (
        make_live_pod(owner("DaemonSet", controller=False)),
        "Admit",
        "read from a cluster: reviewed as a new Pod",
    ),
}


@pytest.mark.parametrize("case", LIVE)
def test_pod_read_from_a_cluster_is_judged_as_its_controllers_request(case: str) -> None:
    Path("policy.yaml").write_text(POLICY)
    document, verdict, hint = LIVE[case]
    text = json.dumps(document)
    (line,) = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=text).lines
    assert (line["decision"], line["hints"]) == (verdict, [hint] if hint else [])
    shown = podgate("review", "-", "--policy", "policy.yaml", stdin=text).out
    assert (f"# hint: {hint}\n" in shown) is bool(hint)


def test_owner_reference_in_a_manifest_sets_no_controller() -> None:
    Path("policy.yaml").write_text(POLICY)
    written = manifest("Pod")
    written["metadata"]["ownerReferences"] = [owner("DaemonSet")]
    (line,) = podgate("review", "-", "--policy", "policy.yaml", "-o", "json", stdin=json.dumps(written)).lines
    assert (line["decision"], line["hints"]) == ("Admit", [])


def test_user_option_applies_to_pods_of_a_controller() -> None:
    Path("policy.yaml").write_text(POLICY)
    arguments = ["review", "-", "--policy", "policy.yaml", "-o", "json", "--as", "alice"]
    (line,) = podgate(*arguments, stdin=json.dumps(make_live_pod(owner("DaemonSet")))).lines
    assert line["decision"] == "Admit"


@pytest.mark.parametrize("kind", TEMPLATES)
@pytest.mark.parametrize("gates", [None, [{"name": "example.com/later"}]])
def test_the_gate_of_a_queue_is_not_committed(kind: str, gates: list[Json] | None) -> None:
    """Whether Pods wait depends on the moment: without a queue, Pods of a template with this gate are denied."""
    document = manifest(kind)
    if gates is not None:
        template_of(document, kind)["spec"]["schedulingGates"] = gates
    patch = [
        *append([{"name": QUEUE_GATE}], gates, "spec", "schedulingGates"),
        add("b", "spec", "nodeSelector", "zone"),
    ]
    rewritten = rewrite_manifest(document, TEMPLATES[kind], patch)
    template_of(document, kind)["spec"]["nodeSelector"]["zone"] = "b"
    assert rewritten == document
