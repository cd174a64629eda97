"""The shipped manifests: a real API server accepts them, permissions are minimal, and the README works."""

import json
import re
import shlex
import ssl
from collections.abc import Iterator
from dataclasses import fields
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path

import pytest
import yaml

from certs.cluster.api import Api
from certs.cluster.ca_controller import SERVING_CA
from certs.cluster.injection import CaInjection
from certs.cluster.secrets import SecretStore
from certs.cluster.webhooks import CONFIGURATIONS
from certs.errors import CertsError
from tests.cluster import manifests
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.controlplane import ControlPlane
from tests.cluster.kwok import NODES
from tests.cluster.load_balancer import LoadBalancers
from tests.cluster.readme_steps import SERVER, Site, mount_flags
from tests.timeouts import HANG_SECONDS
from webhook import settings
from webhook.adapters.kubernetes import LeaseTiming, connect
from webhook.app import server
from webhook.commands.pages.yaml_text import format_yaml_stream
from webhook.core.checks import ClusterFacts
from webhook.core.checks.objects import ClusterMetadata, ReplicasObject
from webhook.core.checks.rights import Right, list_expected_rights
from webhook.core.document import Purpose, load
from webhook.core.document.configmap import ConfigMap
from webhook.core.installation import ways
from webhook.core.webhook_configurations import ClientConfig, ServiceReference, render_configurations
from webhook.operations.shipped_manifests import read_manifest_files

