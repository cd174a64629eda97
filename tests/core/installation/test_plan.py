"""Plans: order, refused states, ways to run, rollouts, and removal."""

from dataclasses import replace
from importlib.metadata import version
from typing import Any

import pytest
import yaml

from webhook.core.installation import removal, ways
from webhook.core.installation.kustomization import build_folder, build_objects
from webhook.core.installation.live_ways import LiveObjects
from webhook.core.installation.objects import Json, ObjectReference, differs, sort_objects
from webhook.core.installation.ownership import hand_over
from webhook.core.installation.plan import (
    InstallPlan,
    LiveState,
    Obstacle,
    describe_rollout,
    is_rolled_out,
    load_policy,
)
from webhook.core.installation.record import InstallationRecord
from webhook.operations.shipped_manifests import read_example_policy, read_manifest_files

IMAGE = f"podgate:{version('podgate')}"
"""The one that the manifests have: any other is kept, by name."""
MEMORY = InstallationRecord("0", "memory", "own")
NOTHING = LiveState(None, None, None)


def server(*arguments: str, managers: tuple[str, ...] = ("kubectl-client-side-apply",), **metadata: Any) -> Json:
    """Return the Deployment of the servers, with a manager of fields for each name; podgate-install applies."""
    operations = {"podgate-install": "Apply"}
    entries = [{"manager": manager, "operation": operations.get(manager, "Update")} for manager in managers]
    container = {"name": "podgate", "image": IMAGE, "args": [*arguments]}
    spec = {"replicas": 1, "template": {"spec": {"containers": [container]}}}
    return {"metadata": {"name": "podgate", "managedFields": entries, **metadata}, "spec": spec}


def build_live_state(record: InstallationRecord | None = None, **objects: Any) -> LiveState:
    return LiveState(None, record, None, LiveObjects(**objects))


def plan(policy: str = "policy", *, given: bool = False) -> InstallPlan:
    return InstallPlan(MEMORY, (), policy, given)


def test_each_way_has_a_kustomization() -> None:
    files = read_manifest_files()
    for mode in (ways.MEMORY, ways.REDIS, ways.REDUCED):
        for certificates in ways.CERTIFICATES:
            way = ways.build_way(mode, certificates)
            assert (way is None) == (mode == ways.REDUCED and certificates != ways.FILES)
            assert way is None or build_objects(files, way)


@pytest.mark.parametrize(
    ("mode", "certificates"),
    [
        (ways.REDUCED, ways.FILES),
        *((mode, certificate) for mode in (ways.MEMORY, ways.REDIS) for certificate in ways.CERTIFICATES),
    ],
)
def test_each_way_can_have_a_scheduler_whose_certificates_are_managed_alike(mode: str, certificates: str) -> None:
    files = read_manifest_files()
    without, way = (ways.build_way(mode, certificates, has_scheduler=has) for has in (False, True))
    assert way is not None
    assert without is not None
    found = build_objects(files, way)
    added = {document["metadata"]["name"] for document in found} - {
        document["metadata"]["name"] for document in build_objects(files, without)
    }
    assert added == {
        "podgate-extender",
        "podgate-scheduler",
        "podgate-scheduler-volumes",
        "podgate-scheduler-authentication",
        "podgate-wake",
    }
    issuers = [
        document for document in found if document["kind"] == "Certificate" and document["metadata"]["name"] in added
    ]
    assert bool(issuers) == (certificates == ways.CERT_MANAGER)
    leaders = [
        document["metadata"]["name"]
        for document in found
        if document["kind"] == "Deployment"
        and "--scheduler-certificates=true" in document["spec"]["template"]["spec"]["containers"][0]["args"]
    ]
    leader = "podgate-controller" if mode == ways.REDIS else "podgate"
    assert leaders == ([leader] if certificates == ways.OWN else [])
    assert [document for document in build_objects(files, way) if document["kind"] == "StorageClass"]


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (None, "registry.k8s.io/kube-scheduler:v1.36.3"),
        ("mirror:5000/kube-scheduler", "mirror:5000/kube-scheduler:v1.36.3"),
        ("mirror/kube-scheduler:v1.35.0", "mirror/kube-scheduler:v1.35.0"),
    ],
)
def test_scheduler_has_the_version_of_the_cluster_unless_its_image_has_one(image: str | None, expected: str) -> None:
    way = ways.build_way(ways.MEMORY, ways.OWN, has_scheduler=True)
    assert way is not None
    documents = ways.apply_choices(
        build_objects(read_manifest_files(), way), image="mine:1", scheduler_image=image or ways.SCHEDULER_IMAGE
    )
    found = ways.set_scheduler_version(documents, "v1.36.3-eks-1a2b3c4")
    images = {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]["containers"][0]["image"]
        for document in found
        if document["kind"] == "Deployment"
    }
    assert images == {"podgate": "mine:1", "podgate-extender": "mine:1", "podgate-scheduler": expected}


