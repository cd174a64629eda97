"""Health endpoints over plain HTTP: liveness, readiness, metrics and status, all read-only and without secrets."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus

from webhook.server.http_messages import Handler, HttpRequest, HttpResponse, build_closing_response, build_json_response
from webhook.server.plain.queue import QUEUE

_METHODS = ("GET", "HEAD")
_QUALITY = re.compile(r"[01](\.\d{0,3})?")


def build_plain_handler(
    unready: Callable[[], Sequence[str]],
    metrics: Mapping[str, Callable[[], Awaitable[bytes]]],
    status: Callable[[], Awaitable[bytes]],
    queue: Handler | None = None,
    warning: str = "",
) -> Handler:
    """Return the handler. `unready` returns the reasons for not being ready (the store is never one).

    `metrics` are renderers by content type. The one that the client prefers is used, by default the first.
    `queue` is the page of waiting Pods, if there is one. `warning` is added to the response of /readyz if the server
    is ready.
    """
    well = f"ok ({warning})\n" if warning else "ok\n"

    async def healthz(_: HttpRequest) -> HttpResponse:
        return _build_page("ok\n")

    async def readyz(_: HttpRequest) -> HttpResponse:
        reasons = unready()
        text = "".join(f"{reason}\n" for reason in reasons) or well
        return _build_page(text, HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK)

    async def show_metrics(request: HttpRequest) -> HttpResponse:
        accept = request.headers.get("Accept", "")
        content_type = max(metrics, key=lambda offered: _parse_quality(accept, offered.partition(";")[0]))
        return HttpResponse(HTTPStatus.OK, await metrics[content_type](), content_type)

    async def show_status(_: HttpRequest) -> HttpResponse:
        return build_json_response(await status())

    pages: Mapping[str, Handler] = {
        "/healthz": healthz,
        "/readyz": readyz,
        "/metrics": show_metrics,
        "/status": show_status,
        **({} if queue is None else {QUEUE: queue}),
    }

    async def handle(request: HttpRequest) -> HttpResponse:
        if request.path not in pages:
            return build_closing_response(HTTPStatus.NOT_FOUND)
        if request.method not in _METHODS:
            return build_closing_response(HTTPStatus.METHOD_NOT_ALLOWED, allow=", ".join(_METHODS))
        return await pages[request.path](request)

    return handle


def _parse_quality(accept: str, media_type: str) -> float:
    """Return how much a client prefers a media type that its Accept header names; 0 if it does not name it."""
    qualities = [0.0]
    for accepted in accept.split(","):
        name, *parameters = [part.strip() for part in accepted.split(";")]
        if name.lower() == media_type:
            given = [
                value for key, _, value in (parameter.partition("=") for parameter in parameters) if key.strip() == "q"
            ]
            qualities.append(float(given[0]) if given and _QUALITY.fullmatch(given[0]) else 1.0)
    return max(qualities)


def _build_page(text: str, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(status, text.encode())
