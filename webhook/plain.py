"""The plain port: liveness, readiness, metrics, status. It decides nothing, and shows no secret."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from aiohttp import web


def plain_application(
    unready: Callable[[], Sequence[str]],
    metrics: Callable[[], Awaitable[bytes]],
    metrics_content_type: str,
    status: Callable[[], Awaitable[dict[str, Any]]],
) -> web.Application:
    """Return the application; `unready` says why this server should get no calls (the store is never a reason)."""

    async def healthz(_request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_request: web.Request) -> web.Response:
        reasons = unready()
        text = "".join(f"{reason}\n" for reason in reasons) or "ok\n"
        return web.Response(status=503 if reasons else 200, text=text)

    async def show_metrics(_request: web.Request) -> web.Response:
        return web.Response(body=await metrics(), headers={"Content-Type": metrics_content_type})

    async def show_status(_request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(await status()), content_type="application/json")

    application = web.Application()
    application.router.add_get("/healthz", healthz)
    application.router.add_get("/readyz", readyz)
    application.router.add_get("/metrics", show_metrics)
    application.router.add_get("/status", show_status)
    return application
