"""HTTP server on loopback with prepared answers, in place of a plain port or an API server."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

Answers = Mapping[str, tuple[int, bytes]]
"""Status and body by path."""


@contextmanager
def serve_answers(answers: Answers) -> Iterator[str]:
    """Answer GET by path, 404 elsewhere; yield the URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            code, body = answers.get(self.path, (404, b'{"message": "not found"}'))
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Keep the tests' output clean."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