HEADER = """\
# What `podgate policy webhooks` prints for the policy in 20-policy.yaml, to be read beside it.
# caBundle is a PLACEHOLDER: with it the API server cannot verify Podgate, and does as failurePolicy says.
# Apply what is printed for your own policy and CA instead, once the server answers (README.md):
#   podgate policy webhooks --policy policy.yaml --ca pki/ca.crt | kubectl apply --server-side -f -
"""
ACCOUNT = f"system:serviceaccount:{NAMESPACE}:podgate"
CONTROLLER = f"system:serviceaccount:{NAMESPACE}:podgate-controller"
CALLER = f"system:serviceaccount:{NAMESPACE}:kube-apiserver-caller"
LEASES = "leases.coordination.k8s.io"
ROLES = re.compile(r"(base|redis|scheduler)/\d+-rbac")
BASE = sorted(path.name for path in manifests.FOLDER.glob("base/[0-9]*.yaml"))
NUMBERED = [*(f"base/{name}" for name in BASE), "20-policy.yaml", "50-webhooks.yaml"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run the first two steps: credentials, and the objects in the cluster."""
    with LoadBalancers() as load_balancers, ControlPlane() as plane:
        plane.add_nodes(*NODES)
        site_with_credentials = Site(plane, tmp_path_factory.mktemp("site"), load_balancers.open())
        for step in manifests.steps()[:2]:
            site_with_credentials.run(step)
        yield site_with_credentials


def test_shipped_webhooks_are_rendered_from_the_shipped_policy(*, refresh_goldens: bool) -> None:
    loaded = load(manifests.policy().encode(), Purpose.SERVE)
    assert loaded.warnings == ()
    client = ClientConfig(ServiceReference(), manifests.PLACEHOLDER)
    rendered = HEADER + format_yaml_stream(render_configurations(loaded.policy.policy, client))
    if refresh_goldens:
        manifests.WEBHOOKS.write_text(rendered)
    assert manifests.WEBHOOKS.read_text() == rendered


def test_every_manifest_of_the_base_is_applied() -> None:
    assert yaml.safe_load((manifests.FOLDER / "base/kustomization.yaml").read_text())["resources"] == BASE


def test_apply_never_replaces_the_policy(site: Site) -> None:
    objects = yaml.safe_load_all(site.run("kubectl kustomize manifests"))
    assert [document["metadata"]["name"] for document in objects if document["kind"] == "ConfigMap"] == [
        "podgate-identities"
    ]


def test_canary_is_one_server_of_another_image_beside_the_others_until_its_end(site: Site) -> None:
    get = "kubectl get --namespace podgate-system --output json"
    before = json.loads(site.run(f"{get} deployment/podgate"))
    make = f"make -C {shlex.quote(str(manifests.FOLDER.parent))}"
    site.run(f"{make} canary OVERLAY=manifests IMAGE=other/podgate@sha256:{'0' * 64}")
    canary, after = (json.loads(site.run(f"{get} deployment/{name}")) for name in ("podgate-canary", "podgate"))
    selector = json.loads(site.run(f"{get} service/podgate"))["spec"]["selector"].items()
    assert selector <= canary["spec"]["template"]["metadata"]["labels"].items()
    assert selector < canary["spec"]["selector"]["matchLabels"].items()
    [container], [usual] = (deployment["spec"]["template"]["spec"]["containers"] for deployment in (canary, before))
    assert container == {**usual, "image": f"other/podgate@sha256:{'0' * 64}"}
    assert canary["spec"]["replicas"] == 1
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    site.run(f"{make} canary-down")
    assert "podgate-canary" not in site.run(f"{get} deployments")


def test_deployment_flags_are_valid_and_the_grace_period_covers_the_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = mount_flags(tmp_path)
    (token := tmp_path / "account-token").touch()
    monkeypatch.setattr("webhook.settings.parsing._SERVICE_ACCOUNT_TOKEN", token)
    flag_values = {item.name: flags.pop(settings.name_flag(item.name), None) for item in fields(settings.Settings)}
    assert flags == {}, "the server has no such flags"
    parsed = settings.parse(flag_values, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert parsed.serving_ca == tmp_path / "tls/serving-ca.crt", "the server is ready only if its certificate verifies"
    pod = manifests.pod_spec()
    [container] = pod["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert (parsed.listen.port, parsed.plain_listen.port) == (ports["admission"], ports["plain"])
    pre_stop_seconds = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > pre_stop_seconds + parsed.drain_seconds + parsed.grace_seconds


def test_kube_apiserver_token_verifies_with_the_mounted_key_set() -> None:
    """The DaemonSet and step 3 of the README use the same issuer."""
    [daemon_set] = yaml.safe_load_all((manifests.FOLDER / "apiserver/daemonset.yaml").read_text())
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    keys = {"own": "--jwks", "cluster": "--cluster-keys"}
    [issuer] = [issuer for issuer in keys if f"--token={issuer}" in container["args"]]
    assert keys[issuer] in manifests.arguments()
    *_, node_step, _ = manifests.steps()
    assert f"--token {issuer} " in node_step


@pytest.mark.parametrize("name", NUMBERED)
def test_api_server_accepts_the_manifests(site: Site, name: str) -> None:
    site.run(f"kubectl apply --server-side --dry-run=server -f manifests/{name}")


def test_second_apply_changes_nothing(site: Site) -> None:
    printed = site.run("kubectl apply -k manifests").splitlines()
    assert len(printed) == len(manifests.build_kustomization("."))
    assert [line for line in printed if not line.endswith(" unchanged")] == []


def test_old_server_is_terminated_before_the_new_one_is_ready(site: Site) -> None:
    """The new server waits for the Lease of the old one, so the rollout must not wait for the new one first."""
    namespace_flags = ("-n", NAMESPACE)

    def pods() -> list[str]:
        return site.plane.kubectl("get", "pods", *namespace_flags, "-o", "name").stdout.split()

    [old] = pods()
    unschedulable = {"spec": {"template": {"spec": {"nodeSelector": {"nowhere": "at-all"}}}}}
    site.plane.kubectl("patch", "deployment/podgate", *namespace_flags, "-p", json.dumps(unschedulable))
    site.plane.wait(lambda: pods() and old not in pods(), "the old Pod to be deleted", "kube-controller-manager")
    site.plane.kubectl("rollout", "undo", "deployment/podgate", *namespace_flags)
    site.plane.kubectl("rollout", "status", "deployment/podgate", *namespace_flags, "--timeout=300s")


def test_lease_wait_exceeds_the_shutdown_time_of_the_old_server() -> None:
    [container] = manifests.pod_spec()["containers"]
    pre_stop_seconds = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pre_stop_seconds + 10 < server._LEASE_PATIENCE_SECONDS
    assert LeaseTiming().duration_seconds + 10 < server._LEASE_PATIENCE_SECONDS, (
        "it also exceeds the expiry of a crashed server's Lease"
    )


def test_services_select_the_server_pod(site: Site) -> None:
    def ports(service: str) -> set[int]:
        query = f"labelSelector=kubernetes.io/service-name%3D{service}"
        path = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices?{query}"
        slices = site.plane.api.get(path)["items"]
        return {
            port["port"] for endpoint_slice in slices if endpoint_slice["endpoints"] for port in endpoint_slice["ports"]
        }

    for service, port in (("podgate", 8443), ("podgate-metrics", 8081)):
        site.plane.wait(lambda service=service, port=port: ports(service) == {port}, f"{service} to have endpoints")


STATUS_KINDS = ("servicestatuses.podgate.io", "policyrollouts.podgate.io")
STATUS_RIGHTS = [
    *((verb, kind, "") for kind in STATUS_KINDS for verb in ("list", "create", "delete")),
    *(("patch", f"{kind} --subresource=status", "") for kind in STATUS_KINDS),
]
STATUS_DENIED = [
    *((verb, kind, "") for kind in STATUS_KINDS for verb in ("get", "watch", "update", "patch", "deletecollection")),
    *(("update", f"{kind} --subresource=status", "") for kind in STATUS_KINDS),
    *((verb, "customresourcedefinitions.apiextensions.k8s.io", "") for verb in ("get", "create", "patch", "delete")),
]
WEBHOOK_RIGHTS = [
    (verb, place.replace("/", ".admissionregistration.k8s.io/"), "")
    for place in CONFIGURATIONS
    for verb in ("get", "patch")
]
WEBHOOK_DENIED = [
    (verb, place.replace("/", ".admissionregistration.k8s.io/"), "")
    for place in CONFIGURATIONS
    for verb in ("update", "delete")
]
# `patch` removes the gate of a waiting Pod; `delete` is for Pods that have waited for `maxWait`.
RELEASE_RIGHTS = [(verb, "pods", "") for verb in ("patch", "delete")]
# Of the leader: Pods of a variant without nodes are evicted; it reads how many Pods a ReplicaSet wants.
VARIANT_RIGHTS = [("create", "pods --subresource=eviction", ""), ("get", "replicasets.apps", "")]
RELEASE_DENIED = [
    *((verb, "pods", "default") for verb in ("get", "create", "update", "deletecollection")),
    *(("patch", f"pods --subresource={name}", "default") for name in ("status", "resize", "ephemeralcontainers")),
    *(("create", f"pods --subresource={name}", "default") for name in ("binding", "exec")),
]
RETRY_RIGHTS = [
    *((verb, "events", "") for verb in ("list", "watch")),
    *(
        (verb, f"{kind} --subresource=status", "")
        for kind in (
            *("replicasets.apps", "statefulsets.apps", "daemonsets.apps"),
            *("jobs.batch", "replicationcontrollers"),
        )
        for verb in ("get", "patch")
    ),
]
RETRY_DENIED = [
    *((verb, "replicasets.apps", "") for verb in ("list", "update", "patch")),
    ("update", "replicasets.apps --subresource=status", ""),
    ("patch", "deployments.apps --subresource=status", ""),
    *((verb, "events", "") for verb in ("get", "create", "patch", "delete")),
]
# Of the leader: it reads how many Pods a group has.
GROUP_RIGHTS = [
    *(("get", kind, "") for kind in ("jobs.batch", "jobsets.jobset.x-k8s.io")),
    *(("get", f"podgroups.scheduling.{group}", "") for group in ("k8s.io", "x-k8s.io", "volcano.sh")),
]
GROUP_DENIED = [
    *((verb, "jobs.batch", "") for verb in ("list", "watch", "create", "update", "patch", "delete")),
    *((verb, "jobsets.jobset.x-k8s.io", "") for verb in ("list", "watch", "update", "patch")),
]
# Of the leader: it writes the state of the policy's rollout, and keeps documents of policies by hash.
ROLLOUT_RIGHTS = [
    *((verb, "configmaps/podgate-policy-state", NAMESPACE) for verb in ("get", "update")),
    *((verb, "controllerrevisions.apps", NAMESPACE) for verb in ("get", "list", "create", "patch", "delete")),
    ("create", "configmaps", NAMESPACE),
]
ROLLOUT_DENIED = [
    *((verb, "configmaps/podgate-policy-state", NAMESPACE) for verb in ("patch", "delete")),
    *((verb, "controllerrevisions.apps", NAMESPACE) for verb in ("update", "deletecollection")),
    *((verb, "controllerrevisions.apps", "default") for verb in ("get", "list", "create", "delete")),
]
CAN = [
    *((verb, "configmaps", NAMESPACE) for verb in ("list", "watch")),
    *((verb, "configmaps/podgate-policy-last-good", NAMESPACE) for verb in ("get", "update")),
    *ROLLOUT_RIGHTS,
    *((verb, f"{LEASES}/podgate-leader", NAMESPACE) for verb in ("get", "update")),
    *((verb, LEASES, NAMESPACE) for verb in ("create", "list", "update", "delete")),
    *((verb, "namespaces", "") for verb in ("list", "watch")),
    *((verb, "pods", "") for verb in ("list", "watch")),
    ("get", "replicasets.apps", ""),
    *RELEASE_RIGHTS,
    *VARIANT_RIGHTS,
    ("create", "events.events.k8s.io", ""),
    *STATUS_RIGHTS,
    *WEBHOOK_RIGHTS,
    *RETRY_RIGHTS,
    *GROUP_RIGHTS,
]
CANNOT = [
    *RETRY_DENIED,
    *GROUP_DENIED,
    *STATUS_DENIED,
    *WEBHOOK_DENIED,
    *((verb, "configmaps/podgate-policy", NAMESPACE) for verb in ("update", "patch", "delete")),
    *((verb, "configmaps/podgate-overrides", NAMESPACE) for verb in ("get", "update", "patch", "delete")),
    *((verb, "configmaps/podgate-policy-last-good", NAMESPACE) for verb in ("delete", "deletecollection")),
    *ROLLOUT_DENIED,
    *((verb, "configmaps", NAMESPACE) for verb in ("get", "update")),
    *((verb, "configmaps/podgate-policy", "default") for verb in ("get", "create")),
    *((verb, f"{LEASES}/podgate-leader", NAMESPACE) for verb in ("patch", "deletecollection")),
    *((verb, LEASES, NAMESPACE) for verb in ("get", "watch")),
    *((verb, f"{LEASES}/podgate-leader", "default") for verb in ("get", "update", "create")),
    *((verb, "secrets", NAMESPACE) for verb in ("get", "list", "create")),
    *((verb, "namespaces", "") for verb in ("create", "update", "patch", "delete")),
    *RELEASE_DENIED,
    *((verb, "events.events.k8s.io", "") for verb in ("get", "list", "update", "patch", "delete")),
    ("get", "nodes", ""),
    ("create", "serviceaccounts --subresource=token", NAMESPACE),
    ("patch", "validatingwebhookconfigurations.admissionregistration.k8s.io", ""),
    ("impersonate", "users", ""),
]


CONTROLLER_CAN = [
    *((verb, "configmaps", NAMESPACE) for verb in ("list", "watch")),
    ("get", "configmaps/podgate-policy-last-good", NAMESPACE),
    *ROLLOUT_RIGHTS,
    *((verb, f"{LEASES}/podgate-leader", NAMESPACE) for verb in ("get", "update")),
    ("create", LEASES, NAMESPACE),
    ("create", "events.events.k8s.io", ""),
    *((verb, resource, "") for resource in ("pods", "namespaces") for verb in ("list", "watch")),
    *RELEASE_RIGHTS,
    *VARIANT_RIGHTS,
    *STATUS_RIGHTS,
    *WEBHOOK_RIGHTS,
    *RETRY_RIGHTS,
    *GROUP_RIGHTS,
]
CONTROLLER_CANNOT = [
    *RETRY_DENIED,
    *GROUP_DENIED,
    *STATUS_DENIED,
    *WEBHOOK_DENIED,
    *((verb, "configmaps/podgate-policy", NAMESPACE) for verb in ("get", "update", "patch", "delete")),
    *((verb, "configmaps/podgate-policy-last-good", NAMESPACE) for verb in ("update", "delete")),
    *ROLLOUT_DENIED,
    *((verb, "configmaps", NAMESPACE) for verb in ("get", "update")),
    *((verb, f"{LEASES}/podgate-leader", NAMESPACE) for verb in ("patch", "delete", "deletecollection")),
    *((verb, LEASES, NAMESPACE) for verb in ("get", "list", "watch", "update", "delete")),
    *((verb, "secrets", NAMESPACE) for verb in ("get", "list", "create")),
    *((verb, "namespaces", "") for verb in ("create", "update", "patch", "delete")),
    *RELEASE_DENIED,
    *((verb, "events.events.k8s.io", "") for verb in ("get", "list", "update", "patch", "delete")),
    ("get", "nodes", ""),
    ("create", "serviceaccounts --subresource=token", NAMESPACE),
    ("impersonate", "users", ""),
]


EXTENDER_CAN = [
    *((verb, "configmaps", NAMESPACE) for verb in ("list", "watch")),
    ("get", "configmaps/podgate-policy-last-good", NAMESPACE),
    ("get", "controllerrevisions.apps", NAMESPACE),
    *((verb, resource, "") for resource in ("nodes", "pods", "persistentvolumeclaims") for verb in ("list", "watch")),
    ("list", "nodes.metrics.k8s.io", ""),
    *((verb, "noderesourcetopologies.topology.node.k8s.io", "") for verb in ("list", "watch")),
    ("patch", "storageclasses.storage.k8s.io/podgate-wake", ""),
    ("patch", "configmaps/podgate-wake", NAMESPACE),
]
EXTENDER_CANNOT = [
    *((verb, "configmaps/podgate-policy-state", NAMESPACE) for verb in ("update", "patch", "delete")),
    *((verb, "controllerrevisions.apps", NAMESPACE) for verb in ("list", "create", "update", "patch", "delete")),
    *((verb, "configmaps", NAMESPACE) for verb in ("get", "create", "update", "patch")),
    *((verb, "configmaps/podgate-wake", NAMESPACE) for verb in ("get", "update", "delete")),
    *((verb, "configmaps/podgate-policy", NAMESPACE) for verb in ("get", "update", "patch", "delete")),
    *((verb, "secrets", NAMESPACE) for verb in ("get", "list")),
    *((verb, "pods --subresource=status", "") for verb in ("update", "patch")),
    *((verb, "nodes", "") for verb in ("get", "update", "patch", "delete")),
    *((verb, "pods", "") for verb in ("get", "create", "update", "patch", "delete")),
    *((verb, "persistentvolumeclaims", "") for verb in ("get", "update", "patch", "delete")),
    ("list", "persistentvolumes", ""),
    ("create", "pods --subresource=binding", "default"),
    *((verb, "storageclasses.storage.k8s.io/podgate-wake", "") for verb in ("get", "update", "delete")),
    ("patch", "storageclasses.storage.k8s.io", ""),
    ("get", "namespaces", ""),
]
SCHEDULER_CAN = [
    *((verb, f"{LEASES}/podgate-scheduler", NAMESPACE) for verb in ("get", "update")),
    ("create", LEASES, NAMESPACE),
    ("create", "pods --subresource=binding", "default"),
    *((verb, "persistentvolumeclaims", "") for verb in ("list", "watch", "update")),
    ("list", "configmaps/extension-apiserver-authentication", "kube-system"),
]
SCHEDULER_CANNOT = [
    *((verb, f"{LEASES}/podgate-leader", NAMESPACE) for verb in ("get", "update")),
    ("update", LEASES, NAMESPACE),
    *((verb, "secrets", "") for verb in ("get", "list")),
    *((verb, "configmaps", NAMESPACE) for verb in ("get", "list")),
    ("create", "pods", "default"),
]


@pytest.mark.parametrize(
    ("account", "mode", "can"),
    [
        ("podgate", ways.MEMORY, CAN),
        ("podgate-controller", ways.REDIS, CONTROLLER_CAN),
        ("podgate-extender", ways.MEMORY, EXTENDER_CAN),
    ],
)
def test_roles_have_the_rights_of_these_lists(account: str, mode: str, can: list[tuple[str, str, str]]) -> None:
    """So that a test fails whichever verb is added or removed."""
    roles = {path: found for path, found in read_manifest_files().items() if ROLES.match(path)}
    extender = ReplicasObject(metadata=ClusterMetadata(name="podgate-extender"))
    facts = ClusterFacts(0, record_map=ConfigMap(data={"mode": mode}), deployments=[extender])
    assert {list_words(right) for right in list_expected_rights(roles, facts) if right.account == account} == set(can)


def list_words(right: Right) -> tuple[str, str, str]:
    kind = f"{right.resource}.{right.group}" if right.group else right.resource
    named = f"{kind}/{right.name}" if right.name else kind
    return right.verb, f"{named} --subresource={right.subresource}" if right.subresource else named, right.namespace


@pytest.fixture(scope="module")
def scheduler_site(site: Site) -> Site:
    """Also apply the manifests of the scheduler."""
    site.run("kubectl apply -k manifests/scheduler")
    return site


@pytest.fixture(scope="module")
def controllers_site(site: Site) -> Site:
    """Also apply the manifests for Redis."""
    site.run("kubectl apply -k manifests/redis")
    return site


def may(site: Site, account: str, verb: str, resource: str, namespace: str) -> str:
    resource, _, subresource = resource.partition(" --subresource=")
    return "yes" if site.plane.may(account, verb, resource, namespace, subresource) else "no"


def wait_for_answer(site: Site, answer: str, account: str, verb: str, resource: str, namespace: str) -> None:
    """Wait until the API server uses the current roles, which it watches."""
    what = f"the answer {answer} to whether {account} may {verb} {resource} in {namespace or 'all namespaces'}"
    question = (site, account, verb, resource, namespace)
    site.plane.wait(lambda: may(*question) == answer, what, "kube-apiserver", timeout_seconds=HANG_SECONDS)


@pytest.mark.parametrize(
    ("verb", "resource", "namespace", "answer"),
    [(*right, "yes") for right in CAN] + [(*right, "no") for right in CANNOT],
)
def test_server_has_exactly_the_rights_it_uses(
    site: Site, verb: str, resource: str, namespace: str, answer: str
) -> None:
    wait_for_answer(site, answer, ACCOUNT, verb, resource, namespace)


@pytest.mark.parametrize(
    ("account", "verb", "resource", "namespace", "answer"),
    [
        (account, *right, answer)
        for account, can, cannot in (
            ("extender", EXTENDER_CAN, EXTENDER_CANNOT),
            ("scheduler", SCHEDULER_CAN, SCHEDULER_CANNOT),
        )
        for answer, rights in (("yes", can), ("no", cannot))
        for right in rights
    ],
)
def test_extender_and_scheduler_have_exactly_the_rights_they_use(
    scheduler_site: Site, account: str, verb: str, resource: str, namespace: str, answer: str
) -> None:
    """What any kube-scheduler may do is up to Kubernetes' own roles: only a part of that is repeated here."""
    full = f"system:serviceaccount:{NAMESPACE}:podgate-{account}"
    wait_for_answer(scheduler_site, answer, full, verb, resource, namespace)


@pytest.mark.parametrize(
    ("verb", "resource", "namespace", "answer"),
    [(*right, "yes") for right in CONTROLLER_CAN] + [(*right, "no") for right in CONTROLLER_CANNOT],
)
def test_controller_has_exactly_the_rights_it_uses(
    controllers_site: Site, verb: str, resource: str, namespace: str, answer: str
) -> None:
    wait_for_answer(controllers_site, answer, CONTROLLER, verb, resource, namespace)


@pytest.mark.parametrize(
    ("account", "folder"), [("podgate-controller", "certificates"), ("podgate", "certificates-in-memory")]
)
async def test_missing_rights_to_certificates_are_reported_with_the_remedy(
    controllers_site: Site, account: str, folder: str
) -> None:
    token = controllers_site.plane.kubectl("create", "token", account, "-n", NAMESPACE).stdout.strip()
    client = await connect(controllers_site.plane.write_kubeconfig(account, token=token))
    try:
        secret_store = SecretStore(Api(client, lambda: True))
        with pytest.raises(CertsError, match="HTTP 403") as caught:
            await secret_store.find(SERVING_CA)
        assert re.search(rf"kubectl apply -k manifests/{folder}(,|$)", caught.value.remedy)
        controllers_site.run(f"kubectl apply -k manifests/{folder}")
        try:
            user, secret = f"system:serviceaccount:{NAMESPACE}:{account}", f"secrets/{SERVING_CA}"
            wait_for_answer(controllers_site, "yes", user, "get", secret, NAMESPACE)
            assert (await secret_store.find(SERVING_CA)).data == {}
        finally:
            controllers_site.run(f"kubectl delete -k manifests/{folder}")
    finally:
        await client.close()


@pytest.mark.parametrize(
    ("account", "binding"), [(CONTROLLER, "podgate-webhooks"), (ACCOUNT, "podgate-webhooks-in-memory")]
)
async def test_with_cert_manager_the_leader_may_annotate_webhooks_and_read_no_secret(
    controllers_site: Site, account: str, binding: str
) -> None:
    """The files that the errors name grant the right, and no other one."""
    name = account.rpartition(":")[2]
    token = controllers_site.plane.kubectl("create", "token", name, "-n", NAMESPACE).stdout.strip()
    client = await connect(controllers_site.plane.write_kubeconfig(name, token=token))
    webhooks = [place.replace("/", ".admissionregistration.k8s.io/") for place in CONFIGURATIONS]
    try:
        controllers_site.run(f"kubectl delete clusterrolebinding/{binding}")
        for webhook in webhooks:
            wait_for_answer(controllers_site, "no", account, "get", webhook, "")
        errors = (await CaInjection().reconcile(Api(client, lambda: True), datetime.now(UTC))).errors
        assert len(errors) == len(CONFIGURATIONS)
        files = set(re.findall(r"kubectl apply -f (\S+yaml)", "; ".join(errors)))
        assert len(files) == 2
        for file in files:
            controllers_site.run(f"kubectl apply -f {file}")
        for webhook in webhooks:
            for verb, answer in (("get", "yes"), ("patch", "yes"), ("delete", "no")):
                wait_for_answer(controllers_site, answer, account, verb, webhook, "")
        assert (await CaInjection().reconcile(Api(client, lambda: True), datetime.now(UTC))).errors == ()
        secret = [may(controllers_site, account, verb, "secrets/podgate-tls", NAMESPACE) for verb in ("get", "update")]
        assert [*secret, may(controllers_site, account, "create", "secrets", NAMESPACE)] == ["no"] * 3
    finally:
        await client.close()


def test_server_with_redis_only_lists_pods_and_reads_their_owners(controllers_site: Site) -> None:
    """The README deletes the binding that grants more."""
    controllers_site.run(
        "kubectl delete clusterrolebinding podgate-in-memory podgate-webhooks-in-memory podgate-retries-in-memory"
    )
    controllers_site.run("kubectl delete rolebinding -n podgate-system podgate-rollout-in-memory")
    try:
        rights = [
            ("watch", "pods"),
            ("patch", "pods"),
            ("delete", "pods"),
            ("list", "servicestatuses.podgate.io"),
            *(right[:2] for right in WEBHOOK_RIGHTS),
        ]
        for verb, resource in rights:
            wait_for_answer(controllers_site, "no", ACCOUNT, verb, resource, "")
            wait_for_answer(controllers_site, "yes", CONTROLLER, verb, resource, "")
        for verb, resource in (("list", "pods"), ("get", "replicasets.apps"), ("get", "jobs.batch")):
            wait_for_answer(controllers_site, "yes", ACCOUNT, verb, resource, "")
        for verb, resource, namespace in ROLLOUT_RIGHTS[1:6]:
            answer = "yes" if (verb, resource) == ("get", "controllerrevisions.apps") else "no"
            wait_for_answer(controllers_site, answer, ACCOUNT, verb, resource, namespace)
    finally:
        controllers_site.run("kubectl apply -k manifests")


def test_controller_deployment_flags_are_valid() -> None:
    [deployment] = yaml.safe_load_all((manifests.FOLDER / "redis/31-controller.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    flags = dict(argument.split("=", 1) for argument in container["args"])
    flag_values = {
        item.name: flags.pop(settings.name_flag(item.name), None) for item in fields(settings.ControllerSettings)
    }
    assert flags == {}, "the controller has no such flags"
    assert container["command"] == ["podgate", "controller"]
    assert flag_values["store"] is not None
    settings.parse_store(flag_values["store"])


@pytest.mark.parametrize("namespace", ["default", NAMESPACE])
def test_caller_account_of_the_api_server_has_no_rights(site: Site, namespace: str) -> None:
    """It has only the rights of every service account: self-reviews and discovery."""

    def rules(account: str) -> list[str]:
        listed = site.plane.kubectl("auth", "can-i", "--list", "-n", namespace, f"--as={account}")
        return sorted(listed.stdout.splitlines())

    assert rules(CALLER) == rules("system:serviceaccount:default:default")


def test_shipped_webhooks_deny_no_pod(site: Site) -> None:
    """Applying the placeholder by mistake causes no outage."""
    site.plane.create_namespace("payments-placeholder")
    site.run("kubectl apply --server-side -f manifests/50-webhooks.yaml")

    def has_failed_open() -> bool:
        site.plane.kubectl("run", "p", "--image=i", "-n", "payments-placeholder", "--dry-run=server")
        metrics = site.plane.kubectl("get", "--raw", "/metrics").stdout.splitlines()
        series = [line for line in metrics if line.startswith("apiserver_admission_webhook_fail_open_count{")]
        return all(any(name in line for line in series) for name in ("mutate.podgate.io", "validate-open.podgate.io"))

    site.plane.wait(has_failed_open, "the API server to fail open", "kube-apiserver")
    site.run("kubectl delete --wait -f manifests/50-webhooks.yaml")


def test_readme_steps_lead_to_pods_admitted_by_the_policy(site: Site) -> None:
    *_, node_step, webhooks = manifests.steps()
    site.run(node_step)
    site.restart_api_server()
    address = site.start_server()
    site.run(webhooks)
    site.plane.create_namespace("payments")
    run = ("run", "p", "--image=i", "--labels=app=payment-api", "-n", "payments", "--dry-run=server", "-o", "json")

    def owner() -> str | None:
        labels: dict[str, str] = json.loads(site.plane.kubectl(*run).stdout)["metadata"]["labels"]
        return labels.get("podgate.io/service")

    site.plane.wait(lambda: owner() == "payment-api", "the Pod to be owned by its service", SERVER, "kube-apiserver")
    assert "WouldRewrite" in site.plane.kubectl(*run).stderr, "it only warns"
    _check_cluster_token_is_accepted(site, address)


def _check_cluster_token_is_accepted(site: Site, address: str) -> None:
    keys = site.plane.kubectl("get", "--raw", "/openid/v1/jwks").stdout
    (site.folder / "pod/jwks/jwks.json").write_text(keys)
    token_command = (
        "create",
        "token",
        "kube-apiserver-caller",
        "-n",
        NAMESPACE,
        "--audience=podgate",
        "--duration=24h",
    )
    token = site.plane.kubectl(*token_command).stdout.strip()
    pki = site.folder / "pki"
    context = ssl.create_default_context(cafile=pki / "ca.crt")
    context.check_hostname = False  # the certificate is for the Service name
    context.load_cert_chain(pki / "kube-apiserver.crt", pki / "kube-apiserver.key")
    body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": REQUEST})

    def status() -> int:
        connection = HTTPSConnection(address, context=context, timeout=HANG_SECONDS)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        connection.request("POST", "/mutate", body, headers)
        response_status = connection.getresponse().status
        connection.close()
        return response_status

    site.plane.wait(lambda: status() == 200, "the key set to be read", SERVER)


REQUEST = {
    "uid": "u",
    "operation": "CREATE",
    "resource": {"group": "", "version": "v1", "resource": "pods"},
    "namespace": "payments",
    "object": {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
}
