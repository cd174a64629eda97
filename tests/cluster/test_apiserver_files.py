"""kube-apiserver started with exactly the files that `podgate apiserver-files` writes and renews."""

import asyncio
import subprocess
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
from certs.tokens.issuer import key_pem
from tests.cluster.admission_configuration import NAMESPACE, SERVICE_HOST, Caller, stand_in_service
from tests.cluster.components import ISSUER
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import MANIFESTS, RBAC, Installation, installed
from tests.cluster.kubelet import mounted
from tests.cluster.server import PODGATE, Server
from tests.cluster.test_authentication import is_rewritten
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
class Site:
    """A cluster whose API server has no credentials but those in `out`."""

    plane: ControlPlane
    identities: Identities
    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "node"

    def put_pair(self, **more: str) -> bytes:
        """Have a new certificate in the Secret, beside what else is there; return it with its key."""
        leaf = self.identities.files.pki.client("kube-apiserver")
        pem = leaf.certificate.public_bytes(Encoding.PEM)
        data = {
            "tls.crt": pem,
            "tls.key": key_pem(leaf.key),
            "ca.crt": (self.identities.files.folder / "ca.crt").read_bytes(),
        }
        labels = {"app.kubernetes.io/managed-by": "podgate-certs"}
        metadata = {"name": "podgate-apiserver", "namespace": NAMESPACE, "labels": labels}
        texts = {name: content.decode() for name, content in data.items()}
        self.plane.apply({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {**texts, **more}})
        return pem + data["tls.key"]

    def start_writer(self, issuer: str, port: int) -> None:
        """Start it under the rights of its manifest; wait for all files."""
        self.plane.kubectl("apply", "-f", str(MANIFESTS / "apiserver/rbac.yaml"))
        token = self.plane.kubectl("create", "token", ACCOUNT, "-n", "kube-system").stdout.strip()
        kubeconfig = self.plane.kubeconfig_for(ACCOUNT, token=token)
        host = f"{SERVICE_HOST}:{port}"
        second = ("--second-port", str(self.plane.load_balancers[SECOND_PORT].port))
        whence = ("--token", issuer, "--every", "1s", "--kubeconfig", kubeconfig)
        flags = ("--out", self.out, "--webhook", host, *second, *whence)
        self.plane.processes.start(NODE, [sys.executable, *PODGATE, "apiserver-files", *flags])
        self.plane.wait(lambda: all((self.out / name).exists() for name in FILES), "the files", NODE)

    def restart_api_server(self) -> None:
        self.plane.admission = self.out / CONFIGURATION
        self.plane.restart("kube-apiserver")
        self.plane.wait_ready()

    def token(self) -> str:
        return (self.out / TOKEN).read_text().strip()


@pytest.fixture
def site(identities: Identities, tmp_path: Path) -> Iterator[Site]:
    with ControlPlane(callers={LOAD_BALANCER: Caller(), SECOND_PORT: Caller()}, components=API_ALONE) as plane:
        plane.apply(*stand_in_service())
        plane.kubectl("apply", "-f", str(RBAC))
        yield Site(plane, identities, tmp_path)


def identity(folder: Path, issuer: str, subject: str, client_id: dict[str, str]) -> list[str]:
    """Have servers take calls by this issuer's tokens alone."""
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


