"""kube-apiserver started with exactly the files that `podgate apiserver-files` writes and renews."""

import asyncio
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding

from certs.cluster.api import Api
from certs.cluster.port_switch import PortSwitch
from certs.cluster.token_controller import KEY_SET
from certs.cluster.webhooks import CONFIGURATIONS, find
from certs.token_issuer import encode_key
from tests.cli.command_runner import podgate
from tests.cluster.admission_configuration import NAMESPACE, SERVICE_HOST, Caller, stand_in_service
from tests.cluster.authentication import is_rewritten
from tests.cluster.components import ISSUER
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import MANIFESTS, RBAC, Installation, install_podgate
from tests.cluster.kubelet import mount_object
from tests.cluster.server import PODGATE, Server
from tests.redis_servers import RedisServer
from webhook.adapters.kubernetes import connect
from webhook.cli.apiserver_files import apiserver_files
from webhook.core.policy.model import BUILT_IN_EXEMPT_NAMESPACES
from webhook.node_agent.credential_folder import CONFIGURATION, DEFAULT, FILES, IDENTITY, SECOND, TOKEN

pytest_plugins = ("tests.redis_servers.fixtures",)

NODE, ACCOUNT = "podgate-apiserver-files", "podgate-apiserver-files"
LOAD_BALANCER, SECOND_PORT = "node", "node-2"
GROUP = "/apis/admissionregistration.k8s.io/v1"
OWN_ISSUER, CALLER = "https://podgate.podgate-system.svc", "kube-apiserver-caller"
POLICY = """\
apiVersion: podgate.io/v1alpha1
kind: Policy
services:
- name: files
  match: {namespaces: ["files-*"]}
  failureMode: Closed
  placement: {schedulerName: podgate-scheduler}
"""


@dataclass(frozen=True)
class NodeSite:
    """A cluster whose API server has only the credentials in `out`."""

    plane: ControlPlane
    identities: Identities
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "node"

    def put_pair(self, **more: str) -> bytes:
        """Write a new certificate and other keys to the Secret; return the certificate with its key."""
        leaf = self.identities.files.pki.client("kube-apiserver")
        pem = leaf.certificate.public_bytes(Encoding.PEM)
        data = {
            "tls.crt": pem,
            "tls.key": encode_key(leaf.key),
            "ca.crt": (self.identities.files.folder / "ca.crt").read_bytes(),
        }
        labels = {"app.kubernetes.io/managed-by": "podgate-certs"}
        metadata = {"name": "podgate-apiserver", "namespace": NAMESPACE, "labels": labels}
        texts = {name: content.decode() for name, content in data.items()}
        self.plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {**texts, **more}})
        return pem + data["tls.key"]

    def start_writer(self, issuer: str, port: int) -> None:
        """Start the writer with the rights of its manifest; wait for all files."""
        self.plane.kubectl("apply", "-f", str(MANIFESTS / "apiserver/rbac.yaml"))
        token = self.plane.kubectl("create", "token", ACCOUNT, "-n", "kube-system").stdout.strip()
        kubeconfig = self.plane.write_kubeconfig(ACCOUNT, token=token)
        host = f"{SERVICE_HOST}:{port}"
        second_port_flags = ("--second-port", str(self.plane.load_balancers[SECOND_PORT].port))
        writer_flags = ("--token", issuer, "--every", "1s", "--kubeconfig", kubeconfig)
        flags = ("--out", self.out, "--webhook", host, *second_port_flags, *writer_flags)
        self.plane.processes.start(NODE, [sys.executable, *PODGATE, "apiserver-files", *flags])
        self.plane.wait(lambda: all((self.out / name).exists() for name in FILES), "the files", NODE)

    def restart_api_server(self) -> None:
        self.plane.admission = self.out / CONFIGURATION
        self.plane.restart("kube-apiserver")
        self.plane.wait_ready()

    def read_token(self) -> str:
        return (self.out / TOKEN).read_text().strip()


@pytest.fixture(scope="module")
def node_plane() -> Iterator[ControlPlane]:
    """Start an API server that each test restarts with its own credentials."""
    with ControlPlane(callers={LOAD_BALANCER: Caller(), SECOND_PORT: Caller()}, components=API_ALONE) as plane:
        plane.apply(*stand_in_service())
        plane.kubectl("apply", "-f", str(RBAC))
        yield plane


