"""`podgate install` and `uninstall` over an installation by hand, and the reverse, while Pods are rewritten."""

import base64
import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from tests.cli.command_runner import BIN, Done, podgate
from tests.cluster import manifests
from tests.cluster.admission_configuration import NAMESPACE, Caller, admission_configuration
from tests.cluster.all_objects import list_objects
from tests.cluster.connect_proxy import connect_proxy
from tests.cluster.controlplane import ControlPlane
from tests.cluster.install import ENFORCING
from tests.cluster.kwok import NODES
from tests.cluster.load_balancer import LoadBalancer
from tests.cluster.processes import find_free_ports
from tests.cluster.readme_steps import Site
from tests.cluster.server import Server
from webhook.core.installation.ownership import is_installed, list_managers
from webhook.core.installation.record import RECORD
from webhook.core.placement import SERVICE_LABEL
from webhook.operations.shipped_manifests import read_identities

SERVER = "podgate-by-hand"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/podgate"
SERVICE_PORT = 443


@dataclass
class ByHand:
    """A cluster in which the steps of the manifests' README were run, with a server behind the Service."""

    site: Site
    address: str
    """Where every address of a Service leads the API server."""
    before: dict[str, Any] = field(default_factory=dict)

    @property
    def plane(self) -> ControlPlane:
        return self.site.plane

    def install(self, *options: str, wait: str = "60s") -> Done:
        kubeconfig = ("--kubeconfig", self.plane.kubeconfig)
        with chdir(self.site.folder):
            return podgate("install", *options, *kubeconfig, "--wait", wait)

    def uninstall(self) -> Done:
        return podgate("uninstall", "--kubeconfig", self.plane.kubeconfig)

    def create(self) -> None:
        """Run the steps: credentials, objects, and webhooks of a policy that denies while no server answers."""
        first, second, _, last = manifests.steps()
        (self.site.folder / "manifests/20-policy.yaml").write_text(
            yaml.safe_dump(
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "podgate-policy", "namespace": NAMESPACE},
                    "data": {"policy.yaml": ENFORCING},
                }
            )
        )
        if not (self.site.folder / "pki").exists():
            self.site.run(first)
        for step in (second, last):
            self.site.run(step)

    @contextmanager
    def serve(self) -> Iterator[None]:
        """Run the server behind the Service."""
        pki = self.site.folder / "pki"
        (known := self.site.folder / "identities.yaml").write_text(yaml.safe_dump(read_identities()[:1]))
        flags = ("--tls-cert", pki / "server.crt", "--tls-key", pki / "server.key", "--client-ca", pki / "ca.crt")
        keys = ("--jwks", pki / "jwks.json", "--identities", known, "--kubeconfig", self.plane.kubeconfig)
        listen = ("--listen", self.address, "--plain-listen", "127.0.0.1:0", "--drain", "0s")
        Server.start(self.plane, SERVER, *flags, *keys, *listen)
        try:
            self.plane.wait(self.is_rewritten, "Pods to be rewritten", SERVER)
            yield
        finally:
            self.plane.stop_component(SERVER)

    def is_rewritten(self) -> bool:
        """Return whether a Pod is admitted, and rewritten."""
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": "web-"},
            "spec": {"containers": [{"name": "c", "image": "i"}]},
        }
        status, answer = self.plane.api.request("POST", "/api/v1/namespaces/shop/pods?dryRun=All", pod)
        return status == 201 and answer["spec"].get("nodeSelector") == {"disk-type": "ssd"}

    def state(self) -> dict[str, str]:
        """Return the resource version of each object that no running program writes."""
        left_out = ("lease.", "servicestatus.", "configmap/podgate-policy-last-good", "node/")
        return {
            name: document["metadata"]["resourceVersion"]
            for name, document in list_objects(self.plane).items()
            if not name.startswith(left_out) and "status" not in document
        } | {"deployment": str(self.generation())}

    def generation(self) -> int:
        live = self.plane.api.get(DEPLOYMENT)
        return 0 if live is None else int(live["metadata"]["generation"])

    def container(self) -> dict[str, Any]:
        [found] = self.plane.api.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
        return dict(found)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ByHand]:
    folder = tmp_path_factory.mktemp("by-hand")
    pki = folder / "pki"
    caller = Caller(pki / "kube-apiserver.crt", pki / "kube-apiserver.key", pki / "token")
    admission = admission_configuration(tmp_path_factory.mktemp("admission"), {SERVICE_PORT: caller})
    address = f"127.0.0.1:{find_free_ports(1)[0]}"
    with ControlPlane(admission=admission, has_egress_proxy=True) as plane, ExitStack() as stack:
        assert plane.egress_socket is not None
        stack.enter_context(connect_proxy(plane.egress_socket, address))
        plane.add_nodes(*NODES)
        plane.create_namespace("shop")
        no_balancer = cast("LoadBalancer", SimpleNamespace(port=SERVICE_PORT))
        site = Site(plane, folder, no_balancer)
        made = ByHand(site, address)
        made.before = list_objects(plane)
        made.create()
        yield made


def command_in(error: str) -> str:
    """Return the command that a remedy names."""
    [found] = re.findall(r"(podgate install [^;]*--force-conflicts)", error)
    return str(found)


def test_install_over_it_is_refused_before_anything_is_changed(by_hand: ByHand) -> None:
    before = by_hand.state()
    for options in (
        *((), ("--dry-run",), ("--force-conflicts",), ("--certificates", "files")),
        *(("--store", "redis://r.x.svc:6379/0"), ("--server-url", "https://127.0.0.1:1")),
    ):
        done = by_hand.install(*options)
        assert (done.code, done.out) == (2, ""), (options, done)
        assert done.error.startswith("deployment.apps/podgate: installed by hand"), options
        assert command_in(done.error) == "podgate install --certificates files --pki pki --force-conflicts"
    other = by_hand.install("--certificates", "files", "--pki", "another", "--force-conflicts")
    assert "no CA of another/ca.crt is in it" in other.error
    assert not (by_hand.site.folder / "another").exists()
    assert by_hand.state() == before


def test_its_command_takes_all_over_while_pods_are_admitted(by_hand: ByHand) -> None:
    with by_hand.serve():
        command = command_in(by_hand.install().error)
        shown = by_hand.site.run(f"{command} --dry-run")
        assert "deployment.apps/podgate taken over (dry run)" in shown
        by_hand.site.run(f"{command} > out & installing=$!; {PODS_MEANWHILE} wait $installing")
        printed = (by_hand.site.folder / "out").read_text()
        assert "proven: the API server calls Podgate" in printed
        ours = set(re.findall(r"^(\S+) (?:taken over|changed|created)$", printed, re.MULTILINE))
        live = list_objects(by_hand.plane)
        assert len(ours) > 20
        for name in ours:
            assert is_installed(live[name]), name
            assert not {"kubectl-client-side-apply", "kubectl", "kubectl-create"} & {*list_managers(live[name])}, name
            annotations = live[name]["metadata"].get("annotations", {})
            assert "kubectl.kubernetes.io/last-applied-configuration" not in annotations, name
        assert by_hand.plane.api.get(RECORD.path)["data"]["certificates"] == "files"
        again = json.loads(by_hand.install("--certificates", "files", "-o", "json").out)
        assert {row["result"] for row in again["objects"]} <= {"unchanged", "kept as it is: yours"}


PODS_MEANWHILE = (
    "for one in 1 2 3 4 5 6; do kubectl run web-$one -n shop --image=i --dry-run=server -o name; done"
    " | grep -c pod/ | grep -qx 6;"
)
"""Pods of a service that is Closed: all of them are admitted."""


