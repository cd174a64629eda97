"""A cluster whose credentials are all issued, mounted and renewed by Podgate."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.admission_configuration import NAMESPACE, SERVICE_HOST, Caller, stand_in_service
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import MANIFESTS, PATIENT, install_podgate
from tests.cluster.kubelet import mount_object
from tests.cluster.managed_certificates import ManagedCertificates
from tests.cluster.server import PODGATE, Server
from tests.harness.server_process import Files

LOAD_BALANCER, SECOND = "rotating", "rotating-2"
"""Two ports of one Service: the API server's certificate is renewed for the port not in use."""
ISSUER, SUBJECT = "podgate", "kube-apiserver"
NODE = "apiserver-files"
_NODE_RIGHTS, _NODE_ACCOUNT = MANIFESTS / "apiserver" / "rbac.yaml", "podgate-apiserver-files"
IDENTITIES = f"""\
- role: apiserver
  certificate: {{commonName: kube-apiserver}}
  issuer: {ISSUER}
  audience: podgate
  subject: {SUBJECT}
  clientId: {{from: subject}}
"""


@dataclass(frozen=True)
class CredentialLifetimes:
    """Lifetimes of all credentials, as flags of the controller."""

    serving_ca: str
    serving: str
    client_ca: str
    client: str
    token: str
    token_key: str

    def flags(self) -> list[str]:
        flag_values = {
            "--serving-ca-lifetime": self.serving_ca,
            "--serving-lifetime": self.serving,
            "--client-ca-lifetime": self.client_ca,
            "--client-lifetime": self.client,
            "--token-lifetime": self.token,
            "--token-key-lifetime": self.token_key,
        }
        return [part for pair in flag_values.items() for part in pair]


@dataclass
class MountedFiles(Files):
    """The files of servers, all mounted from the cluster."""

    mounts: Path = field(default_factory=Path)

    def arguments(self) -> list[str]:
        tls = self.mounts / "tls"
        return [
            *("--policy", "unused"),
            *("--tls-cert", str(tls / "tls.crt"), "--tls-key", str(tls / "tls.key")),
            *("--client-ca", str(tls / "ca.crt"), "--serving-ca", str(tls / "serving-ca.crt")),
            *("--jwks", str(self.mounts / "jwks" / "jwks.json")),
            *("--identities", str(self.mounts / "identities.yaml")),
            *("--listen", "127.0.0.1:0", "--plain-listen", "127.0.0.1:0"),
        ]


@dataclass(frozen=True)
class RotationFixture(ManagedCertificates):
    """An installation with servers, controllers and the writer of kube-apiserver's files."""

    store: str
    lifetimes: CredentialLifetimes

    def start_server(self) -> Server:
        timeouts = ("--store-deadline", "10s", *PATIENT)
        return self.installation.start_server("--drain", "1s", "--store", self.store, *timeouts)

    def start_controller(self) -> Server:
        token_flags = ("--certificates", "own", "--token-issuer", ISSUER, "--token-subject", SUBJECT)
        ports = ("--caller-ports", f"{self.installation.load_balancer.port},{self.plane.load_balancers[SECOND].port}")
        return self.installation.start_controller("--store", self.store, *token_flags, *ports, *self.lifetimes.flags())

    def start_node(self) -> None:
        """Start the writer of kube-apiserver's files, and restart kube-apiserver with them."""
        self.plane.kubectl("apply", "-f", str(_NODE_RIGHTS))
        host = f"{SERVICE_HOST}:{self.installation.load_balancer.port}"
        node_flags = ("--out", self.node, "--webhook", host, "--token", "own", "--every", "2s")
        node_flags = (*node_flags, "--second-port", str(self.plane.load_balancers[SECOND].port))
        token = self.plane.kubectl("create", "token", _NODE_ACCOUNT, "-n", "kube-system").stdout.strip()
        kubeconfig_flags = ("--kubeconfig", self.plane.write_kubeconfig(_NODE_ACCOUNT, token=token))
        self.plane.processes.start(NODE, [sys.executable, *PODGATE, NODE, *node_flags, *kubeconfig_flags])
        files = ("admission-configuration.yaml", "kubeconfig.yaml", "kube-apiserver.pem", "token")
        self.plane.wait(lambda: all((self.node / name).exists() for name in files), "kube-apiserver's files", NODE)
        self.plane.admission = self.node / files[0]
        self.plane.restart("kube-apiserver")
        self.plane.wait_ready()

    @property
    def node(self) -> Path:
        """Folder of kube-apiserver's files."""
        return self.tls.parent / "node"


@contextmanager
def run_rotating_cluster(
    identities: Identities, folder: Path, store: str, policy: str, namespace: str, lifetimes: CredentialLifetimes
) -> Iterator[RotationFixture]:
    """Start an API server and two servers whose credentials are issued, mounted and renewed by Podgate."""
    source = identities.files
    server_files = MountedFiles(source.folder, source.pki, source.signer, source.other, source.caller, mounts=folder)
    (folder / "identities.yaml").write_text(IDENTITIES)
    with ExitStack() as stack:
        plane = stack.enter_context(
            ControlPlane(callers={LOAD_BALANCER: Caller(), SECOND: Caller()}, components=API_ALONE)
        )
        plane.apply(*stand_in_service())
        installation = stack.enter_context(
            install_podgate(plane, server_files, policy, [namespace], load_balancer=LOAD_BALANCER, servers=0)
        )
        plane.load_balancers[SECOND].targets = [installation.load_balancer.address]
        rotation = RotationFixture(plane, installation, folder / "tls", store, lifetimes)
        tls = stack.enter_context(mount_object(plane, NAMESPACE, "podgate-tls", folder / "tls"))
        jwks = stack.enter_context(mount_object(plane, NAMESPACE, "podgate-jwks", folder / "jwks", kind="configmaps"))
        for _ in range(2):
            rotation.start_controller()
        tls.wait("tls.crt", "ca.crt", "serving-ca.crt")
        jwks.wait("jwks.json")
        rotation.start_node()
        for _ in range(2):
            rotation.start_server()
        yield rotation
