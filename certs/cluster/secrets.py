"""Podgate's Secrets, by name. A Secret without Podgate's label is neither read nor written."""

import base64
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from certs.cluster.api import Api, Json
from certs.errors import CertsError

NAMESPACE = "podgate-system"
MANAGED_BY, OURS = "app.kubernetes.io/managed-by", "podgate-certs"
LABELS = {"app.kubernetes.io/name": "podgate", MANAGED_BY: OURS}
TLS = "kubernetes.io/tls"
_FOLDER = f"/api/v1/namespaces/{NAMESPACE}/secrets"


@dataclass(frozen=True, slots=True)
class StoredSecret:
    """One Secret as it was read."""

    data: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    whole: Json | None = field(default=None, repr=False)
    """The object as the API server sent it; None if there is none."""

    @property
    def exists(self) -> bool:
        return self.whole is not None


class SecretStore:
    """Reads and writes Secrets one by one, without the right to list any."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def find(self, name: str) -> StoredSecret:
        """Return the Secret; CertsError if it lacks Podgate's label."""
        found = await self._api.get(f"{_FOLDER}/{name}")
        if found is None:
            return StoredSecret()
        if (found["metadata"].get("labels") or {}).get(MANAGED_BY) != OURS:
            raise CertsError(
                f"Secret {NAMESPACE}/{name} is there without the label {MANAGED_BY}={OURS}: it is left alone",
                f"delete it; or hand it over: kubectl label secret {name} -n {NAMESPACE} {MANAGED_BY}={OURS}; "
                "or keep it, with --certificates off",
            )
        return StoredSecret({key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}, found)

    async def drop(self, name: str, found: StoredSecret, keys: Collection[str]) -> None:
        """Remove keys; OvertakenError if the Secret has changed since it was read."""
        if found.whole is None:
            return
        left = {key: value for key, value in found.whole["data"].items() if key not in keys}
        await self._api.replace(f"{_FOLDER}/{name}", {**found.whole, "data": left})

    async def put(self, name: str, found: StoredSecret, data: Mapping[str, bytes], kind: str = "Opaque") -> None:
        """Write keys beside the existing ones; OvertakenError if the Secret has changed since it was read."""
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
        if found.whole is None:
            metadata = {"name": name, "namespace": NAMESPACE, "labels": LABELS}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": kind, "data": encoded}
            await self._api.create(_FOLDER, body)
        else:
            body = {**found.whole, "data": {**(found.whole.get("data") or {}), **encoded}}
            await self._api.replace(f"{_FOLDER}/{name}", body)