@pytest.fixture
def node_site(node_plane: ControlPlane, identities: Identities, tmp_path: Path) -> Iterator[NodeSite]:
    yield NodeSite(node_plane, identities, tmp_path)
    if node_plane.processes.is_alive(NODE):
        node_plane.stop_component(NODE)
    node_plane.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/podgate-apiserver")
    for balancer in node_plane.load_balancers.values():
        balancer.targets = []


def identity(folder: Path, issuer: str, subject: str, client_id: dict[str, str]) -> list[str]:
    """Return server flags with an identity that only accepts tokens of this issuer."""
    row = {
        "role": "apiserver",
        "certificate": {"commonName": "kube-apiserver"},
        "issuer": issuer,
        "audience": "podgate",
        "subject": subject,
        "clientId": client_id,
    }
    (folder / "identities.yaml").write_text(yaml.safe_dump([row]))
    return ["--drain", "0s", "--identities", str(folder / "identities.yaml")]


def calls(server: Server, client_id: str) -> float:
    return server.total("podgate_calls_total", f'client_id="{client_id}"')


def test_token_of_the_cluster_issuer_and_its_successor_are_written_within_a_minute(node_site: NodeSite) -> None:
    """The first token is denied after the second was written, so later calls use the second."""
    node_site.put_pair()
    (keys := node_site.folder / "jwks.json").write_text(
        node_site.plane.kubectl("get", "--raw", "/openid/v1/jwks").stdout
    )
    (denied := node_site.folder / "denied.yaml").write_text("[]")
    subject = f"system:serviceaccount:{NAMESPACE}:{CALLER}"
    identity_flags = identity(node_site.folder, ISSUER, subject, {"from": "subject"})
    arguments = [*identity_flags, "--jwks", str(keys), "--denied-tokens", str(denied)]
    with install_podgate(
        node_site.plane,
        node_site.identities.files,
        POLICY,
        ["files-cluster"],
        load_balancer=LOAD_BALANCER,
        arguments=arguments,
    ) as installation:
        node_site.start_writer("cluster", installation.load_balancer.port)
        node_site.restart_api_server()
        installation.wait_for_calls()
        assert is_rewritten(installation, "files-cluster")
        [server] = installation.servers
        assert calls(server, subject) >= 2
        first = node_site.read_token()
        (node_site.out / TOKEN).unlink()
        node_site.plane.wait((node_site.out / TOKEN).exists, "a new token", NODE)
        assert node_site.read_token() != first
        claims = jwt.decode(first, options={"verify_signature": False})
        denied.write_text(yaml.safe_dump([{"iss": claims["iss"], "jti": claims["jti"]}]))
        node_site.plane.wait(lambda: _status(installation) != 201, "the first token to be denied", server.name)
        node_site.plane.wait(lambda: _status(installation) == 201, "the second token to be read", "kube-apiserver")


def _status(installation: Installation) -> int:
    return installation.create_pod("files-cluster", dry_run=True)[0]


def test_token_of_the_podgate_issuer_is_written_and_renewed_by_the_controller(
    node_site: NodeSite, a_redis: RedisServer
) -> None:
    node_site.put_pair()
    files, jwks = node_site.identities.files, node_site.folder / "jwks"
    identity_flags = identity(node_site.folder, OWN_ISSUER, "kube-apiserver", {"claim": "client_id"})
    token_flags = ("--token-issuer", OWN_ISSUER, "--token-lifetime", "150s")
    with (
        install_podgate(
            node_site.plane, files, POLICY, ["files-own"], load_balancer=LOAD_BALANCER, servers=0
        ) as installation,
        mount_object(node_site.plane, NAMESPACE, KEY_SET, jwks, kind="configmaps") as mount,
    ):
        controller = installation.start_controller("--store", a_redis.url, *token_flags)
        mount.wait("jwks.json")
        installation.start_server(
            "--store", a_redis.url, "--store-deadline", "10s", *identity_flags, "--jwks", str(jwks / "jwks.json")
        )
        node_site.start_writer("own", installation.load_balancer.port)
        node_site.restart_api_server()
        installation.wait_for_calls()
        assert is_rewritten(installation, "files-own")
        [server] = installation.servers
        assert calls(server, "kube-apiserver") >= 2
        first = node_site.read_token()
        node_site.plane.wait(lambda: node_site.read_token() != first, "the token to be renewed", controller.name, NODE)
        assert is_rewritten(installation, "files-own")
        assert controller.status()["certificates"]["errors"] == []
        log = installation.log(controller) + node_site.plane.log(NODE, 1000)
        assert first not in log
        assert node_site.read_token() not in log


