"""Compared server: aiohttp with a handler that reads the body and returns a constant response.

By default it is an Application, with `--low-level` a `web.Server`.
"""

import asyncio
import sys
from pathlib import Path

import uvloop
from aiohttp import web

from webhook.tls.context import TlsPaths, make_server_context

ANSWER = b'{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","response":{"uid":"x","allowed":true}}'


async def _answer(request: web.BaseRequest) -> web.Response:
    await request.read()
    return web.Response(body=ANSWER, content_type="application/json")


def _runner(*, low_level: bool) -> web.BaseRunner:
    if low_level:
        return web.ServerRunner(web.Server(_answer))
    application = web.Application()
    application.router.add_post("/mutate", _answer)
    return web.AppRunner(application, access_log=None)


async def _serve(folder: Path, *, low_level: bool) -> None:
    runner = _runner(low_level=low_level)
    await runner.setup()
    context = make_server_context(TlsPaths(folder / "server.crt", folder / "server.key", folder / "ca.crt"))
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    print(f"127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]), low_level="--low-level" in sys.argv))
