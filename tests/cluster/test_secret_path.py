"""Reduced mode with an API server without admission configuration, certificate and token."""

import base64
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from certs.authority import list_server_names
from certs.files import write_key_pair
from tests.authentication.secret_path import OTHER, SECRET, Reduced
from tests.cluster import manifests
from tests.cluster.admission_configuration import SERVICE_HOST, stand_in_service
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.installation import PATIENT, RBAC, Installation, lengthen_timeouts
from tests.cluster.load_balancer import LoadBalancers
from tests.cluster.readme_steps import Site as ReadmeSite
from webhook import settings
from webhook.authentication.secret_path_file import read_paths
from webhook.core.document import Purpose, load
from webhook.core.webhook_configurations import ClientConfig, ServiceReference, render_configurations

POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: closed
  failureMode: Closed
  match: {namespaces: [reduced-closed]}
  placement: {schedulerName: podgate-scheduler}
- name: limited
  failureMode: Closed
  match: {namespaces: [reduced-limited]}
  quota: {windows: [{window: 1h, hard: {pods: 1}}]}
- name: open
  match: {namespaces: [reduced-open]}
  placement: {schedulerName: podgate-scheduler}
"""
CLOSED, LIMITED, OPEN = NAMESPACES = ("reduced-closed", "reduced-limited", "reduced-open")
REFUSED = ("podgate_refused_calls_total", 'reason="authentication_path"')
REDUCED = "overlays/reduced"
PAGE = manifests.FOLDER.parent / "docs/reduced-mode.md"


@dataclass
class ReducedSite(Installation):
    """An installation whose API server uses a secret path."""

    def use_path(self, path: str) -> None:
        """Apply the webhook configurations with this path, and wait until the API server uses it."""
        before = self.count_rejected(), self.count_accepted()
        loaded_policy = load(POLICY.encode(), Purpose.SERVE).policy.policy
        bundle = (self.files.folder / "ca.crt").read_bytes()
        client = ClientConfig(ServiceReference(port=self.load_balancer.port), bundle, path)
        self.plane.apply(*lengthen_timeouts(render_configurations(loaded_policy, client)))

        def has_counted_both() -> bool:
            self.create_pod(OPEN, dry_run=True)
            return (self.count_rejected(), self.count_accepted()) != before

        self.plane.wait(has_counted_both, "the API server to use that path", "kube-apiserver")

    def count_rejected(self) -> float:
        return sum(server.total(*REFUSED) for server in self.servers)

    def count_accepted(self) -> float:
        return sum(server.total("podgate_calls_total", 'client_id="reduced-mode"') for server in self.servers)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(components=API_ALONE) as running:
        running.apply(*stand_in_service())
        for namespace in NAMESPACES:
            running.create_namespace(namespace)
        running.kubectl("apply", "-f", str(RBAC))
        yield running


@contextmanager
def install_reduced(plane: ControlPlane, folder: Path) -> Iterator[ReducedSite]:
    files = Reduced.create_in(folder)
    names = (*list_server_names("127.0.0.1"), *list_server_names(SERVICE_HOST))
    leaf = files.pki.authority.issue_server(SERVICE_HOST, names)
    write_key_pair(leaf, files.pki.paths.certificate, files.pki.paths.key, replace=True)
    with LoadBalancers() as load_balancers:
        site = ReducedSite(plane, files, load_balancers.open(), POLICY, NAMESPACES)
        site.apply_policy(POLICY)
        try:
            site.start_server("--drain", "0s", *PATIENT)
            yield site
        finally:
            delete_webhooks(plane)
            for server in list(site.servers):
                site.stop_server(server)


def delete_webhooks(plane: ControlPlane) -> None:
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        plane.kubectl("delete", kind, "--all")


@pytest.fixture
def site(plane: ControlPlane, tmp_path: Path) -> Iterator[ReducedSite]:
    with install_reduced(plane, tmp_path) as reduced_site:
        yield reduced_site


def test_pods_and_policies_are_evaluated_for_an_api_server_without_credentials(site: ReducedSite) -> None:
    assert site.plane.admission is None
    site.use_path(SECRET)
    code, pod = site.create_pod(CLOSED)
    assert (code, pod["spec"]["schedulerName"]) == (201, "podgate-scheduler")
    assert site.create_pod(LIMITED)[0] == 201
    code, answer = site.create_pod(LIMITED)
    assert code == 429, answer
    assert "podgate" in answer["message"].lower()
    output = site.apply_policy(POLICY.replace("1h", "forever"), check=False)
    assert "not a Go duration" in output
    [server] = site.servers
    assert server.status()["clientIdentity"] == "reduced"
    assert server.metrics()["podgate_reduced_mode"] == 1
    assert site.count_rejected() == 0
    assert SECRET not in site.log(server)


def test_wrong_path_is_rejected_and_the_failure_policy_applies(site: ReducedSite) -> None:
    site.use_path("wrong" + SECRET[5:])
    accepted = site.count_accepted()
    code, answer = site.create_pod(CLOSED)
    assert code == 500, answer
    assert "failed calling webhook" in answer["message"]
    code, pod = site.create_pod(OPEN)
    assert (code, pod["spec"]["schedulerName"]) == (201, "default-scheduler")
    assert site.count_accepted() == accepted == 0
    assert site.count_rejected() >= 2


def test_path_changes_without_a_rejected_call(site: ReducedSite) -> None:
    site.use_path(SECRET)
    files = site.files
    assert isinstance(files, Reduced)
    [server] = site.servers

    def read(times: int) -> None:
        labels = ("podgate_file_reloads_total", 'file="reduced path"', 'result="success"')
        site.plane.wait(lambda: server.total(*labels) == times, "the server to read its paths", server.name)

    files.path_file.write_text(f"{OTHER}\n{SECRET}\n")
    read(2)
    assert site.create_pod(CLOSED)[0] == 201
    site.use_path(OTHER)
    files.path_file.write_text(f"{OTHER}\n")
    read(3)
    assert site.create_pod(CLOSED)[0] == 201
    assert site.count_rejected() == 0


def test_during_an_outage_the_api_server_discloses_the_path_in_its_error(site: ReducedSite) -> None:
    """A known weakness: docs/reduced-mode.md therefore says to change the path after an outage."""
    site.use_path(SECRET)
    site.stop_server(site.servers[0])
    code, answer = site.create_pod(CLOSED)
    assert code == 500
    assert f"/{SECRET}/validate" in answer["message"]


# --- shipped manifests and documentation ---


def test_deployment_differs_from_the_default_only_in_caller_identity() -> None:
    reduced_deployment, default_deployment = (
        manifests.deployment(REDUCED),
        manifests.deployment("base"),
    )
    caller_flags = ("--client-ca=", "--jwks", "--cluster-keys", "--identities=", "--denied-tokens=", "--token-binding=")
    spec, default_spec = (
        deployment["spec"]["template"]["spec"] for deployment in (reduced_deployment, default_deployment)
    )
    [container], [default_container] = spec["containers"], default_spec["containers"]
    other_flags = [argument for argument in default_container["args"] if not argument.startswith(caller_flags)]
    reduced_flags = ["--client-identity=reduced", "--reduced-path-file=/etc/podgate/reduced/path"]
    assert sorted(container.pop("args")) == sorted([*other_flags, *reduced_flags])
    default_container.pop("args")
    for part, key in ((spec, "volumes"), (container, "volumeMounts")):
        default_by_name = {
            entry["name"]: entry for entry in (default_spec if part is spec else default_container).pop(key)
        }
        reduced_by_name = {entry["name"]: entry for entry in part.pop(key)}
        assert reduced_by_name.pop("reduced")
        assert reduced_by_name == {
            name: entry for name, entry in default_by_name.items() if name not in ("jwks", "identities")
        }
    assert reduced_deployment == default_deployment


def test_network_policy_names_the_server_ports_and_admits_no_wide_range() -> None:
    [policy] = [document for document in manifests.build_kustomization(REDUCED) if document["kind"] == "NetworkPolicy"]
    spec = manifests.deployment(REDUCED)["spec"]
    assert policy["spec"]["podSelector"] == spec["selector"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    ports = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert set(ports) == {port["name"] for port in spec["template"]["spec"]["containers"][0]["ports"]}
    for rule in policy["spec"]["ingress"]:
        assert rule["from"], "a rule without peers admits all"
        for peer in rule["from"]:
            assert peer.get("ipBlock", {}).get("cidr") != "0.0.0.0/0"
            assert peer.get("podSelector", {"": ""}), "an empty selector admits all Pods"


def test_api_server_accepts_the_reduced_manifests(plane: ControlPlane) -> None:
    overlay = str(manifests.FOLDER / REDUCED)
    printed = plane.kubectl("apply", "--server-side", "--dry-run=server", "-k", overlay).stdout.splitlines()
    names = {line.split()[0] for line in printed}
    assert "deployment.apps/podgate" in names
    assert {name for name in names if name.startswith("networkpolicy.")} == {
        "networkpolicy.networking.k8s.io/podgate-reduced"
    }, "another one would admit all callers"


def test_documented_steps_install_it_and_change_the_path(plane: ControlPlane, tmp_path: Path) -> None:
    """The documented commands run with other addresses, and without a server."""
    blocks = re.findall(r"^   ```\n(.+?)^   ```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    certificates, server, webhooks = (textwrap.dedent(block) for block in blocks)
    change = re.search(r"`(\(umask 077; printf .+?\))`.+?`(kubectl create secret .+?)`\.", PAGE.read_text(), re.DOTALL)
    assert change is not None
    plane.delete("/api/v1/namespaces/podgate-system/configmaps/podgate-policy")  # of another test: it is never replaced
    with LoadBalancers() as load_balancers:
        readme_site = ReadmeSite(plane, tmp_path, load_balancers.open())
        (tmp_path / "policy.yaml").write_text(POLICY)
        for step in (certificates, server, webhooks):
            readme_site.run(step)
        first = (tmp_path / "pki/path").read_text()
        assert read_stored(plane) == read_paths(first.encode(), tmp_path) == paths_in_webhooks(plane)
        assert (tmp_path / "pki/path").stat().st_mode & 0o077 == 0
        second = "0123456789abcdef" * 4
        readme_site.run(f"OLD={first} NEW={second}\n{change[1]}\n{change[2]}\n{webhooks}")
        assert read_stored(plane) == (second, first)
        assert paths_in_webhooks(plane) == (second,)
        delete_webhooks(plane)


def read_stored(plane: ControlPlane) -> tuple[str, ...]:
    secret = plane.api.get("/api/v1/namespaces/podgate-system/secrets/podgate-reduced-path")
    assert secret is not None
    return read_paths(base64.b64decode(secret["data"]["path"]), Path("path"))


def paths_in_webhooks(plane: ControlPlane) -> tuple[str, ...]:
    """Return the secret parts of the paths in all webhook configurations."""
    parts = set()
    for kind in ("mutating", "validating"):
        items = plane.api.get(f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations")["items"]
        parts |= {hook["clientConfig"]["service"]["path"].split("/")[1] for item in items for hook in item["webhooks"]}
    return tuple(parts)


def test_deployment_flags_are_parsed_by_the_server(tmp_path: Path) -> None:
    files = Reduced.create_in(tmp_path)
    [container] = manifests.deployment(REDUCED)["spec"]["template"]["spec"]["containers"]
    flags = dict(argument.split("=", 1) for argument in container["args"])
    local_paths = {
        "--tls-cert": files.pki.paths.certificate,
        "--tls-key": files.pki.paths.key,
        "--reduced-path-file": files.path_file,
        "--serving-ca": files.pki.paths.client_ca,
    }
    arguments = {flag: str(local_paths.get(flag, text)) for flag, text in flags.items()}
    named = {item.name: arguments.pop(settings.name_flag(item.name), None) for item in fields(settings.Settings)}
    assert arguments == {}, "the server has no such flags"
    parsed = settings.parse({**named, "policy": str(files.policy)}, {})
    assert parsed.client_identity == "reduced"
    assert parsed.serving_ca == files.pki.paths.client_ca
    limits = (parsed.max_connections, parsed.max_in_flight, parsed.max_body_bytes)
    assert limits == (128, 64, 3 * 1024 * 1024)
