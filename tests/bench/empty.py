"""What a review is compared with: an aiohttp Application whose handler reads the body and decides nothing."""

import asyncio
import sys
from pathlib import Path

import uvloop
from aiohttp import web

from webhook.tls import TlsPaths, server_context

ANSWER = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":true}}'


async def _answer(request: web.Request) -> web.Response:
    await request.read()
    return web.Response(body=ANSWER, content_type="application/json")


async def _serve(folder: Path) -> None:
    application = web.Application()
    application.router.add_post("/validate", _answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    context = server_context(TlsPaths(folder / "server.crt", folder / "server.key", folder / "ca.crt"))
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    print(f"127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


uvloop.run(_serve(Path(sys.argv[1])))