def test_installation_with_a_scheduler_is_not_repeated_without_it() -> None:
    found = plan().find_obstacle(
        build_live_state(InstallationRecord("0", "memory", "own", scheduler="podgate-scheduler"))
    )
    assert found is not None
    assert "data.scheduler: 'podgate-scheduler'" in found.message
    added = InstallPlan(InstallationRecord("0", "memory", "own", scheduler="podgate-scheduler"), (), "policy")
    assert added.find_obstacle(build_live_state(MEMORY)) is None


def test_namespace_is_applied_first_and_the_deployment_last() -> None:
    kinds = [document["kind"] for document in sort_objects(build_folder(read_manifest_files(), "overlays/redis"))]
    assert kinds[:2] == ["Namespace", "CustomResourceDefinition"]
    assert kinds[-2:] == ["Deployment", "Deployment"]
    assert kinds.index("ConfigMap") > kinds.index("RoleBinding") > kinds.index("ServiceAccount")


def test_chosen_values_replace_those_of_the_manifests() -> None:
    documents = build_folder(read_manifest_files(), "overlays/redis")
    chosen = ways.apply_choices(documents, store="redis://mine:1/0", image="registry/podgate:2", replicas=5)
    deployments = {
        document["metadata"]["name"]: document["spec"] for document in chosen if document["kind"] == "Deployment"
    }
    for spec in deployments.values():
        [container] = spec["template"]["spec"]["containers"]
        assert container["image"] == "registry/podgate:2"
        assert [argument for argument in container["args"] if argument.startswith("--store=")] == [
            "--store=redis://mine:1/0"
        ]
    assert (deployments["podgate"]["replicas"], deployments["podgate-controller"]["replicas"]) == (5, 2)
    assert ways.apply_choices(documents) == documents


def test_tokens_of_the_node_agent_are_those_that_servers_accept() -> None:
    [daemon_set] = [
        document
        for document in ways.set_token_issuer(build_folder(read_manifest_files(), "apiserver"), "cluster")
        if document["kind"] == "DaemonSet"
    ]
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    assert "--token=cluster" in container["args"]


def test_identities_get_the_issuer_of_the_clusters_tokens() -> None:
    documents = build_folder(read_manifest_files(), "overlays/cert-manager")
    [changed] = [
        document
        for document in ways.set_identity_issuer(documents, "https://mine")
        if document["metadata"]["name"] == "podgate-identities"
    ]
    issuers = [identity["issuer"] for identity in yaml.safe_load(changed["data"]["identities.yaml"])]
    assert issuers == ["https://podgate.podgate-system.svc", "https://mine"]


def test_a_fresh_cluster_is_accepted() -> None:
    assert plan().find_obstacle(NOTHING) is None
    assert (
        plan().find_obstacle(LiveState({"metadata": {}}, MEMORY, "policy", LiveObjects(server("--certificates=own"))))
        is None
    )


