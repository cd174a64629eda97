"""A webhook server that admits everything and remembers what it was asked: which calls arrive, and which do not."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Self

from webhook.tls import TlsPaths


class Call(NamedTuple):
    """One AdmissionReview, in short."""

    path: str
    operation: str
    sub_resource: str
    name: str


class Recorder:
    """Listens on `address` from the moment it is entered."""

    def __init__(self, paths: TlsPaths) -> None:
        self.calls: list[Call] = []
        self.reviews: list[dict[str, Any]] = []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(paths.certificate, paths.key)
        self._server = _server(self)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = threading.Thread(target=self._server.serve_forever, name="recorder", daemon=True)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def record(self, path: str, request: dict[str, Any]) -> None:
        name = request.get("name") or request["object"]["metadata"].get("generateName", "")
        self.calls.append(Call(path, request["operation"], request.get("subResource", ""), name))
        self.reviews.append(request)

    def taken(self) -> list[Call]:
        """Return the calls since the last time that this was asked."""
        calls, self.calls = self.calls, []
        return calls

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _server(recorder: Recorder) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["request"]
            recorder.record(self.path.partition("?")[0], request)
            response = {"uid": request["uid"], "allowed": True}
            answer = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False  # kept connections end with the caller

        def handle_error(self, *_: object) -> None:
            """Say nothing of connections that were cut."""

    return Server(("127.0.0.1", 0), Handler)