def test_running_pods_without_a_server_are_as_the_faq_says(by_hand: ByHand) -> None:
    """The service is Closed: the label of its Pods is judged, other labels are not."""
    plane, path = by_hand.plane, "/api/v1/namespaces/shop/pods/running"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "running"}}
    with by_hand.serve():
        created = {**pod, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        assert plane.api.request("POST", path.rpartition("/")[0], created)[0] == 201

    def change(label: str) -> tuple[int, Any]:
        patch = {"metadata": {"labels": {label: "changed"}}}
        return plane.api.request("PATCH", path, patch, "application/merge-patch+json")

    status, answer = change(SERVICE_LABEL)
    assert (status, "failed calling webhook" in answer["message"]) == (500, True)
    assert change("another")[0] == 200
    assert plane.api.request("DELETE", path)[0] == 200
    page = (manifests.FOLDER.parent / "docs/faq.md").read_text()
    assert "Running Pods continue; but changes that Podgate checks (" in page


def test_field_by_hand_over_install_is_named_and_nothing_changed(by_hand: ByHand) -> None:
    """A Role that is gone would be created before the Deployment is applied."""
    role = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/podgate"
    by_hand.site.run("kubectl apply -k manifests/overlays/own-certificates")
    assert "--certificates=own" in by_hand.container()["args"]
    by_hand.plane.delete(role)
    before = by_hand.state()
    done = by_hand.install("--certificates", "files")
    assert (done.code, done.out) == (2, "")
    assert done.error.startswith("deployment.apps/podgate: cannot patch: HTTP 409")
    assert "--force-conflicts" in done.error
    assert by_hand.state() == before
    with by_hand.serve():
        assert by_hand.install("--certificates", "files", "--force-conflicts").code == 0
    assert "--certificates=own" not in by_hand.container()["args"]
    assert by_hand.plane.api.get(role) is not None


def test_field_that_cannot_be_changed_is_named_and_nothing_changed(by_hand: ByHand) -> None:
    binding = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/podgate"
    own = by_hand.plane.api.get(binding)
    by_hand.plane.delete(binding)
    other = {key: own[key] for key in ("apiVersion", "kind", "subjects", "roleRef")}
    by_hand.plane.apply({**other, "metadata": {"name": "podgate"}, "roleRef": {**own["roleRef"], "name": "view"}})
    before = by_hand.state()
    done = by_hand.install("--certificates", "files", "--force-conflicts", "--image", "other:1")
    assert (done.code, done.out) == (2, "")
    remedy = "kubectl delete clusterrolebinding.rbac.authorization.k8s.io/podgate"
    assert remedy in done.error
    assert by_hand.state() == before
    by_hand.site.run(remedy)
    with by_hand.serve():
        assert by_hand.install("--certificates", "files").code == 0


def test_bundle_with_the_next_ca_is_installed_as_renewal_asks(by_hand: ByHand) -> None:
    """`podgate certs rotate` adds the next CA to ca.crt long before it signs with it."""
    by_hand.site.run("podgate certs issue --out next --server next.example")
    by_hand.site.run("cat next/ca.crt >> pki/ca.crt")
    bundle = (by_hand.site.folder / "pki/ca.crt").read_bytes()
    assert bundle.count(b"BEGIN") == 2
    with by_hand.serve():
        done = by_hand.install("--certificates", "files")
    assert done.code == 0, done.err
    hooks = by_hand.plane.api.get("/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/podgate")
    assert {base64.b64decode(webhook["clientConfig"]["caBundle"]) for webhook in hooks["webhooks"]} == {bundle}


REFUSAL = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: frozen}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [apps], apiVersions: [v1], operations: [UPDATE], resources: [deployments]}
  matchConditions:
  - {name: real, expression: "request.namespace == 'podgate-system' && !request.?dryRun.orValue(false)"}
  validations:
  - {expression: "object.spec.template == oldObject.spec.template", message: frozen}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: frozen}
