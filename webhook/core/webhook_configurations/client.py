"""clientConfig of a webhook: Service or URL, and the CA bundle."""

import base64
from dataclasses import dataclass
from typing import Any

from webhook.core.document import configmap

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class ServiceReference:
    """The Service in front of the servers."""

    namespace: str = configmap.NAMESPACE
    name: str = "podgate"
    port: int | None = 443
    """None: not written, so that another owner of the field keeps it; the API server defaults it to 443."""


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Service or base URL, and the PEM bundle by which the API server verifies the serving certificate."""

    target: ServiceReference | str
    ca_bundle: bytes
    """Empty: not written, so that another owner of the field keeps it."""
    secret: str = ""
    """Secret path prefix, in reduced mode."""

    def render(self, route: str) -> Json:
        path = f"{self.secret}/{route}" if self.secret else route
        bundle = {"caBundle": base64.b64encode(self.ca_bundle).decode()} if self.ca_bundle else {}
        if isinstance(self.target, str):
            return {"url": f"{self.target.rstrip('/')}/{path}", **bundle}
        to = self.target
        port = {"port": to.port} if to.port is not None else {}
        service = {"namespace": to.namespace, "name": to.name, **port, "path": f"/{path}"}
        return {"service": service, **bundle}