def test_calls_switch_to_the_other_port_after_its_certificate_changed(node_site: NodeSite) -> None:
    """Half an hour of rollover, with times passed to the task."""
    first, second = node_site.plane.load_balancers[LOAD_BALANCER], node_site.plane.load_balancers[SECOND_PORT]
    old = node_site.put_pair(token=node_site.identities.files.signer.token())
    with install_podgate(
        node_site.plane, node_site.identities.files, POLICY, ["files-doors"], load_balancer=LOAD_BALANCER
    ) as installation:
        second.targets = [first.address]
        node_site.start_writer("own", first.port)
        node_site.restart_api_server()
        installation.wait_for_calls()
        started = datetime.now(UTC)

        def reconcile_after(after_seconds: int) -> list[str]:
            return asyncio.run(
                _reconcile(node_site, (first.port, second.port), started + timedelta(seconds=after_seconds))
            )

        assert len(reconcile_after(0)) == 3, "a certificate for each port, and that the second is not in use"
        assert reconcile_after(60) == []
        new = node_site.put_pair()
        [action] = reconcile_after(120)
        assert action == f"certificate for port {second.port}: renewed while the port is not in use"
        node_site.plane.wait(
            lambda: (node_site.out / SECOND).read_bytes() == new, "the second certificate to change", NODE
        )
        assert (node_site.out / IDENTITY).read_bytes() == old
        assert reconcile_after(440) == []
        assert second.accepted == 0
        assert reconcile_after(460)[0] == f"switched to port {second.port}"
        node_site.plane.wait(
            lambda: is_rewritten(installation, "files-doors") and second.accepted, "calls at the second port"
        )
        assert reconcile_after(500) == []
        assert reconcile_after(530) == [f"certificate for port {first.port}: renewed while the port is not in use"]
        node_site.plane.wait(
            lambda: (node_site.out / IDENTITY).read_bytes() == new, "the first certificate to change", NODE
        )
        assert reconcile_after(100_000) == []
        assert is_rewritten(installation, "files-doors")


