"""AdmissionConfiguration with a kubeconfig that has a user for each webhook address."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.components import write_json

NAMESPACE, SERVICE = "podgate-system", "podgate"
SERVICE_HOST = f"{SERVICE}.{NAMESPACE}.svc"

_PLUGINS = ("MutatingAdmissionWebhook", "ValidatingAdmissionWebhook")
_API = "apiserver.config.k8s.io/v1"


@dataclass(frozen=True)
class Caller:
    """Credentials in files, each optional. The API server reads a token again about every minute."""

    certificate: Path | None = None
    key: Path | None = None
    token: Path | None = None

    def user(self) -> dict[str, str]:
        files = {"client-certificate": self.certificate, "client-key": self.key, "tokenFile": self.token}
        return {name: str(path.absolute()) for name, path in files.items() if path is not None}


def admission_configuration(folder: Path, callers: Mapping[int, Caller]) -> Path:
    """Write an AdmissionConfiguration for webhooks on these loopback ports, by URL and by Service; return its path."""
    users = [
        {"name": f"{host}:{port}", "user": caller.user()}
        for port, caller in callers.items()
        for host in ("127.0.0.1", SERVICE_HOST)
    ]
    kubeconfig = write_json(folder / "webhooks.kubeconfig", {"apiVersion": "v1", "kind": "Config", "users": users})
    configuration = {"apiVersion": _API, "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": str(kubeconfig)}
    plugins = [{"name": name, "configuration": configuration} for name in _PLUGINS]
    kind = {"apiVersion": _API, "kind": "AdmissionConfiguration"}
    return write_json(folder / "admission.json", {**kind, "plugins": plugins})


def stand_in_service() -> tuple[dict[str, Any], ...]:
    """Return the namespace and an ExternalName Service of loopback, because no Pod runs that a Service could select."""
    metadata = {"name": SERVICE, "namespace": NAMESPACE}
    return (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
    )