spec: {policyName: frozen, validationActions: [Deny]}
"""
"""Refuses what only a dry run may do."""


def test_failure_in_the_middle_names_what_was_changed_and_leaves_the_servers(by_hand: ByHand) -> None:
    plane, former = by_hand.plane, by_hand.container()
    plane.kubectl("apply", "-f", "-", input=REFUSAL)
    images = itertools.count()

    def is_refused() -> bool:
        change = [
            {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": f"frozen:{next(images)}"}
        ]
        return plane.api.request("PATCH", DEPLOYMENT, change, "application/json-patch+json")[0] == 422

    plane.wait(is_refused, "the refusal to be in force", "kube-apiserver")
    try:
        plane.delete(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NAMESPACE}/roles/podgate")
        done = by_hand.install("--certificates", "files", "--image", "other:2", "--force-conflicts")
    finally:
        plane.kubectl("delete", "-f", "-", input=REFUSAL)
        plane.wait(lambda: not is_refused(), "the refusal to be over", "kube-apiserver")
    assert done.code == 2
    assert "deployment.apps/podgate: cannot patch" in done.error
    assert "before that these were created or changed: role.rbac.authorization.k8s.io/podgate" in done.error
    assert by_hand.container()["args"] == former["args"]
    assert by_hand.container()["image"] != "other:2"
    with by_hand.serve():
        assert by_hand.install("--certificates", "files", "--force-conflicts").code == 0


def test_servers_that_ran_are_changed_back_if_others_are_not_ready(by_hand: ByHand) -> None:
    plane, former = by_hand.plane, by_hand.container()
    names = [node["metadata"]["name"] for node in NODES]
    plane.kubectl("cordon", *names)
    try:
        done = by_hand.install("--certificates", "files", "--image", "other:1", wait="2s")
    finally:
        plane.kubectl("uncordon", *names)
    assert done.code == 1
    assert "deployment.apps/podgate changed back to what it was\n" in done.out
    assert "deployment.apps/podgate: changed back to what ran before" in done.err
    assert by_hand.container() == former
    plane.kubectl("rollout", "status", "deployment/podgate", "-n", NAMESPACE, "--timeout=300s")
    with by_hand.serve():
        assert by_hand.install("--certificates", "files", "--image", "other:1").code == 0, "no conflict is left"
    assert by_hand.container()["image"] == "other:1"


def test_uninstall_removes_what_was_installed_by_hand(by_hand: ByHand) -> None:
    for is_again in (False, True):
        done = by_hand.uninstall()
        assert done.code == 0, done.err
        by_hand.plane.wait(lambda: {*list_objects(by_hand.plane)} == {*by_hand.before}, "nothing to be left")
        if not is_again:
            by_hand.create()


WAYS: dict[str, tuple[str, ...]] = {
    "own": (),
    "files": ("--certificates", "files", "--apiserver-files", "--with-scheduler"),
    "reduced": ("--reduced",),
    "redis": ("--store", "redis://r.x.svc:6379/0", "--with-scheduler"),
}


@pytest.mark.parametrize("way", WAYS)
def test_dry_run_lists_all_that_is_created(by_hand: ByHand, way: str, tmp_path: Path) -> None:
    """The proof, which no server answers here, is not awaited."""
    plane = by_hand.plane
    by_hand.uninstall()
    before = list_objects(plane)
    options = ("install", *WAYS[way], "--pki", str(tmp_path / "pki"), "--kubeconfig", str(plane.kubeconfig))
    dry = podgate(*options, "--dry-run", "-o", "json")
    assert dry.code == 0, dry.err
    assert {*list_objects(plane)} == {*before}
    listed = {row["object"]: row["result"] for row in json.loads(dry.out)["objects"]}
    process = subprocess.Popen([BIN / "podgate", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    last = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/podgate-policy"
    try:
        plane.wait(lambda: plane.api.get(last) is not None, "the last object", "kube-controller-manager")
        created = {*list_objects(plane)} - {*before}
    finally:
        process.terminate()
        out, _ = process.communicate()
    assert {name for name, result in listed.items() if result == "created"} == created
    assert all(f"{name} created\n" in out for name in created)
