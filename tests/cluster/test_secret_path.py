"""Reduced mode with an unconfigured API server: no admission configuration, no certificate, no token."""

import base64
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from certs.authority import server_names
from certs.files import write_key_pair
from tests.authentication.test_secret_path import OTHER, SECRET, Reduced
from tests.cluster import manifests
from tests.cluster.admission_configuration import SERVICE_HOST, stand_in_service
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.installation import RBAC, Installation
from tests.cluster.load_balancer import LoadBalancers
from tests.cluster.readme_steps import Site as Person
from webhook import settings
from webhook.authentication.secret_path_file import read_paths
from webhook.core.document import Purpose, load
from webhook.core.webhook_configurations import ClientConfig, ServiceReference, configurations

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
FOLDER = manifests.FOLDER / "reduced"
PAGE = manifests.FOLDER.parent / "docs/reduced-mode.md"


@dataclass
class Site(Installation):
    """An installation whose API server calls by a path."""

    def call_by(self, path: str) -> None:
        """Render the webhook configurations with this path, and wait until the API server calls by them."""
        before = self.refused(), self.judged()
        judged = load(POLICY.encode(), Purpose.SERVE).policy.policy
        bundle = (self.files.folder / "ca.crt").read_bytes()
        client = ClientConfig(ServiceReference(port=self.load_balancer.port), bundle, path)
        self.plane.apply(*configurations(judged, client))

        def calls() -> bool:
            self.create_pod(OPEN, dry_run=True)
            return (self.refused(), self.judged()) != before

        self.plane.wait(calls, "the API server to call by that path", "kube-apiserver")

    def refused(self) -> float:
        return sum(one.total(*REFUSED) for one in self.servers)

    def judged(self) -> float:
        return sum(one.total("podgate_calls_total", 'client_id="reduced-mode"') for one in self.servers)


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with ControlPlane(components=API_ALONE) as running:
        running.apply(*stand_in_service())
        for namespace in NAMESPACES:
            running.create_namespace(namespace)
        running.kubectl("apply", "-f", str(RBAC))
        yield running


@contextmanager
def reduced(plane: ControlPlane, folder: Path) -> Iterator[Site]:
    files = Reduced.at(folder)
    names = (*server_names("127.0.0.1"), *server_names(SERVICE_HOST))
    leaf = files.pki.authority.issue_server(SERVICE_HOST, names)
    write_key_pair(leaf, files.pki.paths.certificate, files.pki.paths.key, replace=True)
    with LoadBalancers() as doors:
        site = Site(plane, files, doors.open(), POLICY, NAMESPACES)
        site.apply_policy(POLICY)
        try:
            site.start_server("--drain", "0s")
            yield site
        finally:
            take_away_webhooks(plane)
            for server in list(site.servers):
                site.stop_server(server)


def take_away_webhooks(plane: ControlPlane) -> None:
    for kind in ("mutatingwebhookconfiguration", "validatingwebhookconfiguration"):
        plane.kubectl("delete", kind, "--all")


@pytest.fixture
def site(plane: ControlPlane, tmp_path: Path) -> Iterator[Site]:
    with reduced(plane, tmp_path) as found:
        yield found


def test_pods_and_policies_are_evaluated_for_an_api_server_without_credentials(site: Site) -> None:
    assert site.plane.admission is None
    site.call_by(SECRET)
    code, pod = site.create_pod(CLOSED)
    assert (code, pod["spec"]["schedulerName"]) == (201, "podgate-scheduler")
    assert site.create_pod(LIMITED)[0] == 201
    code, answer = site.create_pod(LIMITED)
    assert code == 429, answer
    assert "podgate" in answer["message"].lower()
    bad = site.apply_policy(POLICY.replace("1h", "forever"), check=False)
    assert "not a Go duration" in bad
    [server] = site.servers
    assert server.status()["clientIdentity"] == "reduced"
    assert server.metrics()["podgate_reduced_mode"] == 1
    assert site.refused() == 0
    assert SECRET not in site.log(server)


def test_wrong_path_is_rejected_and_the_failure_policy_applies(site: Site) -> None:
    site.call_by("wrong" + SECRET[5:])
    judged = site.judged()
    code, answer = site.create_pod(CLOSED)
    assert code == 500, answer
    assert "failed calling webhook" in answer["message"]
    code, pod = site.create_pod(OPEN)
    assert (code, pod["spec"]["schedulerName"]) == (201, "default-scheduler")
    assert site.judged() == judged == 0
    assert site.refused() >= 2


def test_path_changes_without_a_rejected_call(site: Site) -> None:
    site.call_by(SECRET)
    files = site.files
    assert isinstance(files, Reduced)
    [server] = site.servers

    def read(times: int) -> None:
        done = ("podgate_file_reloads_total", 'file="reduced path"', 'result="success"')
        site.plane.wait(lambda: server.total(*done) == times, "the server to read its paths", server.name)

    files.path_file.write_text(f"{OTHER}\n{SECRET}\n")
    read(2)
    assert site.create_pod(CLOSED)[0] == 201
    site.call_by(OTHER)
    files.path_file.write_text(f"{OTHER}\n")
    read(3)
    assert site.create_pod(CLOSED)[0] == 201
    assert site.refused() == 0


def test_during_an_outage_the_api_server_discloses_the_path_in_its_error(site: Site) -> None:
    """Not as we would have it: this is why docs/reduced-mode.md says to change the path after an outage."""
    site.call_by(SECRET)
    site.stop_server(site.servers[0])
    code, answer = site.create_pod(CLOSED)
    assert code == 500
    assert f"/{SECRET}/validate" in answer["message"]