@pytest.mark.parametrize(
    ("state", "place"),
    [
        (LiveState({"metadata": {"deletionTimestamp": "now"}}, None, None), "metadata.deletionTimestamp: now"),
        (build_live_state(InstallationRecord("0", "redis", "own")), "data.mode: 'redis'"),
        (build_live_state(InstallationRecord("0", "memory", "files")), "data.certificates: 'files'"),
        (build_live_state(InstallationRecord("0", "memory", "own", "https://h:1")), "data.serverURL: 'https"),
        (
            build_live_state(server=server(labels={"app.kubernetes.io/managed-by": "Helm"})),
            "metadata.labels[app.kubernetes.io/managed-by]: 'Helm'",
        ),
        (
            build_live_state(
                MEMORY, server=server(annotations={"argocd.argoproj.io/tracking-id": "podgate:apps/Deployment"})
            ),
            "metadata.annotations[argocd.argoproj.io/tracking-id]: 'podgate:apps/Deployment': another tool",
        ),
        (
            build_live_state(webhooks={"metadata": {"labels": {"kustomize.toolkit.fluxcd.io/name": "podgate"}}}),
            "podgate: metadata.labels[kustomize.toolkit.fluxcd.io/name]: 'podgate': another tool",
        ),
    ],
)
def test_half_states_are_refused_with_object_field_and_value(state: LiveState, place: str) -> None:
    for is_forced in (False, True):
        found = plan().find_obstacle(state, is_forced=is_forced)
        assert found is not None
        assert place in found.message
        assert found.remedy


SERVING: dict[str, Any] = {"metadata": {"name": "podgate-tls"}}
ISSUED: dict[str, Any] = {"metadata": {"labels": {"app.kubernetes.io/managed-by": "podgate-certs"}}}
CONFIRMED: dict[str, Any] = {"metadata": {"annotations": {"cert-manager.io/certificate-name": "podgate-serving"}}}
OUTSIDE: dict[str, Any] = {"metadata": {}, "webhooks": [{"clientConfig": {"url": "https://h:1/mutate"}}]}
INSIDE: dict[str, Any] = {"metadata": {}, "webhooks": [{"clientConfig": {"service": {"name": "podgate"}}}]}
STORE = "redis://mine:6379/0"


@pytest.mark.parametrize(
    ("objects_by_hand", "options"),
    [
        ({"server": server()}, "--certificates files --pki pki"),
        ({"server": server("--certificates=own"), "certificate": SERVING}, "--certificates files --pki pki"),
        ({"server": server("--certificates=own")}, ""),
        ({"server": server(), "certificate": ISSUED}, ""),
        ({"server": server(), "certificate": CONFIRMED}, "--certificates cert-manager"),
        ({"server": server("--reduced-path-file=/p")}, "--reduced --pki pki"),
        (
            {"server": server(f"--store={STORE}"), "controller": server(f"--store={STORE}", "--certificates=own")},
            f"--store {STORE} --replicas 1",
        ),
        ({"server": server("--certificates=own"), "scheduler": server()}, "--with-scheduler"),
        ({"webhooks": OUTSIDE}, "--server-url https://h:1 --pki pki"),
        ({"certificate": SERVING}, "--certificates files --pki pki"),
    ],
)
def test_installation_by_hand_is_refused_with_the_command_that_takes_it_over(
    objects_by_hand: dict[str, Any], options: str
) -> None:
    """The plan that is refused has another way, unless the servers are those of the default."""
    shipped = InstallPlan(MEMORY, (), "policy", image=ways.find_image(build_folder(read_manifest_files(), ".")))
    found = shipped.find_obstacle(build_live_state(**objects_by_hand))
    assert found is not None
    assert "installed by hand (there is no configmap/podgate-installation)" in found.message
    command = " ".join(filter(None, ("podgate install", options, "--force-conflicts")))
    assert found.remedy.partition(": ")[2].partition(";")[0] == command


