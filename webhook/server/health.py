"""Health endpoints over plain HTTP: liveness, readiness, metrics and status, all read-only and without secrets."""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

from webhook.server.http_messages import JSON, Handler, HttpRequest, HttpResponse, closing_response

_METHODS = ("GET", "HEAD")


def plain_handler(
    unready: Callable[[], Sequence[str]],
    metrics: Callable[[], Awaitable[bytes]],
    metrics_content_type: str,
    status: Callable[[], Awaitable[bytes]],
    warning: str = "",
) -> Handler:
    """Return the handler. `unready` returns the reasons for not being ready (the store is never one).

    `warning` is added to the response of /readyz if the server is ready.
    """
    well = f"ok ({warning})\n" if warning else "ok\n"

    async def healthz() -> HttpResponse:
        return _page("ok\n")

    async def readyz() -> HttpResponse:
        reasons = unready()
        text = "".join(f"{reason}\n" for reason in reasons) or well
        return _page(text, HTTPStatus.SERVICE_UNAVAILABLE if reasons else HTTPStatus.OK)

    async def show_metrics() -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, await metrics(), metrics_content_type)

    async def show_status() -> HttpResponse:
        return HttpResponse(HTTPStatus.OK, await status(), JSON)

    pages = {"/healthz": healthz, "/readyz": readyz, "/metrics": show_metrics, "/status": show_status}

    async def handle(request: HttpRequest) -> HttpResponse:
        page = pages.get(request.path)
        if page is None:
            return closing_response(HTTPStatus.NOT_FOUND)
        if request.method not in _METHODS:
            return closing_response(HTTPStatus.METHOD_NOT_ALLOWED, allow=", ".join(_METHODS))
        return await page()

    return handle


def _page(text: str, status: HTTPStatus = HTTPStatus.OK) -> HttpResponse:
    return HttpResponse(status, text.encode())