def test_webhooks_applied_again_keep_the_port_in_use(
    api_alone: ControlPlane, identities: Identities, tmp_path: Path
) -> None:
    """Applying the webhooks of a new policy causes no conflict and does not switch the port."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    command_words = ("policy", "webhooks", "--policy", str(tmp_path / "policy.yaml"))

    def apply(*options: str, timeout_seconds: int = 3) -> None:
        rendered = podgate(*command_words, *options).out
        changed = rendered.replace("timeoutSeconds: 3\n", f"timeoutSeconds: {timeout_seconds}\n")
        api_alone.kubectl("apply", "--server-side", "-f", "-", input=changed)

    def ports() -> set[int]:
        kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        configuration_list = [item for kind in kinds for item in api_alone.api.get(f"{GROUP}/{kind}")["items"]]
        return {
            entry["clientConfig"]["service"]["port"]
            for configuration in configuration_list
            for entry in configuration["webhooks"]
        }

    async def switch_ports() -> None:
        client = await connect(api_alone.kubeconfig)
        try:
            api = Api(client, lambda: True)
            for place in CONFIGURATIONS:
                configuration = await find(api, place)
                assert configuration is not None
                await configuration.set_port(api, 444)
        finally:
            await client.close()

    for first in (("--without-ca",), ("--ca", str(identities.files.folder / "ca.crt"))):
        apply(*first)
        assert ports() == {443}
        asyncio.run(switch_ports())
        apply("--without-ca", timeout_seconds=4)
        assert ports() == {444}
        for place in CONFIGURATIONS:
            api_alone.delete(f"{GROUP}/{place}")


async def _reconcile(node_site: NodeSite, ports: tuple[int, int], now: datetime) -> list[str]:
    client = await connect(node_site.plane.kubeconfig)
    try:
        actions: list[str] = []
        while (result := await PortSwitch(ports).reconcile(Api(client, lambda: True), now)).action is not None:
            actions.append(result.action.text)
        assert result.errors == ()
        return actions
    finally:
        await client.close()


def test_unlabelled_key_set_is_left_unchanged_and_reported(
    api_alone: ControlPlane, identities: Identities, a_redis: RedisServer
) -> None:
    foreign = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": KEY_SET, "namespace": NAMESPACE}}
    with install_podgate(api_alone, identities.files, POLICY, ["files-foreign"], servers=0) as installation:
        api_alone.apply({**foreign, "data": {"jwks.json": "theirs"}})
        controller = installation.start_controller("--store", a_redis.url, "--token-issuer", OWN_ISSUER)
        api_alone.wait(
            lambda: controller.status()["certificates"]["errors"], "the error to be reported", controller.name
        )
        [error] = controller.status()["certificates"]["errors"]
        assert f"ConfigMap {NAMESPACE}/{KEY_SET} is there without the label" in error
        stored_data = api_alone.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{KEY_SET}")["data"]
        assert stored_data == {"jwks.json": "theirs"}
        api_alone.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{KEY_SET}")
        api_alone.wait(lambda: not controller.status()["certificates"]["errors"], "the error to end", controller.name)


@pytest.fixture(scope="module")
def with_rights(api_alone: ControlPlane) -> ControlPlane:
    """Apply the manifest of the writer's rights, and wait until the API server uses them."""
    api_alone.kubectl("apply", "-f", str(MANIFESTS / "apiserver/rbac.yaml"))
    account = f"system:serviceaccount:kube-system:{ACCOUNT}"
    api_alone.wait(lambda: api_alone.may(account, "get", "secrets/podgate-apiserver", NAMESPACE), "the rights")
    return api_alone


@pytest.mark.parametrize(
    ("verb", "resource", "namespace", "answer"),
    [
        ("get", "secrets/podgate-apiserver", NAMESPACE, "yes"),
        ("create", f"serviceaccounts/{CALLER} --subresource=token", NAMESPACE, "yes"),
        *((verb, "secrets", NAMESPACE, "no") for verb in ("get", "list", "watch", "create", "update")),
        *(("get", f"secrets/podgate-{name}", NAMESPACE, "no") for name in ("tls", "client-ca", "token-keys")),
        *((verb, "secrets/podgate-apiserver", NAMESPACE, "no") for verb in ("list", "update", "patch", "delete")),
        ("create", "serviceaccounts/podgate --subresource=token", NAMESPACE, "no"),
        ("create", "serviceaccounts --subresource=token", NAMESPACE, "no"),
        ("get", "secrets/podgate-apiserver", "kube-system", "no"),
        ("get", "configmaps", NAMESPACE, "no"),
        ("list", "pods", NAMESPACE, "no"),
    ],
)
def test_writer_has_exactly_the_rights_it_uses(
    with_rights: ControlPlane, verb: str, resource: str, namespace: str, answer: str
) -> None:
    resource, _, subresource = resource.partition(" --subresource=")
    account = f"system:serviceaccount:kube-system:{ACCOUNT}"
    assert with_rights.may(account, verb, resource, namespace, subresource) == (answer == "yes")


def test_api_server_accepts_the_daemon_set_and_podgate_does_not_evaluate_it(api_alone: ControlPlane) -> None:
    folder = MANIFESTS / "apiserver"
    api_alone.kubectl("apply", "--server-side", "--dry-run=server", "-k", str(folder))
    [daemon_set] = yaml.safe_load_all((folder / "daemonset.yaml").read_text())
    assert daemon_set["metadata"]["namespace"] in BUILT_IN_EXEMPT_NAMESPACES
    [container] = daemon_set["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["podgate", "apiserver-files"]
    flags = dict(argument.removeprefix("--").split("=") for argument in container["args"])
    assert set(flags) <= {str(option.name) for option in apiserver_files.params} | {"token"}
    [mount] = container["volumeMounts"]
    assert flags["out"] == mount["mountPath"] == str(DEFAULT), "kube-apiserver reads the files from the same path"