def test_the_same_way_is_taken_over_when_told_to() -> None:
    by_hand = build_live_state(server=server("--certificates=own"))
    found = plan().find_obstacle(by_hand)
    assert found is not None
    assert "its fields are of kubectl-client-side-apply" in found.message
    assert plan().find_obstacle(by_hand, is_forced=True) is None
    begun = build_live_state(server=server("--certificates=own", managers=("kubectl-edit", "podgate-install")))
    assert plan().find_obstacle(begun) is None, "an installation that was interrupted continues"
    assert plan().find_obstacle(build_live_state(certificate=ISSUED)) is None, "Secrets that the leader will write"


def test_image_and_number_of_servers_are_named_where_they_are_not_those_of_the_manifests() -> None:
    many = server(f"--store={STORE}")
    many["spec"]["replicas"] = 5
    many["spec"]["template"]["spec"]["containers"][0]["image"] = "mine/podgate:2"
    shipped = InstallPlan(MEMORY, (), "policy", image=ways.find_image(build_folder(read_manifest_files(), ".")))
    found = shipped.find_obstacle(build_live_state(InstallationRecord("0", "redis", "own"), server=many))
    assert found is not None
    assert f"podgate install --store {STORE} --image mine/podgate:2 --replicas 5;" in found.remedy


def test_servers_in_the_cluster_are_not_replaced_by_one_outside() -> None:
    """They were installed by hand, without a record."""
    outside = InstallPlan(InstallationRecord("0", "memory", "files", "https://h:1"), (), "policy")
    for here, place in (
        ({"server": server()}, "deployment.apps/podgate: installed by hand"),
        ({"webhooks": INSIDE}, "mutatingwebhookconfiguration.admissionregistration.k8s.io/podgate: installed by hand"),
    ):
        found = outside.find_obstacle(build_live_state(**here), is_forced=True)
        assert found is not None
        assert place in found.message
        assert "serverURL: 'in the cluster'" in found.message
    assert outside.find_obstacle(build_live_state(certificate=SERVING)) is None


