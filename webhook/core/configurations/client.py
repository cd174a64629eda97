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
    port: int | None = 443
    """None: none is written, and who keeps it is not disturbed; the API server takes 443 for a new one."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """How the API server reaches us: a Service or a base URL, and the PEM bundle that our certificate is judged by."""

    target: ServiceReference | str
    ca_bundle: bytes
    """Empty: none is written, and who keeps it there is not disturbed."""
    secret: str = ""
    """In reduced mode, what every path begins with."""

    def at(self, route: str) -> Json:
        path = f"{self.secret}/{route}" if self.secret else route
        bundle = {"caBundle": base64.b64encode(self.ca_bundle).decode()} if self.ca_bundle else {}
        if isinstance(self.target, str):
            return {"url": f"{self.target.rstrip('/')}/{path}", **bundle}
        to = self.target
        port = {"port": to.port} if to.port is not None else {}
        service = {"namespace": to.namespace, "name": to.name, **port, "path": f"/{path}"}
        return {"service": service, **bundle}