def test_token_of_the_cluster_issuer_and_its_successor_are_written_within_a_minute(site: Site) -> None:
    """The first one is denied once the second is there: what is judged after that came with the second."""
    site.put_pair()
    (keys := site.folder / "jwks.json").write_text(site.plane.kubectl("get", "--raw", "/openid/v1/jwks").stdout)
    (denied := site.folder / "denied.yaml").write_text("[]")
    subject = f"system:serviceaccount:{NAMESPACE}:{CALLER}"
    whose = identity(site.folder, ISSUER, subject, {"from": "subject"})
    arguments = [*whose, "--jwks", str(keys), "--denied-tokens", str(denied)]
    with installed(
        site.plane, site.identities.files, POLICY, ["files-cluster"], load_balancer=LOAD_BALANCER, arguments=arguments
    ) as found:
        site.start_writer("cluster", found.load_balancer.port)
        site.restart_api_server()
        found.wait_for_calls()
        assert is_rewritten(found, "files-cluster")
        [server] = found.servers
        assert calls(server, subject) >= 2
        first = site.token()
        (site.out / TOKEN).unlink()
        site.plane.wait((site.out / TOKEN).exists, "a new token", NODE)
        assert site.token() != first
        claims = jwt.decode(first, options={"verify_signature": False})
        denied.write_text(yaml.safe_dump([{"iss": claims["iss"], "jti": claims["jti"]}]))
        site.plane.wait(lambda: _status(found) != 201, "the first token to be denied", server.name)
        site.plane.wait(lambda: _status(found) == 201, "the second token to be read", "kube-apiserver")


def _status(found: Installation) -> int:
    return found.create_pod("files-cluster", dry_run=True)[0]


def test_token_of_the_podgate_issuer_is_written_and_renewed_by_the_controller(site: Site, a_redis: RedisServer) -> None:
    site.put_pair()
    files, jwks = site.identities.files, site.folder / "jwks"
    whose = identity(site.folder, OWN_ISSUER, "kube-apiserver", {"claim": "client_id"})
    issuing = ("--token-issuer", OWN_ISSUER, "--token-lifetime", "150s")
    with (
        installed(site.plane, files, POLICY, ["files-own"], load_balancer=LOAD_BALANCER, servers=0) as found,
        mounted(site.plane, NAMESPACE, KEY_SET, jwks, kind="configmaps") as mount,
    ):
        controller = found.start_controller("--store", a_redis.url, *issuing)
        mount.wait("jwks.json")
        found.start_server("--store", a_redis.url, "--store-deadline", "10s", *whose, "--jwks", str(jwks / "jwks.json"))
        site.start_writer("own", found.load_balancer.port)
        site.restart_api_server()
        found.wait_for_calls()
        assert is_rewritten(found, "files-own")
        [server] = found.servers
        assert calls(server, "kube-apiserver") >= 2
        first = site.token()
        site.plane.wait(lambda: site.token() != first, "the token to be renewed", controller.name, NODE)
        assert is_rewritten(found, "files-own")
        assert controller.status()["certificates"]["errors"] == []
        log = found.log(controller) + site.plane.log(NODE, 1000)
        assert first not in log
        assert site.token() not in log


def test_calls_switch_to_the_other_port_after_its_certificate_changed(site: Site) -> None:
    """The steps of half an hour: the duty is told the time."""
    first, second = site.plane.load_balancers[LOAD_BALANCER], site.plane.load_balancers[SECOND_PORT]
    old = site.put_pair(token=site.identities.files.signer.token())
    with installed(site.plane, site.identities.files, POLICY, ["files-doors"], load_balancer=LOAD_BALANCER) as found:
        second.targets = [first.address]
        site.start_writer("own", first.port)
        site.restart_api_server()
        found.wait_for_calls()
        started = datetime.now(UTC)

        def look(after_seconds: int) -> list[str]:
            return asyncio.run(_look(site, (first.port, second.port), started + timedelta(seconds=after_seconds)))

        assert len(look(0)) == 3, "each door's certificate, and that the second is not in use"
        assert look(60) == []
        new = site.put_pair()
        [action] = look(120)
        assert action == f"certificate for port {second.port}: renewed while the port is not in use"
        site.plane.wait(lambda: (site.out / SECOND).read_bytes() == new, "the second certificate to change", NODE)
        assert (site.out / IDENTITY).read_bytes() == old
        assert look(440) == []
        assert second.accepted == 0
        assert look(460)[0] == f"switched to port {second.port}"
        site.plane.wait(lambda: is_rewritten(found, "files-doors") and second.accepted, "calls at the second port")
        assert look(500) == []
        assert look(530) == [f"certificate for port {first.port}: renewed while the port is not in use"]
        site.plane.wait(lambda: (site.out / IDENTITY).read_bytes() == new, "the first certificate to change", NODE)
        assert look(100_000) == []
        assert is_rewritten(found, "files-doors")


def test_webhooks_applied_again_keep_the_port_in_use(
    api_alone: ControlPlane, identities: Identities, tmp_path: Path
) -> None:
    """Whoever applies a new policy's webhooks is not refused for a conflict, and turns nothing back."""
    (tmp_path / "policy.yaml").write_text(POLICY)
    words = ("policy", "webhooks", "--policy", str(tmp_path / "policy.yaml"))

    def apply(*whence: str, timeout_seconds: int = 3) -> None:
        command = [sys.executable, *PODGATE, *words, *whence]
        rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        changed = rendered.replace("timeoutSeconds: 3\n", f"timeoutSeconds: {timeout_seconds}\n")
        api_alone.kubectl("apply", "--server-side", "-f", "-", input=changed)

    def ports() -> set[int]:
        kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        found = [one for kind in kinds for one in api_alone.api.get(f"{GROUP}/{kind}")["items"]]
        return {entry["clientConfig"]["service"]["port"] for one in found for entry in one["webhooks"]}

    async def turn() -> None:
        client = await connect(api_alone.kubeconfig)
        try:
            api = Api(client, lambda: True)
            for place in CONFIGURATIONS:
                one = await find(api, place)
                assert one is not None
                await one.set_port(api, 444)
        finally:
            await client.close()

    for first in (("--without-ca",), ("--ca", str(identities.files.folder / "ca.crt"))):
        apply(*first)
        assert ports() == {443}
        asyncio.run(turn())
        apply("--without-ca", timeout_seconds=4)
        assert ports() == {444}
        for place in CONFIGURATIONS:
            api_alone.kubectl("delete", *place.split("/"))


async def _look(site: Site, ports: tuple[int, int], now: datetime) -> list[str]:
    client = await connect(site.plane.kubeconfig)
    try:
        done: list[str] = []
        while (result := await PortSwitch(ports).reconcile(Api(client, lambda: True), now)).action is not None:
            done.append(result.action.text)
        assert result.errors == ()
        return done
    finally:
        await client.close()


def test_unlabelled_key_set_is_left_unchanged_and_reported(site: Site, a_redis: RedisServer) -> None:
    theirs = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": KEY_SET, "namespace": NAMESPACE}}
    with installed(
        site.plane, site.identities.files, POLICY, ["files-foreign"], load_balancer=LOAD_BALANCER, servers=0
    ) as found:
        site.plane.apply({**theirs, "data": {"jwks.json": "theirs"}})
        controller = found.start_controller("--store", a_redis.url, "--token-issuer", OWN_ISSUER)
        site.plane.wait(
            lambda: controller.status()["certificates"]["errors"], "the trouble to be told", controller.name
        )
        [error] = controller.status()["certificates"]["errors"]
        assert f"ConfigMap {NAMESPACE}/{KEY_SET} is there without the label" in error
        found_data = site.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{KEY_SET}")["data"]
        assert found_data == {"jwks.json": "theirs"}
        site.plane.kubectl("delete", "configmap", KEY_SET, "-n", NAMESPACE)
        site.plane.wait(lambda: not controller.status()["certificates"]["errors"], "it to be over", controller.name)


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
    api_alone: ControlPlane, verb: str, resource: str, namespace: str, answer: str
) -> None:
    api_alone.kubectl("apply", "-f", str(MANIFESTS / "apiserver/rbac.yaml"))
    account = f"system:serviceaccount:kube-system:{ACCOUNT}"
    asked = ("auth", "can-i", verb, *resource.split(), "-n", namespace, f"--as={account}")
    assert api_alone.kubectl(*asked, check=False).stdout.split()[0] == answer


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
    assert flags["out"] == mount["mountPath"] == str(DEFAULT), "kube-apiserver has to find it at the same place"
