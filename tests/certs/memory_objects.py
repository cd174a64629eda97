"""In-memory API server for tasks: Secrets, ConfigMaps and webhook configurations."""

import base64
import copy
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509

from certs.cluster.api import Api, Json, OvertakenError
from certs.cluster.ca_controller import CertificatePlan
from certs.cluster.loop import Task
from certs.cluster.secrets import LABELS
from certs.cluster.trust_domain import parse_certificates
from certs.cluster.webhooks import CONFIGURATIONS, INJECTED_FROM
from certs.errors import CertsError
from certs.lifetimes import Lifetimes

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PLAN = CertificatePlan(
    Lifetimes.from_settle_max(365 * DAY, 14 * DAY, timedelta(minutes=1)),
    Lifetimes.from_settle_max(365 * DAY, 14 * DAY, timedelta(minutes=5)),
)
SECRETS = "/api/v1/namespaces/podgate-system/secrets"
CONFIG_MAPS = "/api/v1/namespaces/podgate-system/configmaps"
GROUP = "/apis/admissionregistration.k8s.io/v1"


class Objects(Api):
    """Objects by their paths. A GET of a path in `unreadable` fails with 403."""

    def __init__(self) -> None:
        self.may_write = lambda: True
        self.unreadable: set[str] = set()
        self._by_path: dict[str, Json] = {}
        self._version = 0
        for configuration in CONFIGURATIONS:
            service = {"name": "podgate", "namespace": "podgate-system", "port": 443}
            entry = {"name": "a.podgate.io", "clientConfig": {"service": service, "caBundle": ""}}
            self.put(f"{GROUP}/{configuration}", {"metadata": {"name": "podgate"}, "webhooks": [entry]})

    async def get(self, path: str) -> Json | None:
        if path in self.unreadable:
            raise CertsError(f"GET {path}: HTTP 403", "grant the right")
        return copy.deepcopy(self._by_path.get(path))

    async def create(self, folder: str, body: Json) -> None:
        path = f"{folder}/{body['metadata']['name']}"
        if path in self._by_path:
            raise OvertakenError(path)
        self.put(path, body)

    async def replace(self, path: str, body: Json) -> None:
        self._check_version(path, body)
        self.put(path, body)

    async def patch(self, path: str, body: Json) -> None:
        self._check_version(path, body)
        stored = copy.deepcopy(self._by_path[path])
        annotations = (stored["metadata"].get("annotations") or {}) | body["metadata"]["annotations"]
        stored["metadata"]["annotations"] = {name: value for name, value in annotations.items() if value is not None}
        for entry in body.get("webhooks", []):
            client = next(webhook for webhook in stored["webhooks"] if webhook["name"] == entry["name"])["clientConfig"]
            if "service" in client:
                client["service"].update(entry["clientConfig"].get("service", {}))
            client.update({"caBundle": entry["clientConfig"].get("caBundle", client["caBundle"])})
        self.put(path, stored)

    def _check_version(self, path: str, body: Json) -> None:
        if self._by_path[path]["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise OvertakenError(path)

    # --- direct access of tests ---

    def put(self, path: str, body: Json) -> None:
        self._version += 1
        stored = copy.deepcopy(body)
        stored["metadata"]["resourceVersion"] = str(self._version)
        self._by_path[path] = stored

    def read_stored(self, path: str) -> Json:
        return copy.deepcopy(self._by_path[path])

    def secret(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(text) for key, text in self._by_path[f"{SECRETS}/{name}"]["data"].items()}

    def change(self, name: str, data: Mapping[str, bytes | None]) -> None:
        """Write keys of a Secret; None deletes a key."""
        stored = self.read_stored(f"{SECRETS}/{name}")
        for key, value in data.items():
            if value is None:
                del stored["data"][key]
            else:
                stored["data"][key] = base64.b64encode(value).decode()
        self.put(f"{SECRETS}/{name}", stored)

    def remove_label(self, name: str) -> None:
        self._label(name, {})

    def label(self, name: str) -> None:
        self._label(name, LABELS)

    def _label(self, name: str, labels: Mapping[str, str]) -> None:
        stored = self.read_stored(f"{SECRETS}/{name}")
        stored["metadata"]["labels"] = dict(labels)
        self.put(f"{SECRETS}/{name}", stored)

    def set_bundle(self, configuration: str, bundle: bytes, injected_from: str | None = None) -> None:
        """Set the caBundle of all webhooks of a configuration, as a user or cert-manager does."""
        stored = self.read_stored(f"{GROUP}/{configuration}")
        stored["metadata"]["annotations"] = {INJECTED_FROM: injected_from} if injected_from is not None else {}
        for entry in stored["webhooks"]:
            entry["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
        self.put(f"{GROUP}/{configuration}", stored)

    def list_trusted(self, configuration: str) -> frozenset[x509.Certificate]:
        """Return the CAs in the caBundle of the first webhook of a configuration."""
        [entry, *_] = self.read_stored(f"{GROUP}/{configuration}")["webhooks"]
        return parse_certificates(base64.b64decode(entry["clientConfig"]["caBundle"]))

    def set_port(self, port: int) -> None:
        """Set the port of the service in all webhooks."""
        for configuration in CONFIGURATIONS:
            stored = self.read_stored(f"{GROUP}/{configuration}")
            stored["webhooks"][0]["clientConfig"]["service"]["port"] = port
            self.put(f"{GROUP}/{configuration}", stored)

    @property
    def ports(self) -> set[int]:
        configurations = [self.read_stored(f"{GROUP}/{configuration}") for configuration in CONFIGURATIONS]
        return {stored["webhooks"][0]["clientConfig"]["service"]["port"] for stored in configurations}


async def settle(api: Objects, tasks: Sequence[Task], now: datetime) -> tuple[list[str], list[str]]:
    """Reconcile until no task has an action left; return the actions and the remaining errors."""
    actions: list[str] = []
    errors: list[str] = []
    for task in tasks:
        for _ in range(50):
            result = await task.reconcile(api, now)
            actions += [f"{result.action.what}: {result.action.text}"] if result.action is not None else []
            if result.is_over:
                break
        else:
            raise AssertionError(f"the actions do not end: {actions}")
        errors += result.errors
    return actions, errors


def expiry(pem: bytes) -> datetime:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc
