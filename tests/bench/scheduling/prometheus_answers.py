"""HTTP server with the answers of a Prometheus about simulated nodes: a real one with 1,000 exporters takes a core."""

import threading
import time
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs

HOT_EVERY = 10
"""Each tenth node is hot."""
_PLACE = "?"
_CORES, _HOT_CORES, _MEMORY_BYTES, _IDLE = 8.0, 60.0, float(32 << 30), 0.01


class PrometheusAnswers:
    """Answers instant and range queries about cpu, memory, sample times and pressure, on a port of loopback."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = nodes
        answers = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                body = answers.answer({name: values[0] for name, values in form.items()})
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, asked: dict[str, str]) -> bytes:
        """Return the series of a query, one a node."""
        if "step" in asked:
            start, end, step = (float(asked[name]) for name in ("start", "end", "step"))
            times = [start + step * number for number in range(int((end - start) / step) + 1)]
            pairs = ",".join(f'[{at},"{_PLACE}"]' for at in times)
            template = f'"values":[{pairs}]'
        else:
            template = f'"value":[{asked["time"]},"{_PLACE}"]'
        values = [f"{_value(asked['query'], number):.6f}" for number in range(len(self._nodes))]
        series = ",".join(
            f'{{"metric":{{"node":"{name}"}},{template.replace(_PLACE, value)}}}'
            for name, value in zip(self._nodes, values, strict=True)
        )
        return f'{{"status":"success","data":{{"result":[{series}]}}}}'.encode()


def _value(query: str, number: int) -> float:
    if "timestamp(" in query:
        return time.time()
    if "pressure" in query:
        return _IDLE
    if "memory" in query:
        return _MEMORY_BYTES
    return _HOT_CORES if number % HOT_EVERY == 0 else _CORES + number % 7
