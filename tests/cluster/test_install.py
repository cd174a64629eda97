"""`podgate install` and `podgate uninstall` on a real API server, with a server outside the cluster."""

import json
import re
from pathlib import Path

from redis import Redis

from tests.app.status_command import DOCUMENT
from tests.cli.command_runner import Done, podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.all_objects import list_objects
from tests.cluster.connect_proxy import connect_proxy
from tests.cluster.install import CONTROLLERS, ENFORCING, POLICY, SERVER, Cluster, cluster, installed
from tests.cluster.load_balancer import LoadBalancers
from tests.cluster.processes import find_free_ports
from tests.harness.canned_http import serve_answers
from tests.redis_servers import RedisServer
from webhook.core.admission.mutation import QUEUE_GATE
from webhook.core.document.configmap import KEY, NAME, ROLLOUT_STATE
from webhook.core.installation.probe import PROBE
from webhook.core.installation.record import RECORD

__all__ = ["cluster", "installed"]

pytest_plugins = ("tests.redis_servers.fixtures",)

HOOKS = "/apis/admissionregistration.k8s.io/v1"
HOOK_KINDS = ("mutatingwebhookconfiguration", "validatingwebhookconfiguration")


def test_dry_run_changes_nothing(cluster: Cluster, tmp_path: Path) -> None:
    before = cluster.objects()
    done = podgate("install", *cluster.options, "--pki", tmp_path / "new", "--dry-run")
    assert done.code == 0, done.err
    assert "configmap/podgate-policy " in done.out
    assert cluster.objects() == before
    assert not (tmp_path / "new").exists()


def test_dry_run_has_listed_also_what_the_server_creates(installed: Cluster) -> None:
    plane = installed.plane
    plane.wait(lambda: {*list_objects(plane)} >= installed.listed, "all that was listed", SERVER)
    assert {*list_objects(plane)} == installed.listed


def test_pods_are_rewritten_after_the_installation(installed: Cluster) -> None:
    status, pod = installed.create_pod()
    assert (status, pod["spec"]["nodeSelector"]) == (201, {"disk-type": "ssd"})
    record = installed.plane.api.get(RECORD.path)["data"]
    assert (
        record.items()
        >= {
            "mode": "memory",
            "certificates": "files",
            "serverURL": f"https://127.0.0.1:{installed.port}",
            "statusURL": f"http://127.0.0.1:{installed.plain_port}",
        }.items()
    )


def test_second_installation_changes_nothing(installed: Cluster) -> None:
    done = installed.install("-o", "json")
    assert done.code == 0, done.err
    results = {row["object"]: row["result"] for row in json.loads(done.out)["objects"]}
    assert results.pop("configmap/podgate-policy") == "kept as it is: yours"
    assert {f"{kind}.admissionregistration.k8s.io/podgate" for kind in HOOK_KINDS} < {*results}
    assert set(results.values()) == {"unchanged"}


def test_the_owner_of_the_policy_can_apply_another_one(installed: Cluster) -> None:
    live = installed.plane.api.get(POLICY.path)
    document = {key: live[key] for key in ("apiVersion", "kind", "data")}
    document["metadata"] = {"name": NAME, "namespace": NAMESPACE}
    document["data"] = {KEY: f"{live['data'][KEY]}# by its owner\n"}
    command = ("apply", "--server-side", "--dry-run=server", "-f", "-")
    assert "serverside-applied" in installed.plane.kubectl(*command, input=json.dumps(document)).stdout


def test_live_policy_is_never_replaced(installed: Cluster, tmp_path: Path) -> None:
    (other := tmp_path / "other.yaml").write_text(ENFORCING.replace("ssd", "hdd"))
    done = installed.install("--policy", other)
    assert done.code == 2
    assert "configmap/podgate-policy: data[policy.yaml]: the live policy differs from --policy" in done.err
    assert installed.install().code == 0
    assert installed.policy() == ENFORCING


def test_policy_with_mistakes_is_refused_before_anything_is_applied(installed: Cluster, tmp_path: Path) -> None:
    installed.plane.api.request("DELETE", POLICY.path)
    (broken := tmp_path / "broken.yaml").write_text("apiVersion: podgate.io/v1alpha1\nkind: Policy\nservises: []\n")
    try:
        done = installed.install("--policy", broken)
    finally:
        metadata = {"name": NAME, "namespace": NAMESPACE}
        installed.plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {KEY: ENFORCING}})
    assert done.code == 2
    assert "--policy:3:1: servises" in done.err
    assert done.out == ""


def test_another_way_of_running_is_refused(installed: Cluster) -> None:
    def change(mode: str) -> None:
        patch = {"data": {"mode": mode}}
        installed.plane.api.request("PATCH", RECORD.path, patch, "application/merge-patch+json")

    change("redis")
    try:
        done = installed.install()
    finally:
        change("memory")
    assert (done.code, done.out) == (2, "")
    assert done.error.startswith("configmap/podgate-installation: data.mode: 'redis': ")
    assert "podgate uninstall" in done.error


def test_calls_to_a_port_without_a_server_are_found(installed: Cluster) -> None:
    [wrong] = find_free_ports(1)
    try:
        done = podgate("install", *installed.list_options(wrong))
        assert done.code == 1
        message = done.err.splitlines()[-1]
        assert message.startswith(
            "error: the API server does not call Podgate: a Pod of service web in namespace shop "
        )
        assert f"127.0.0.1:{wrong}: connect: connection refused" in message
        assert "nothing listens at this address" in message
        for kind in HOOK_KINDS:
            assert installed.plane.api.get(f"{HOOKS}/{kind}s/{PROBE}") is None
    finally:
        assert installed.install().code == 0


def test_missing_credentials_of_the_api_server_are_found(installed: Cluster) -> None:
    """It has them for another port of the same host."""
    with LoadBalancers() as load_balancers:
        other_way = load_balancers.open()
        other_way.targets = [server.target for server in installed.servers]
        installed.plane.wait(lambda: other_way.ready, "the server to be ready", SERVER)
        try:
            done = podgate("install", *installed.list_options(other_way.port))
            assert done.code == 1
            assert f"127.0.0.1:{other_way.port}" in done.err
            assert "--admission-control-config-file" in done.err, done.err  # a refused handshake has many texts
        finally:
            assert installed.install().code == 0


def test_uninstallation_refuses_to_delete_objects_of_others(installed: Cluster) -> None:
    metadata = {"name": "redis-data", "namespace": NAMESPACE}
    installed.plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
    before = installed.objects()
    try:
        done = installed.uninstall()
        assert (done.code, done.out) == (2, "")
        assert "contains objects that are not Podgate's: configmap/redis-data" in done.error
        assert installed.objects() == before
    finally:
        installed.plane.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/redis-data")


def test_uninstallation_with_a_dead_server_of_failure_mode_closed_leaves_nothing(installed: Cluster) -> None:
    """It also stops denying Pods, and releases those that wait."""
    # Podgate refuses its gate where no Pod waits; a namespace without a service is not asked about.
    gated = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": QUEUE_GATE}]}
    waiting = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waiting"}, "spec": gated}
    pods = "/api/v1/namespaces/default/pods"
    assert installed.plane.api.request("POST", pods, waiting)[0] == 201
    installed.stop_server()
    status, answer = installed.create_pod()
    assert (status, "failed calling webhook" in answer["message"]) == (500, True)
    listed = installed.uninstall("--dry-run").out.replace(" (dry run)", "")
    done = installed.uninstall()
    assert done.code == 0, done.err
    assert done.out == listed
    assert done.out.startswith("mutatingwebhookconfiguration.admissionregistration.k8s.io/podgate deleted\n")
    assert "remove --admission-control-config-file from kube-apiserver first" in done.out
    assert f"stop the server at https://127.0.0.1:{installed.port}" in done.out
    assert "kubectl label pods -A -l podgate.io/service podgate.io/service-" in done.out
    assert "\n1 waiting Pods released\n" in done.out
    assert "schedulingGates" not in installed.plane.api.get(f"{pods}/waiting")["spec"]
    installed.plane.api.request("DELETE", f"{pods}/waiting?gracePeriodSeconds=0")
    installed.wait_for_nothing_left()
    assert installed.create_pod()[0] == 201
    again = installed.uninstall()
    assert (again.code, again.out.splitlines()[-1]) == (0, "nothing of Podgate is in this cluster")


DEFINITION = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/servicestatuses.podgate.io"


