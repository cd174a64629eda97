"""Objects of a cluster in memory, with the interface that tasks use, over years of virtual time."""

import base64
import copy
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from cryptography import x509

from certs.cluster.api import Api, Json, OvertakenError
from certs.cluster.ca_controller import CertificatePlan
from certs.cluster.secrets import LABELS
from certs.cluster.tasks import Task
from certs.cluster.trust_domain import certificates
from certs.cluster.webhooks import CONFIGURATIONS, INJECTED_FROM
from certs.errors import CertsError
from certs.lifetimes import Lifetimes

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
PLAN = CertificatePlan(
    Lifetimes.of(365 * DAY, 14 * DAY, timedelta(minutes=1)), Lifetimes.of(365 * DAY, 14 * DAY, timedelta(minutes=5))
)
SECRETS = "/api/v1/namespaces/podgate-system/secrets"
CONFIG_MAPS = "/api/v1/namespaces/podgate-system/configmaps"
GROUP = "/apis/admissionregistration.k8s.io/v1"


class Objects(Api):
    """By their paths. `unreadable` are refused to whoever asks."""

    def __init__(self) -> None:
        self.may_write = lambda: True
        self.unreadable: set[str] = set()
        self._by_path: dict[str, Json] = {}
        self._version = 0
        for place in CONFIGURATIONS:
            service = {"name": "podgate", "namespace": "podgate-system", "port": 443}
            entry = {"name": "a.podgate.io", "clientConfig": {"service": service, "caBundle": ""}}
            self.put(f"{GROUP}/{place}", {"metadata": {"name": "podgate"}, "webhooks": [entry]})

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
        self._be_current(path, body)
        self.put(path, body)

    async def patch(self, path: str, body: Json) -> None:
        self._be_current(path, body)
        whole = copy.deepcopy(self._by_path[path])
        noted = (whole["metadata"].get("annotations") or {}) | body["metadata"]["annotations"]
        whole["metadata"]["annotations"] = {name: value for name, value in noted.items() if value is not None}
        for entry in body.get("webhooks", []):
            client = next(one for one in whole["webhooks"] if one["name"] == entry["name"])["clientConfig"]
            if "service" in client:
                client["service"].update(entry["clientConfig"].get("service", {}))
            client.update({"caBundle": entry["clientConfig"].get("caBundle", client["caBundle"])})
        self.put(path, whole)

    def _be_current(self, path: str, body: Json) -> None:
        if self._by_path[path]["metadata"]["resourceVersion"] != body["metadata"]["resourceVersion"]:
            raise OvertakenError(path)

    # --- by hand ---

    def put(self, path: str, body: Json) -> None:
        self._version += 1
        whole = copy.deepcopy(body)
        whole["metadata"]["resourceVersion"] = str(self._version)
        self._by_path[path] = whole

    def whole(self, path: str) -> Json:
        return copy.deepcopy(self._by_path[path])

    def secret(self, name: str) -> dict[str, bytes]:
        return {key: base64.b64decode(text) for key, text in self._by_path[f"{SECRETS}/{name}"]["data"].items()}

    def change(self, name: str, data: Mapping[str, bytes | None]) -> None:
        """Write keys of a Secret; one that is None is taken away."""
        whole = self.whole(f"{SECRETS}/{name}")
        for key, value in data.items():
            if value is None:
                del whole["data"][key]
            else:
                whole["data"][key] = base64.b64encode(value).decode()
        self.put(f"{SECRETS}/{name}", whole)

    def disown(self, name: str) -> None:
        self._label(name, {})

    def label(self, name: str) -> None:
        self._label(name, LABELS)

    def _label(self, name: str, labels: Mapping[str, str]) -> None:
        whole = self.whole(f"{SECRETS}/{name}")
        whole["metadata"]["labels"] = dict(labels)
        self.put(f"{SECRETS}/{name}", whole)

    def trust(self, place: str, bundle: bytes, injected_from: str | None = None) -> None:
        """Have all entries of a configuration trust this bundle, as somebody, or cert-manager, has written it."""
        whole = self.whole(f"{GROUP}/{place}")
        whole["metadata"]["annotations"] = {INJECTED_FROM: injected_from} if injected_from is not None else {}
        for entry in whole["webhooks"]:
            entry["clientConfig"]["caBundle"] = base64.b64encode(bundle).decode()
        self.put(f"{GROUP}/{place}", whole)

    def trusted(self, place: str) -> frozenset[x509.Certificate]:
        """Return whom the first entry of a configuration trusts."""
        [entry, *_] = self.whole(f"{GROUP}/{place}")["webhooks"]
        return certificates(base64.b64decode(entry["clientConfig"]["caBundle"]))

    def lead(self, port: int) -> None:
        """Have all webhooks lead to this port."""
        for place in CONFIGURATIONS:
            whole = self.whole(f"{GROUP}/{place}")
            whole["webhooks"][0]["clientConfig"]["service"]["port"] = port
            self.put(f"{GROUP}/{place}", whole)

    @property
    def ports(self) -> set[int]:
        wholes = [self.whole(f"{GROUP}/{place}") for place in CONFIGURATIONS]
        return {whole["webhooks"][0]["clientConfig"]["service"]["port"] for whole in wholes}


async def settle(api: Objects, tasks: Sequence[Task], now: datetime) -> tuple[list[str], list[str]]:
    """Do all that is due; return what was done, and the troubles that are left."""
    did: list[str] = []
    troubles: list[str] = []
    for task in tasks:
        for _ in range(50):
            result = await task.reconcile(api, now)
            did += [f"{result.action.what}: {result.action.text}"] if result.action is not None else []
            if result.is_over:
                break
        else:
            raise AssertionError(f"no end of it: {did}")
        troubles += result.errors
    return did, troubles


def expiry(pem: bytes) -> datetime:
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc
