"""Health endpoints over plain HTTP: liveness, readiness, metrics and status, all read-only and without secrets."""

from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus

from aiohttp import web

from webhook.server.http1 import Handler, closing_response

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

    async def healthz() -> web.Response:
        return web.Response(text="ok\n")

    async def readyz() -> web.Response:
        reasons = unready()
        text = "".join(f"{reason}\n" for reason in reasons) or well
        return web.Response(status=503 if reasons else 200, text=text)

    async def show_metrics() -> web.Response:
        return web.Response(body=await metrics(), headers={"Content-Type": metrics_content_type})

    async def show_status() -> web.Response:
        return web.Response(body=await status(), content_type="application/json")

    pages = {"/healthz": healthz, "/readyz": readyz, "/metrics": show_metrics, "/status": show_status}

    async def handle(request: web.BaseRequest) -> web.Response:
        page = pages.get(request.path)
        if page is None:
            return closing_response(HTTPStatus.NOT_FOUND)
        if request.method not in _METHODS:
            response = closing_response(HTTPStatus.METHOD_NOT_ALLOWED)
            response.headers["Allow"] = ", ".join(_METHODS)
            return response
        return await page()

    return handle