def test_an_object_that_cannot_be_deleted_holds_no_waiting_pod(installed: Cluster) -> None:
    """The message tells only what keeps the definition, and the next run continues."""
    gated = {"containers": [{"name": "c", "image": "i"}], "schedulingGates": [{"name": QUEUE_GATE}]}
    pods, kept = "/api/v1/namespaces/default/pods", "/apis/podgate.io/v1alpha1/servicestatuses/kept"
    metadata = {"name": "kept", "finalizers": ["example.com/keep"]}
    installed.plane.apply({"apiVersion": "podgate.io/v1alpha1", "kind": "ServiceStatus", "metadata": metadata})
    waiting = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waits"}, "spec": gated}
    assert installed.plane.api.request("POST", pods, waiting)[0] == 201
    installed.stop_server()
    try:
        done = installed.uninstall("--wait", "20s")
        assert done.code == 2
        definition = "customresourcedefinition.apiextensions.k8s.io/servicestatuses.podgate.io"
        assert f"\nerror: {definition}: still being deleted: " in done.err, done.err
        assert "initial names have been accepted" not in done.err
        annotations = installed.plane.api.get(DEFINITION)["metadata"]["annotations"]
        assert annotations.keys() == {"podgate.io/deletion-awaited"}, "kube-apiserver was reminded of it"
        assert "schedulingGates" not in installed.plane.api.get(f"{pods}/waits")["spec"]
        refused = installed.install()
        assert (refused.code, installed.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}")) == (2, None)
        message, _, remedy = refused.error.partition(": wait until it is gone: kubectl ")
        assert re.fullmatch(rf"{definition}: metadata.deletionTimestamp: \S+: it is being deleted", message), message
    finally:
        installed.plane.api.request("DELETE", f"{pods}/waits?gracePeriodSeconds=0")
        free = {"metadata": {"finalizers": None}}
        assert installed.plane.api.request("PATCH", kept, free, "application/merge-patch+json")[0] == 200
    installed.plane.kubectl(*remedy.split())
    assert installed.uninstall().code == 0
    installed.wait_for_nothing_left()


VIEWER = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: viewer, namespace: podgate-system}
rules:
- {apiGroups: [""], resources: [services/proxy], resourceNames: ["http:podgate-metrics:plain"], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: podgate-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: viewer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: a-viewer}]
"""


def test_server_in_the_cluster_is_found_through_its_service_with_one_right(cluster: Cluster, tmp_path: Path) -> None:
    """The Pod of the shipped Deployment has the address of no Node, and the API server's proxy leads it to loopback."""
    plane, pods = cluster.plane, f"/api/v1/namespaces/{NAMESPACE}/pods"
    if plane.api.get(RECORD.path) is not None:
        assert cluster.uninstall().code == 0
    podgate("install", "--kubeconfig", plane.kubeconfig, "--pki", tmp_path / "pki", "--wait", "1s")
    plane.kubectl("apply", "-f", "-", input=VIEWER)
    viewer = plane.write_kubeconfig("a-viewer")
    [pod] = plane.wait(lambda: plane.api.get(pods)["items"], "the Pod of the server", CONTROLLERS)
    status = {
        "phase": "Running",
        "podIP": "10.64.0.9",
        "podIPs": [{"ip": "10.64.0.9"}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    pod_path = f"{pods}/{pod['metadata']['name']}"
    plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "somewhere"}})
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod["metadata"]["name"]}}
    plane.api.request("POST", f"{pod_path}/binding", {**binding, "target": {"kind": "Node", "name": "somewhere"}})
    code, answer = plane.api.request("PATCH", f"{pod_path}/status", {"status": status}, "application/merge-patch+json")
    assert code == 200, answer
    assert plane.egress_socket is not None
    with (
        serve_answers({"/healthz": (200, b"ok"), "/status": (200, DOCUMENT)}) as url,
        connect_proxy(plane.egress_socket, url.removeprefix("http://")) as addresses,
    ):
        found = plane.wait(lambda: pass_if_ended(podgate("status", "--kubeconfig", viewer)), "the status", CONTROLLERS)
    assert addresses == {"10.64.0.9:8081"}
    assert json.loads(found.out) == json.loads(DOCUMENT)
    assert f"server: service {NAMESPACE}/podgate-metrics through https://127.0.0.1:" in found.err
    plane.delete(f"{pod_path}?gracePeriodSeconds=0", "/api/v1/nodes/somewhere")
    plane.kubectl("delete", "-f", "-", input=VIEWER)
    assert cluster.uninstall().code == 0
    cluster.wait_for_nothing_left()


def pass_if_ended(done: Done) -> Done | None:
    """Return a result with exit code 0."""
    return done if done.code == 0 else None


def test_missing_cert_manager_is_named(cluster: Cluster) -> None:
    if cluster.plane.api.get(RECORD.path) is not None:
        assert cluster.uninstall().code == 0
    options = ("--kubeconfig", cluster.plane.kubeconfig, "--certificates", "cert-manager")
    try:
        done = podgate("install", *options)
        assert done.code == 2
        assert done.error.startswith("issuer.cert-manager.io/podgate-")
        assert "kubectl api-resources" in done.error
    finally:
        assert cluster.uninstall().code == 0


