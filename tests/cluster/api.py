"""Plain requests to the API server, for frequent calls: kubectl starts a process each time."""

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Api:
    """A client of the API server for one user."""

    port: int
    context: ssl.SSLContext

    @classmethod
    def create(cls, port: int, authority: Path, certificate: Path, key: Path) -> "Api":
        context = ssl.create_default_context(cafile=authority)
        context.load_cert_chain(certificate, key)
        return cls(port, context)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        content_type: str = "application/json",
        timeout_seconds: float = 60,
    ) -> tuple[int, Any]:
        """Send a request; return status and body (None if empty). Raise OSError if the connection fails."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=timeout_seconds)
        try:
            payload = None if body is None else json.dumps(body)
            connection.request(method, path, payload, {"Content-Type": content_type, "Accept": "application/json"})
            response = connection.getresponse()
            raw = response.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        finally:
            connection.close()
        try:
            return response.status, json.loads(raw) if raw else None
        except ValueError:
            return response.status, raw.decode(errors="replace")

    def get(self, path: str) -> Any:
        """Return the object or list at `path`, or None."""
        status, document = self.request("GET", path)
        assert status in {200, 404}, f"GET {path}: {status}: {document}"
        return document if status == 200 else None
