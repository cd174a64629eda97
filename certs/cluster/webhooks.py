"""Webhook configurations of Podgate: their CA bundles, and the hosts and ports that the API server calls."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from cryptography import x509

from certs.authority import list_server_names, parse_san
from certs.cluster.api import WEBHOOKS, Api, Json
from certs.errors import CertsError

CONFIGURATIONS = (
    "mutatingwebhookconfigurations/podgate",
    "validatingwebhookconfigurations/podgate",
    "validatingwebhookconfigurations/podgate-policy",
)
INJECTED_FROM = "cert-manager.io/inject-ca-from"
"""Annotation for cert-manager's injector, which writes the bundles."""


@dataclass(frozen=True, slots=True)
class WebhookConfiguration:
    """One webhook configuration, as it was read."""

    place: str
    whole: Json = field(repr=False)

    @property
    def trusts(self) -> tuple[frozenset[x509.Certificate], ...]:
        """The CA bundle of each entry; empty if it is missing or cannot be parsed."""
        return tuple(_parse_certificates(entry["clientConfig"].get("caBundle")) for entry in self._entries)

    @property
    def names(self) -> Iterable[x509.GeneralName]:
        """Yield every host that the API server calls; CertsError for one that cannot be a SAN."""
        for entry in self._entries:
            client = entry["clientConfig"]
            if "service" in client:
                yield from list_server_names(f"{client['service']['name']}.{client['service']['namespace']}.svc")
            else:
                yield _parse_host(client.get("url", ""), f"{self.place}: webhook {entry['name']}: url")

    @property
    def ports(self) -> tuple[int | None, ...]:
        """The Service port of each entry: None if it names none, -1 for a URL."""
        clients = [entry["clientConfig"] for entry in self._entries]
        return tuple(client["service"].get("port") if "service" in client else -1 for client in clients)

    @property
    def injected_from(self) -> str | None:
        return (self.whole["metadata"].get("annotations") or {}).get(INJECTED_FROM)

    @property
    def _entries(self) -> list[Json]:
        return self.whole.get("webhooks") or []

    async def publish(self, api: Api, bundle: bytes) -> None:
        """Set the CA bundle of every entry, and remove the injector's annotation."""
        encoded = base64.b64encode(bundle).decode()
        entries = [{"name": entry["name"], "clientConfig": {"caBundle": encoded}} for entry in self._entries]
        await self._patch(api, None, {"webhooks": entries})

    async def set_port(self, api: Api, port: int) -> None:
        """Set the Service port of every entry."""
        entries = [{"name": entry["name"], "clientConfig": {"service": {"port": port}}} for entry in self._entries]
        await self._patch(api, self.injected_from, {"webhooks": entries})

    async def inject(self, api: Api, certificate: str) -> None:
        """Set the injector's annotation to a Certificate, NAMESPACE/NAME."""
        await self._patch(api, certificate, {})

    async def _patch(self, api: Api, injected_from: str | None, more: Json) -> None:
        version = self.whole["metadata"]["resourceVersion"]
        metadata = {"resourceVersion": version, "annotations": {INJECTED_FROM: injected_from}}
        await api.patch(f"{WEBHOOKS}/{self.place}", {"metadata": metadata, **more})


async def find(api: Api, place: str) -> WebhookConfiguration | None:
    """Return one of CONFIGURATIONS, None if there is none."""
    found = await api.get(f"{WEBHOOKS}/{place}")
    return None if found is None else WebhookConfiguration(place, found)


def _parse_host(url: str, place: str) -> x509.GeneralName:
    try:
        return parse_san(urlsplit(url).hostname or "")
    except CertsError as error:
        raise CertsError(f"{place}: {error}", error.remedy) from None
    except ValueError as error:
        raise CertsError(f"{place}: {error}", "write it as https://HOST:PORT/PATH") from None


def _parse_certificates(encoded: str | None) -> frozenset[x509.Certificate]:
    try:
        return frozenset(x509.load_pem_x509_certificates(base64.b64decode(encoded or "")))
    except ValueError:
        return frozenset()