# --- what is shipped for it ---


def deployment(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text())
    return found


def test_deployment_differs_from_the_default_only_in_caller_identity() -> None:
    ours, other = deployment(FOLDER / "30-deployment.yaml"), deployment(manifests.FOLDER / "30-deployment.yaml")
    known = ("--client-ca=", "--jwks", "--cluster-keys", "--identities=", "--denied-tokens=", "--token-binding=")
    spec, beside = (one["spec"]["template"]["spec"] for one in (ours, other))
    [container], [another] = spec["containers"], beside["containers"]
    kept = [argument for argument in another["args"] if not argument.startswith(known)]
    own = ["--client-identity=reduced", "--reduced-path-file=/etc/podgate/reduced/path"]
    assert sorted(container.pop("args")) == sorted([*kept, *own])
    another.pop("args")
    for holder, key in ((spec, "volumes"), (container, "volumeMounts")):
        others = {one["name"]: one for one in (beside if holder is spec else another).pop(key)}
        ours_by_name = {one["name"]: one for one in holder.pop(key)}
        assert ours_by_name.pop("reduced")
        assert ours_by_name == {name: one for name, one in others.items() if name not in ("jwks", "identities")}
    assert ours == other


def test_network_policy_names_the_server_ports_and_admits_no_wide_range() -> None:
    [policy] = yaml.safe_load_all((FOLDER / "35-networkpolicy.yaml").read_text())
    spec = deployment(FOLDER / "30-deployment.yaml")["spec"]
    assert policy["spec"]["podSelector"] == spec["selector"]
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    opened = [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert set(opened) == {port["name"] for port in spec["template"]["spec"]["containers"][0]["ports"]}
    for rule in policy["spec"]["ingress"]:
        assert rule["from"], "a rule without peers is for everybody"
        for peer in rule["from"]:
            assert peer.get("ipBlock", {}).get("cidr") != "0.0.0.0/0"
            assert peer.get("podSelector", {"": ""}), "nobody in particular"


def test_api_server_accepts_the_reduced_manifests(plane: ControlPlane) -> None:
    printed = plane.kubectl("apply", "--dry-run=server", "-k", str(FOLDER)).stdout.splitlines()
    assert {line.split()[0] for line in printed} == {
        "deployment.apps/podgate",
        "networkpolicy.networking.k8s.io/podgate-reduced",
    }


def test_documented_steps_install_it_and_change_the_path(plane: ControlPlane, tmp_path: Path) -> None:
    """All but the addresses, which nobody can take from a page; nothing runs here that would read the Secret."""
    blocks = re.findall(r"^   ```\n(.+?)^   ```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    certificates, server, webhooks = (textwrap.dedent(block) for block in blocks)
    change = re.search(r"`(\(umask 077; printf .+?\))`.+?`(kubectl create secret .+?)`\.", PAGE.read_text(), re.DOTALL)
    assert change is not None
    with LoadBalancers() as doors:
        person = Person(plane, tmp_path, doors.open())
        (tmp_path / "policy.yaml").write_text(POLICY)
        for step in (certificates, server, webhooks):
            person.run(step)
        first = (tmp_path / "pki/path").read_text()
        assert stored(plane) == read_paths(first.encode(), tmp_path) == called_by(plane)
        assert (tmp_path / "pki/path").stat().st_mode & 0o077 == 0
        second = "0123456789abcdef" * 4
        person.run(f"OLD={first} NEW={second}\n{change[1]}\n{change[2]}\n{webhooks}")
        assert stored(plane) == (second, first)
        assert called_by(plane) == (second,)
        take_away_webhooks(plane)


def stored(plane: ControlPlane) -> tuple[str, ...]:
    secret = plane.api.get("/api/v1/namespaces/podgate-system/secrets/podgate-reduced-path")
    assert secret is not None
    return read_paths(base64.b64decode(secret["data"]["path"]), Path("path"))


def called_by(plane: ControlPlane) -> tuple[str, ...]:
    """Return the secret parts of the paths in all webhook configurations."""
    found = set()
    for kind in ("mutating", "validating"):
        items = plane.api.get(f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations")["items"]
        found |= {hook["clientConfig"]["service"]["path"].split("/")[1] for one in items for hook in one["webhooks"]}
    return tuple(found)


def test_deployment_flags_are_parsed_by_the_server(tmp_path: Path) -> None:
    files = Reduced.at(tmp_path)
    [container] = deployment(FOLDER / "30-deployment.yaml")["spec"]["template"]["spec"]["containers"]
    flags = dict(argument.split("=", 1) for argument in container["args"])
    here = {
        "--tls-cert": files.pki.paths.certificate,
        "--tls-key": files.pki.paths.key,
        "--reduced-path-file": files.path_file,
        "--serving-ca": files.pki.paths.client_ca,
    }
    arguments = {flag: str(here.get(flag, text)) for flag, text in flags.items()}
    named = {item.name: arguments.pop(settings.flag_of(item.name), None) for item in fields(settings.Settings)}
    assert arguments == {}, "the server has no such flags"
    understood = settings.parse({**named, "policy": str(files.policy)}, {})
    assert understood.client_identity == "reduced"
    assert understood.serving_ca == files.pki.paths.client_ca
    limits = (understood.max_connections, understood.max_in_flight, understood.max_body_bytes)
    assert limits == (128, 64, 3 * 1024 * 1024)
