"""How the API server reaches us."""

import base64
from dataclasses import dataclass
from typing import Any

from webhook.core.document import configmap

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServiceReference:
    """The Service that stands before us."""

    namespace: str = configmap.NAMESPACE
    name: str = "podgate"
    port: int = 443


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How the API server reaches us: a Service or a base URL, and the PEM bundle that our certificate is judged by."""

    target: ServiceReference | str
    ca_bundle: bytes

    def at(self, path: str) -> Json:
        bundle = base64.b64encode(self.ca_bundle).decode()
        if isinstance(self.target, str):
            return {"url": f"{self.target.rstrip('/')}/{path}", "caBundle": bundle}
        to = self.target
        service = {"namespace": to.namespace, "name": to.name, "port": to.port, "path": f"/{path}"}
        return {"service": service, "caBundle": bundle}
