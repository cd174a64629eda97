"""Podgate with certificates managed in the cluster, and Secrets mounted as the kubelet does."""

import base64
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509

from certs.ca_generations import Generations, decode
from certs.cluster.ca_controller import CLIENT, CLIENT_CA, SERVING, SERVING_CA
from tests.cluster.admission_configuration import NAMESPACE, Caller
from tests.cluster.controlplane import API_ALONE, ControlPlane
from tests.cluster.identities import Identities
from tests.cluster.installation import Installation, install_podgate
from tests.cluster.kubelet import mount_object
from tests.harness.server_process import Files

SECRETS = (SERVING_CA, CLIENT_CA, SERVING, CLIENT)
LOAD_BALANCER = "kept"
CONFIGURATIONS = (
    "mutatingwebhookconfigurations/podgate",
    "validatingwebhookconfigurations/podgate",
    "validatingwebhookconfigurations/podgate-policy",
)


@dataclass
class ManagedFiles(Files):
    """The files of servers, with serving certificate and client CAs from a mounted Secret."""

    tls: Path = field(default_factory=Path)

    def arguments(self) -> list[str]:
        flags = super().arguments()
        for flag, name in (("--tls-cert", "tls.crt"), ("--tls-key", "tls.key"), ("--client-ca", "ca.crt")):
            flags[flags.index(flag) + 1] = str(self.tls / name)
        return flags


@contextmanager
def run_managed_plane(identities: Identities, folder: Path) -> Iterator[ControlPlane]:
    """Start an API server that presents the certificate in `folder`."""
    token = identities.callers["good"].token
    caller = Caller(folder / "tls.crt", folder / "tls.key", token)
    with ControlPlane(callers={LOAD_BALANCER: caller}, components=API_ALONE) as running:
        yield running


@dataclass(frozen=True)
class ManagedCertificates:
    """The managed certificates of a cluster."""

    plane: ControlPlane
    installation: Installation
    tls: Path

    def secret(self, name: str) -> Any:
        return self.plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}")

    def data(self, name: str, key: str) -> bytes:
        secret = self.secret(name)
        return base64.b64decode(secret["data"][key]) if secret is not None and key in secret["data"] else b""

    def generations(self, name: str = SERVING_CA) -> Generations:
        text = self.data(name, "line.json")
        return decode(text, name) if text else ()

    def leaf(self, name: str = SERVING) -> x509.Certificate | None:
        text = self.data(name, "tls.crt")
        return x509.load_pem_x509_certificate(text) if text else None

    def configuration(self, place: str) -> Any:
        return self.plane.api.get(f"/apis/admissionregistration.k8s.io/v1/{place}")

    def bundles(self) -> list[bytes]:
        """Return the caBundle of each webhook of each configuration."""
        configurations = [self.configuration(place) or {"webhooks": []} for place in CONFIGURATIONS]
        entries = [entry for configuration in configurations for entry in configuration["webhooks"]]
        return [base64.b64decode(entry["clientConfig"].get("caBundle", "")) for entry in entries]

    def create_pod(self) -> int:
        """Create a Pod as a dry run; return the status of the response."""
        return self.installation.create_pod(self.installation.namespaces[0], dry_run=True)[0]

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for a condition; the error after the timeout contains the logs of controllers and servers."""
        suspects = (process.name for process in (*self.installation.controllers, *self.installation.servers))
        self.plane.wait(condition, what, "kube-apiserver", *suspects)

    def patch(self, path: str, body: Any) -> None:
        status, response = self.plane.api.request("PATCH", path, body, "application/strategic-merge-patch+json")
        assert status == 200, response


def delete_secrets(plane: ControlPlane, *names: str) -> None:
    """Delete these Secrets, or all managed ones."""
    plane.delete(*(f"/api/v1/namespaces/{NAMESPACE}/secrets/{name}" for name in names or SECRETS))


@contextmanager
def install_managed(
    plane: ControlPlane, identities: Identities, folder: Path, policy: str, namespaces: Sequence[str]
) -> Iterator[ManagedCertificates]:
    """Install all but servers and controllers, and mount the two Secrets."""
    tls = folder / "tls"
    source = identities.files
    files = ManagedFiles(source.folder, source.pki, source.signer, source.other, source.caller, tls=tls)
    with ExitStack() as stack:
        stack.callback(delete_secrets, plane)  # after the controllers have stopped, which would recreate them
        installation = stack.enter_context(
            install_podgate(plane, files, policy, namespaces, load_balancer=LOAD_BALANCER, servers=0)
        )
        managed = ManagedCertificates(plane, installation, tls)
        stack.enter_context(mount_object(plane, NAMESPACE, SERVING, tls))
        stack.enter_context(mount_object(plane, NAMESPACE, CLIENT, folder / "caller"))
        yield managed
