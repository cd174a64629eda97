"""Requests to the API server over a real connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from kubernetes_asyncio.client import ApiClient, Configuration

from certs.cluster.api import WEBHOOKS, Api, _check_response
from certs.errors import CertsError


@asynccontextmanager
async def api(ahead: timedelta, methods: list[str]) -> AsyncIterator[Api]:
    """Yield a client of an API server that accepts every request and whose clock is `ahead` of this machine's."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        methods.append(head.split()[0].decode())
        date = format_datetime(datetime.now(UTC) + ahead, usegmt=True)
        writer.write(f"HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}".encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    client = ApiClient(Configuration(host=f"http://127.0.0.1:{port}"))
    try:
        yield Api(client, lambda: True)
    finally:
        await client.close()
        server.close()


@pytest.mark.parametrize("ahead", [timedelta(minutes=-6), timedelta(days=400)])
async def test_large_clock_skew_to_the_api_server_prevents_writes(ahead: timedelta) -> None:
    """A leader whose clock is ahead would treat valid certificates as expired."""
    methods: list[str] = []
    async with api(ahead, methods) as kube_api:
        assert await kube_api.get("/version") == {}
        with pytest.raises(CertsError, match=r"PUT /version: not written: .* more than 5 minutes") as refused:
            await kube_api.replace("/version", {})
    assert methods == ["GET"]
    assert "clock" in refused.value.remedy


@pytest.mark.parametrize("ahead", [timedelta(minutes=-4), timedelta(0), timedelta(minutes=4)])
async def test_small_clock_skew_permits_writes(ahead: timedelta) -> None:
    methods: list[str] = []
    async with api(ahead, methods) as kube_api:
        await kube_api.get("/version")
        await kube_api.replace("/version", {})
    assert methods == ["GET", "PUT"]


@pytest.mark.parametrize(
    ("path", "folder", "omitted"),
    [
        ("/api/v1/namespaces/podgate-system/secrets/podgate-tls", "-k manifests/certificates", "webhooks"),
        ("/api/v1/namespaces/podgate-system/configmaps/podgate-jwks", "-k manifests/certificates", "webhooks"),
        (f"{WEBHOOKS}/mutatingwebhookconfigurations/podgate", "-f manifests/base/11-rbac-webhooks.yaml", "-k "),
    ],
)
def test_forbidden_request_names_exactly_the_missing_rights(path: str, folder: str, omitted: str) -> None:
    with pytest.raises(CertsError, match="HTTP 403") as refused:
        _check_response("GET", path, 403, {})
    assert f"kubectl apply {folder}," in refused.value.remedy
    assert omitted not in refused.value.remedy
