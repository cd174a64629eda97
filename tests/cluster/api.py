"""Plain requests to the API server, for frequent calls: kubectl starts a process each time."""

import http.client
import json
import select
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Api:
    """A client of the API server for one user. Its connections are kept: most CPU of a request is the TLS handshake."""

    port: int
    context: ssl.SSLContext
    _idle: list[http.client.HTTPSConnection] = field(default_factory=list)
    """Of all threads."""

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
        user: str | None = None,
    ) -> tuple[int, Any]:
        """Send a request; return status and body (None if empty). Raise OSError if the connection fails.

        A body in bytes is sent as it is.
        `user` is one to impersonate, as `kubectl --as` does.
        """
        headers = {"Content-Type": content_type, "Accept": "application/json"}
        connection = self._connection(timeout_seconds)
        try:
            payload = body if body is None or isinstance(body, bytes) else json.dumps(body)
            connection.request(method, path, payload, headers | ({"Impersonate-User": user} if user else {}))
            response = connection.getresponse()
            raw = response.read()
        except BaseException as error:
            connection.close()
            if isinstance(error, http.client.HTTPException):
                raise ConnectionError(str(error)) from error
            raise
        self._idle.append(connection)
        try:
            return response.status, json.loads(raw) if raw else None
        except (ValueError, RecursionError):
            return response.status, raw.decode(errors="replace")

    def get(self, path: str) -> Any:
        """Return the object or list at `path`, or None."""
        status, document = self.request("GET", path)
        assert status in {200, 404}, f"GET {path}: {status}: {document}"
        return document if status == 200 else None

    def close(self) -> None:
        """Close the connections; the next request opens one again."""
        while self._idle:
            self._idle.pop().close()

    def _connection(self, timeout_seconds: float) -> http.client.HTTPSConnection:
        """Return a kept connection that the API server has not closed, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.sock is not None and not select.select([connection.sock], [], [], 0)[0]:
                connection.sock.settimeout(timeout_seconds)
                return connection
            connection.close()
        return http.client.HTTPSConnection("127.0.0.1", self.port, context=self.context, timeout=timeout_seconds)