def test_fields_that_kubectl_has_applied_are_handed_over() -> None:
    entries = [
        {"manager": "kubectl-client-side-apply", "operation": "Update", "fieldsV1": {"f:a": {"f:b": {}}, "f:c": {}}},
        {"manager": "kubectl", "operation": "Apply", "fieldsV1": {"f:d": {}}},
        {"manager": "podgate-install", "operation": "Apply", "fieldsV1": {"f:a": {"f:e": {}}}},
        {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:f": {}}},
        {"manager": "kubectl", "operation": "Apply", "subresource": "scale", "fieldsV1": {"f:g": {}}},
    ]
    document = {"metadata": {"managedFields": [{**entry, "apiVersion": "v1"} for entry in entries]}}
    taken = hand_over(document)
    assert taken is not None
    assert [(entry["manager"], entry.get("subresource")) for entry in taken[:-1]] == [
        ("kubectl-edit", None),
        ("kubectl", "scale"),
    ]
    assert taken[-1]["fieldsV1"] == {"f:a": {"f:b": {}, "f:e": {}}, "f:c": {}, "f:d": {}}
    assert (taken[-1]["manager"], taken[-1]["operation"]) == ("podgate-install", "Apply")
    assert hand_over({"metadata": {"managedFields": taken}}) is None


def test_live_policy_differs_only_matters_if_one_is_given() -> None:
    state = LiveState(None, None, "live")
    assert plan("mine").find_obstacle(state) is None
    assert plan("live", given=True).find_obstacle(state) is None
    found = plan("mine", given=True).find_obstacle(state)
    assert found is not None
    assert "never replaced" in found.remedy


def test_mistakes_of_a_policy_are_listed() -> None:
    assert not isinstance(load_policy(read_example_policy(), "x"), Obstacle)
    found = load_policy("kind: Policy\n", "policy.yaml")
    assert isinstance(found, Obstacle)
    assert found.message.startswith("policy.yaml: not a valid policy:\npolicy.yaml:")


def test_what_the_api_server_maintains_is_no_difference() -> None:
    before: dict[str, Any] = {
        "metadata": {"name": "n", "resourceVersion": "1", "managedFields": []},
        "status": {"a": 1},
    }
    assert not differs(before, {"metadata": {"name": "n", "resourceVersion": "2", "generation": 2}, "status": {}})
    assert differs(before, {"metadata": {"name": "n", "labels": {"a": "b"}}})


def deployment(**status: Any) -> dict[str, Any]:
    return {"metadata": {"generation": 2}, "spec": {"replicas": 2}, "status": status}


COMPLETE = {"observedGeneration": 2, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}


@pytest.mark.parametrize(
    "changed", [{"observedGeneration": 1}, {"replicas": 3}, {"updatedReplicas": 1}, {"availableReplicas": 1}]
)
def test_rollout_is_complete_when_all_replicas_are_current_and_available(changed: dict[str, int]) -> None:
    assert is_rolled_out(deployment(**COMPLETE))
    assert not is_rolled_out(deployment(**{**COMPLETE, **changed}))


def test_delays_of_a_rollout_are_listed_once() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
    pod = {"status": {"containerStatuses": [waiting], "conditions": []}}
    unscheduled = {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no nodes"}]}}
    found = describe_rollout(deployment(conditions=[failure]), [pod, pod, unscheduled])
    assert found == "0 of 2 replicas are available; exceeded quota; ImagePullBackOff: no such image; no nodes"


def test_webhooks_are_removed_first_and_definitions_after_what_uses_them() -> None:
    shipped = removal.list_removed(document for documents in read_manifest_files().values() for document in documents)
    kinds = [reference.kind for reference in shipped]
    webhooks = [kind for kind in kinds if kind.endswith("WebhookConfiguration")]
    assert kinds[: len(webhooks)] == webhooks
    assert kinds[-1] == "CustomResourceDefinition"
    assert "Namespace" not in kinds
    for folder in (".", *(f"overlays/{way}" for way in ("redis", "own-certificates", "cert-manager", "reduced"))):
        applied = {ObjectReference.from_document(document) for document in build_folder(read_manifest_files(), folder)}
        assert {reference for reference in applied if reference.kind != "Namespace"} <= set(shipped), folder


def test_patch_that_install_does_not_know_is_an_error() -> None:
    files = {"a.yaml": [{"kind": "ConfigMap", "metadata": {"name": "a"}}]}
    patch = "kind: ConfigMap\nmetadata: {name: a}\ndata: {}\n"
    with pytest.raises(ValueError, match="JSON 6902"):
        build_objects(files, {"resources": ["a.yaml"], "patches": [{"patch": patch}]})


def test_labels_of_teams_are_protected_where_they_are_named() -> None:
    files = read_manifest_files()
    way = ways.build_way(ways.MEMORY, ways.OWN, has_team_labels=True)
    assert way is not None
    found = ways.set_team_labels(build_objects(files, way), ["team", "example.com/owner"])
    named = [document for document in found if document["metadata"]["name"] == "podgate-team-labels"]
    assert {document["kind"] for document in named} == {
        "ConfigMap",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    }
    [config_map] = [document for document in named if document["kind"] == "ConfigMap"]
    assert config_map["data"] == {"labels": "team,example.com/owner"}


def test_protected_labels_are_not_dropped_by_leaving_out_the_option() -> None:
    record = replace(MEMORY, team_labels="team,owner")
    assert record.build_config_map()["data"]["teamLabels"] == "team,owner"
    assert record.find_conflict(MEMORY) == ("teamLabels", "team,owner", "none")
    assert record.find_conflict(replace(MEMORY, team_labels="team")) is None
    assert LiveObjects().list_options(record, "")[-4:] == ["--team-label", "team", "--team-label", "owner"]
