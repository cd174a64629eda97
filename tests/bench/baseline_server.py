"""Baseline: an aiohttp Application whose handler reads the body and decides nothing."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop
from aiohttp import web

from webhook.tls.context import TlsPaths, server_context

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


@asynccontextmanager
async def empty_server(folder: Path) -> AsyncIterator[tuple[int, str]]:
    """Run it until the block ends, with the certificates in `folder`; its pid and its address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.baseline_server", str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield process.pid, (await process.stdout.readline()).decode().strip()
    finally:
        process.terminate()
        await process.wait()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1])))
