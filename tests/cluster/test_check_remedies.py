"""Remedies of `podgate check`: each printed command, run in a shell on the installation it is for, ends its finding."""

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_runner import BIN, podgate
from tests.cluster.admission_configuration import NAMESPACE
from tests.cluster.binaries import binaries
from tests.cluster.check import (
    POLICY,
    SHOP,
    WEB,
    budget,
    check,
    foreign,
    healthy,
    plant,
    render_slow_configurations,
    second_server,
    secret,
    service,
)
from tests.cluster.controlplane import ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.install import WAYS, Cluster, cluster, installed
from tests.cluster.installation import MANIFESTS, RBAC, RETRIES_RBAC, Installation
from tests.cluster.processes import ComponentError
from tests.timeouts import HANG_SECONDS
from webhook.core.admission.mutation import HASH_ANNOTATION
from webhook.core.document import configmap
from webhook.core.installation.record import RECORD
from webhook.core.webhook_configurations import NAMES
from webhook.operations.installer import LATER, UNCHANGED

__all__ = ["cluster", "healthy", "installed"]

pytest_plugins = ("tests.redis_servers.fixtures",)

Json = dict[str, Any]
_ADMISSION = "/apis/admissionregistration.k8s.io/v1"
_RIGHTS = "/apis/rbac.authorization.k8s.io/v1"
_DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"
_EDITED = "fieldManager=kubectl-edit"


@dataclass
class Site:
    """An installation, and a folder to run commands in, as its administrator has one: with pki/ and manifests/."""

    plane: ControlPlane
    folder: Path
    document: Callable[[], Json]
    """Checks, and returns the printed JSON."""
    pki: Path
    variables: dict[str, str] = field(default_factory=dict)
    """Which the latest check has printed before its commands."""

    def __post_init__(self) -> None:
        tools = self.folder / "bin"
        tools.mkdir()
        for name, path in (("kubectl", binaries().kubectl), ("podgate", BIN / "podgate")):
            (tools / name).symlink_to(path)
        (self.folder / "pki").symlink_to(self.pki)
        (self.folder / "manifests").symlink_to(MANIFESTS)

    def list_findings(self) -> dict[str, list[Json]]:
        """Return the findings by code."""
        document = self.document()
        self.variables = document["environment"]
        checks = [check for section in document["sections"] for check in section["checks"]]
        return {check["code"]: check["findings"] for check in checks if check["findings"]}

    def run(self, command: str) -> str:
        """Run a command as printed, after the variables that the check printed before it; return its output."""
        assert self.variables["KUBECONFIG"] == str(self.plane.kubeconfig)
        tools = f"{self.folder / 'bin'}:/usr/bin:/bin"
        env = {"PATH": tools, "HOME": str(self.folder), **self.variables}
        done = subprocess.run(
            ["/bin/sh", "-c", command], cwd=self.folder, env=env, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def mend(
        self, *codes: str, once_found: Callable[[], None] = lambda: None, plant: Callable[[], None] = lambda: None
    ) -> None:
        """Wait until these are found at once, run their commands, and wait until there are none of them.

        `plant` makes the faults again if one is not found: a leader may just have repaired it. Several codes have the
        same commands, so that none of them needs the command of another.
        """
        seen: list[dict[str, list[Json]]] = []

        def are_found() -> bool:
            seen.append(self.list_findings())
            if {*codes} <= {*seen[-1]}:
                return True
            plant()
            return False

        def are_gone() -> bool:
            seen.append(self.list_findings())
            return not {*codes} & {*seen[-1]}

        self._wait(are_found, f"{', '.join(codes)} to be found", seen)
        found = {code: dict.fromkeys(finding["command"] for finding in seen[-1][code]) for code in codes}
        commands = found[codes[0]]
        assert all(commands), commands
        assert all(others == commands for others in found.values()), found
        once_found()
        for command in commands:
            self.run(command)
        self._wait(are_gone, f"{', '.join(codes)} to be gone", seen)

    def _wait(self, condition: Callable[[], bool], what: str, seen: list[dict[str, list[Json]]]) -> None:
        try:
            self.plane.wait(condition, what, "kube-apiserver", timeout_seconds=HANG_SECONDS)
        except ComponentError as error:
            raise AssertionError(f"{what}: {json.dumps(seen[-1], indent=1)}") from error

    def edit(self, path: str, change: Callable[[Json], None]) -> None:
        """Change an object as `kubectl edit` does, whoever owns its fields; a leader may write it meanwhile."""

        def is_changed() -> bool:
            live = self.plane.api.get(path)
            change(live)
            status, answer = self.plane.api.request("PUT", f"{path}?{_EDITED}", live)
            assert status in {200, 409}, answer
            return status == 200

        self.plane.wait(is_changed, f"{path} to be changed", "kube-apiserver")


@pytest.fixture
def by_hand(healthy: Installation, tmp_path: Path) -> Site:
    pki = tmp_path / "of-the-server"
    pki.mkdir()
    shutil.copy(healthy.files.folder / "ca.crt", pki / "ca.crt")
    return Site(healthy.plane, tmp_path, lambda: json.loads(check(healthy, "-o", "json").out), pki)


@pytest.fixture
def outside(installed: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("administrator")
    return Site(installed.plane, folder, lambda: check_cluster(installed), installed.folder / "pki")


def check_cluster(cluster: Cluster) -> Json:
    """Check as a person does, without naming the server."""
    found: Json = json.loads(podgate("check", "--kubeconfig", cluster.plane.kubeconfig, "-o", "json").out)
    return found


@pytest.fixture(params=["by_hand", "outside"])
def site(request: pytest.FixtureRequest) -> Site:
    found: Site = request.getfixturevalue(request.param)
    return found


MUTATING, VALIDATING, OF_POLICY = (f"{_ADMISSION}/{name.kind.lower()}s/{name.name}" for name in NAMES)


CHANGED = (
    *("webhooks-stale", "failure-policy", "webhook-timeout", "ca-bundle", "namespaces-left-out"),
    "own-namespace-selected",
)
"""What is wrong with the webhooks that `_change_webhooks` has changed."""


def _change_webhooks(site: Site, authority: bytes) -> None:
    """Change the webhooks in six ways, with as few edits as possible, since a leader repairs them."""

    def change_mutating(live: Json) -> None:
        live["webhooks"][0].update(matchConditions=[], failurePolicy="Fail", timeoutSeconds=1)
        live["webhooks"][0]["clientConfig"].update(caBundle=base64.b64encode(authority).decode())
        for webhook in live["webhooks"]:
            name_label = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": [SHOP, WEB, "shop"]}
            webhook["namespaceSelector"].setdefault("matchExpressions", []).append(name_label)

    def change_validating(live: Json) -> None:
        live["webhooks"][0].update(failurePolicy="Fail", namespaceSelector={}, matchConditions=[])

    site.edit(MUTATING, change_mutating)
    site.edit(VALIDATING, change_validating)


def test_missing_webhooks_are_rendered_for_this_installation(site: Site) -> None:
    targets = _targets(site)

    def delete() -> None:
        site.plane.delete(OF_POLICY, MUTATING)

    delete()
    site.mend("webhooks-missing", plant=delete)
    assert _targets(site) == targets


def test_changed_webhooks_are_rendered_for_this_installation(site: Site, identities: Identities) -> None:
    """All faults are there at once, and one command ends them."""
    stranger = (identities.files.folder / "stranger" / "ca.crt").read_bytes()
    targets = _targets(site)
    _change_webhooks(site, stranger)
    site.mend(*CHANGED, plant=lambda: _change_webhooks(site, stranger))
    assert _targets(site) == targets


def _targets(site: Site) -> set[str]:
    """Return the addresses that the webhooks call; only the path differs between them."""
    found = set()
    for path in (MUTATING, VALIDATING, OF_POLICY):
        for webhook in site.plane.api.get(path)["webhooks"]:
            client = webhook["clientConfig"]
            found.add("/".join(client["url"].split("/")[:3]) if "url" in client else json.dumps(client["service"]))
    return {field.replace(', "path"', "").split(', "port"')[-1] for field in found}


def test_webhooks_of_another_address_are_rendered_for_the_recorded_one(outside: Site) -> None:
    def away(live: Json) -> None:
        for webhook in live["webhooks"]:
            webhook["clientConfig"]["url"] = "https://127.0.0.1:1/"

    outside.edit(MUTATING, away)
    outside.edit(VALIDATING, away)
    outside.mend("calls-fail")
    assert outside.list_findings().keys() & {"webhooks-not-called", "calls-fail", "calls-fail-open"} == set()


def test_service_of_another_server_is_not_kept(by_hand: Site) -> None:
    plane = by_hand.plane
    plane.apply(service("check-other", {"app": "nothing-has-this"}))
    other = {"name": "check-other", "namespace": NAMESPACE, "port": 9}
    by_hand.edit(MUTATING, lambda live: live["webhooks"][0]["clientConfig"]["service"].update(other))
    try:
        assert by_hand.list_findings().keys() >= {"webhook-port", "deployment-missing", "no-endpoints"}
        by_hand.mend("webhook-port")
        assert by_hand.list_findings().keys() & {"webhook-port", "deployment-missing", "no-endpoints"} == set()
    finally:
        plane.delete(f"/api/v1/namespaces/{NAMESPACE}/services/check-other")


RIGHT_FAULTS: dict[str, Callable[[Site], None]] = {
    "role": lambda site: site.edit(f"{_RIGHTS}/clusterroles/podgate", lambda live: live["rules"].pop()),
    "retries": lambda site: site.plane.delete(f"{_RIGHTS}/clusterrolebindings/podgate-retries-in-memory"),
    "roles of retries": lambda site: site.edit(
        f"{_RIGHTS}/clusterroles/podgate-retries", lambda live: live["rules"].pop()
    ),
}


@pytest.mark.parametrize("fault", RIGHT_FAULTS)
def test_rights_are_granted_again(by_hand: Site, fault: str) -> None:
    by_hand.plane.apply_file(RBAC)
    by_hand.plane.apply_file(RETRIES_RBAC)
    RIGHT_FAULTS[fault](by_hand)
    by_hand.mend("right-missing")


def test_rights_of_a_recorded_installation_are_granted_again(outside: Site) -> None:
    outside.plane.delete(f"{_RIGHTS}/clusterrolebindings/podgate")
    outside.mend("right-missing")


def test_other_webhooks_are_changed_in_the_field_that_was_found(by_hand: Site) -> None:
    plane = by_hand.plane
    undoing = foreign("Mutating", "zz-undoing", reinvocationPolicy="IfNeeded")
    blocking = foreign("Validating", "zz-blocking", namespaceSelector={"matchLabels": {}}, failurePolicy="Fail")
    plane.apply(undoing, blocking)
    try:
        by_hand.mend("webhook-undone")
        by_hand.mend("other-webhook-blocks")
    finally:
        plane.delete(
            f"{_ADMISSION}/mutatingwebhookconfigurations/zz-undoing",
            f"{_ADMISSION}/validatingwebhookconfigurations/zz-blocking",
        )


def test_replicas_and_budgets_are_mended(by_hand: Site) -> None:
    plane = by_hand.plane
    second = second_server()
    try:
        second["spec"]["replicas"] = 1
        plane.apply(second)
        by_hand.mend("single-replica")
        by_hand.mend("budget-missing")
        plane.kubectl("delete", "pdb", "podgate-b", "-n", NAMESPACE)
        second["spec"]["replicas"] = 2
        plane.apply(second, {**budget(), "spec": {**budget()["spec"], "minAvailable": 2}})
        by_hand.mend("budget-blocks")
        by_hand.edit(f"{_DEPLOYMENTS}/podgate", lambda live: live["spec"].update(replicas=2))
        by_hand.mend("replicas-in-memory")
    finally:
        plane.delete(
            f"{_DEPLOYMENTS}/podgate-b", f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets/podgate-b"
        )


def test_serving_certificates_are_replaced(by_hand: Site, identities: Identities) -> None:
    """Those of another name, and those that have expired."""
    plane, pki = by_hand.plane, by_hand.folder / "pki"
    for file in pki.iterdir():
        file.unlink()
    assert podgate("certs", "issue", "--out", pki, "--server", "podgate.podgate-system.svc").code == 0
    authority = (pki / "ca.crt").read_bytes()
    try:
        for caller, code in (
            ("wrong-name", "serving-certificate-names"),
            ("expired-certificate", "certificate-expired"),
        ):
            certificate = identities.callers[caller].certificate
            assert certificate is not None
            secret(plane, "podgate-tls", tls_crt=certificate.read_bytes())
            by_hand.mend(code)
            assert (pki / "ca.crt").read_bytes() == authority
    finally:
        plane.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/podgate-tls")
        secret(plane, "podgate-tls", tls_crt=identities.files.pki.paths.certificate.read_bytes())


def test_a_command_creates_no_authority_in_another_folder(outside: Site) -> None:
    outside.plane.delete(f"{_RIGHTS}/clusterrolebindings/podgate")
    (outside.folder / "pki").rename(outside.folder / "elsewhere")
    with pytest.raises(AssertionError, match=r"pki/ca\.crt"):
        outside.mend("right-missing")
    assert not (outside.folder / "pki").exists()
    (outside.folder / "elsewhere").rename(outside.folder / "pki")
    outside.mend("right-missing")


def test_policy_is_created_as_it_was_last_in_force(by_hand: Site) -> None:
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{configmap.NAME}"
    before = by_hand.plane.api.get(path)["data"][configmap.KEY]
    by_hand.plane.delete(path)
    by_hand.mend("policy-missing")
    assert by_hand.plane.api.get(path)["data"][configmap.KEY].strip() == before.strip()


def test_overrides_without_a_service_are_removed(by_hand: Site, healthy: Installation) -> None:
    plane = by_hand.plane
    plane.delete(OF_POLICY)
    long_ago = "- {service: shop, quotaFactor: 2, until: 2020-01-01T00:00:00Z, reason: INC-1}\n"
    try:
        plant(plane, configmap.OVERRIDES, configmap.OVERRIDES_KEY, long_ago)
        by_hand.mend("overrides-ended")
        unknown = "- {service: webb, quotaFactor: 2, until: 2100-01-01T00:00:00Z, reason: INC-1}\n"
        plant(plane, configmap.OVERRIDES, configmap.OVERRIDES_KEY, unknown)
        by_hand.mend("override-unknown")
    finally:
        plane.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{configmap.OVERRIDES}")
        plane.apply(*render_slow_configurations(healthy))


def test_only_pods_that_a_controller_creates_again_are_deleted(by_hand: Site, healthy: Installation) -> None:
    """A Pod without a controller would be lost."""
    plane = by_hand.plane
    plane.delete(MUTATING, VALIDATING)
    healthy.plane.wait(lambda: "webhooks-missing" in by_hand.list_findings(), "the webhooks to be gone")

    def is_unjudged() -> bool:
        code, pod = healthy.create_pod(SHOP, dry_run=True, labels={"app": "shop"})
        return code == 201 and HASH_ANNOTATION not in pod["metadata"].get("annotations", {})

    plane.wait(is_unjudged, "the API server to call no webhook any more", "kube-apiserver")
    assert healthy.create_pod(SHOP, "bare", labels={"app": "shop"})[0] == 201
    plane.kubectl("create", "deployment", "shop", "--image=i", "-n", SHOP)
    plane.wait(lambda: len(healthy.pods(SHOP)) > 1, "the Pod of the Deployment")
    plane.apply(*render_slow_configurations(healthy))
    plane.wait(lambda: not is_unjudged(), "the API server to call the webhooks again", "kube-apiserver")
    [finding] = by_hand.list_findings()["pods-unjudged"]
    assert "create the others again yourself" in finding["remedy"]
    by_hand.run(finding["command"])
    assert "bare" in {pod["metadata"]["name"] for pod in healthy.pods(SHOP)}
    plane.delete(f"/api/v1/namespaces/{SHOP}/pods/bare?gracePeriodSeconds=0")
    plane.wait(lambda: "pods-unjudged" not in by_hand.list_findings(), "the finding to be gone")
    plane.delete(f"/apis/apps/v1/namespaces/{SHOP}/deployments/shop")


def test_held_replica_set_is_woken(by_hand: Site, healthy: Installation) -> None:
    plane = by_hand.plane
    healthy.change_policy(POLICY.replace("pods: 1000", "pods: 1"))
    plane.kubectl("create", "deployment", "web", "--image=i", "--replicas=3", "-n", WEB)
    by_hand.mend("replicaset-held", once_found=lambda: healthy.change_policy(POLICY))
    plane.delete(f"/apis/apps/v1/namespaces/{WEB}/deployments/web")


@pytest.mark.parametrize("way", WAYS)
def test_each_way_in_the_cluster_is_installed_again_repeated_and_removed(
    cluster: Cluster, way: str, tmp_path: Path
) -> None:
    """No node runs the servers here, so `install` ends with what delays them, and its remedy runs with --dry-run."""
    if cluster.plane.api.get(RECORD.path) is not None:
        assert cluster.uninstall().code == 0
    (pki := tmp_path / "of-the-administrator").mkdir()
    common = ("--kubeconfig", cluster.plane.kubeconfig, "--pki", pki, "--wait", "1s", "-o", "json")
    for attempt in ("first", "again"):
        done = podgate("install", *common, *WAYS[way])
        assert done.code == 1, done.err
        document = json.loads(done.out)
        assert document["proof"].startswith("the servers are not ready: deployment.apps/podgate: 0 of ")
        assert document["called"] is False
        results = {row["result"] for row in document["objects"]}
        assert (results == {UNCHANGED}) == (attempt == "again"), results
    assert cluster.plane.api.get(RECORD.path)["data"]["mode"] == (way if way in {"redis", "reduced"} else "memory")
    other = podgate("install", *common, "--certificates", "cert-manager")
    assert other.code == 2
    assert "Podgate is installed in another way" in other.error
    _check_repetition(Site(cluster.plane, tmp_path, lambda: check_cluster(cluster), pki))
    removed = cluster.uninstall()
    assert removed.code == 0, removed.err
    cluster.wait_for_nothing_left()


def _check_repetition(site: Site) -> None:
    """Check that the command of a remedy has the options of the installation: it would change nothing else."""
    site.plane.delete(f"{_RIGHTS}/clusterrolebindings/podgate")
    command = site.list_findings()["right-missing"][0]["command"]
    shown = json.loads(site.run(f"{command} --dry-run -o json"))
    results = {row["object"]: row["result"] for row in shown["objects"]}
    assert results.pop("clusterrolebinding.rbac.authorization.k8s.io/podgate") == "created"
    webhooks = {name for name in results if "webhookconfiguration" in name}
    assert {results.pop(name) for name in webhooks} == {"created"}, "the first installation ended before them"
    assert set(results.values()) - {LATER} == {UNCHANGED}, results