def test_users_without_rights_read_which_right_they_need(cluster: Cluster) -> None:
    kubeconfig = cluster.plane.write_kubeconfig("a-developer")
    for command, verb in (("install", "get"), ("uninstall", "get")):
        done = podgate(command, "--kubeconfig", kubeconfig)
        assert done.code == 2
        assert f"namespace/podgate-system: cannot {verb}: HTTP 403" in done.error
        assert f"grant the right to {verb} namespaces" in done.error


def test_unreachable_cluster_is_named(cluster: Cluster) -> None:
    kubeconfig = cluster.plane.write_kubeconfig("nobody", server="https://127.0.0.1:1")
    done = podgate("uninstall", "--kubeconfig", kubeconfig)
    assert done.code == 2
    assert "namespace/podgate-system: cannot get" in done.error
    assert "check the cluster and the kubeconfig" in done.error


def test_policy_can_be_kept(cluster: Cluster) -> None:
    """Documents that the leader has kept are removed, and the state of the rollout."""
    podgate("install", "--kubeconfig", cluster.plane.kubeconfig, "--wait", "1s")
    metadata = {"name": "podgate-policy-0123456789abcdef", "namespace": NAMESPACE}
    cluster.plane.apply(
        {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "data": {}, "revision": 1}
    )
    state = {"name": ROLLOUT_STATE, "namespace": NAMESPACE}
    cluster.plane.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": state})
    done = cluster.uninstall("--keep-policy")
    assert done.code == 0, done.err

    def is_alone() -> bool:
        left = {item for item in cluster.objects() - cluster.before if item[1] == NAMESPACE}
        return {item for item in left if item[2] not in {"default", "kube-root-ca.crt"}} == {
            ("configmaps", NAMESPACE, NAME)
        }

    cluster.plane.wait(is_alone, "the Deployment's Pods to be deleted", CONTROLLERS)
    assert cluster.policy()
    assert cluster.uninstall().code == 0
    cluster.wait_for_nothing_left()


def test_keys_of_this_cluster_are_deleted_in_redis_on_request(cluster: Cluster, a_redis: RedisServer) -> None:
    own = ("podgate:{web}:v1:default:ring:web", "podgate:v1:default:decisions", "podgate:v1:default:policy:9640bfdb")
    others = (
        "podgate:{web}:v1:another:ring:web",
        "podgate:v1:another:decisions",
        "podgate:{web}:v1:fleet:ring:web",
        "s",
    )
    with Redis.from_url(a_redis.url) as redis:
        for key in (*own, *others):
            redis.set(key, "1")
        dry = cluster.uninstall("--redis", a_redis.url, "--dry-run")
        assert (dry.code, redis.exists(*own)) == (0, 3)
        assert "keys of cluster 'default' deleted in Redis (dry run)" in dry.out
        done = cluster.uninstall("--redis", a_redis.url)
        assert "3 keys of cluster 'default' deleted in Redis" in done.out
        assert (redis.exists(*own), redis.exists(*others)) == (0, 4)
        redis.delete(*others)
    wrong = cluster.uninstall("--redis", "redis://127.0.0.1:1/0")
    assert wrong.code == 2
    assert wrong.error.startswith("--redis: 'redis://127.0.0.1:1/0': ")


def test_api_servers_that_still_have_the_flag_are_named(cluster: Cluster) -> None:
    podgate("install", "--kubeconfig", cluster.plane.kubeconfig, "--wait", "1s")
    flag = "--admission-control-config-file=/etc/kubernetes/podgate/admission-configuration.yaml"
    spec = {"nodeName": "node-1", "containers": [{"name": "c", "image": "i", "command": ["kube-apiserver", flag]}]}
    metadata = {"name": "kube-apiserver-node-1", "namespace": "kube-system", "labels": {"component": "kube-apiserver"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    path = "/api/v1/namespaces/kube-system/pods"
    # Without the node the Pod would be deleted within a minute, and a namespace may take longer to be gone.
    cluster.plane.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    assert cluster.plane.api.request("POST", path, pod)[0] == 201
    try:
        done = cluster.uninstall()
        assert done.code == 0, done.err
        assert "kube-apiserver on node-1 still reads Podgate's files" in done.out
    finally:
        cluster.plane.delete(f"{path}/{metadata['name']}?gracePeriodSeconds=0", "/api/v1/nodes/node-1")
