"""Requests to the API server, over a real connection."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from kubernetes_asyncio.client import ApiClient, Configuration

from certs.cluster.api import WEBHOOKS, Api, _checked
from certs.errors import CertsError


@asynccontextmanager
async def api(ahead: timedelta, asked: list[str]) -> AsyncIterator[Api]:
    """Ask one that answers everything, and whose clock is so far ahead of ours."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked.append(head.split()[0].decode())
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
    """A leader whose clock is ahead would take what lives for expired."""
    asked: list[str] = []
    async with api(ahead, asked) as one:
        assert await one.get("/version") == {}
        with pytest.raises(CertsError, match=r"PUT /version: not written: .* more than 5 minutes") as refused:
            await one.replace("/version", {})
    assert asked == ["GET"]
    assert "clock" in refused.value.remedy


@pytest.mark.parametrize("ahead", [timedelta(minutes=-4), timedelta(0), timedelta(minutes=4)])
async def test_small_clock_skew_permits_writes(ahead: timedelta) -> None:
    asked: list[str] = []
    async with api(ahead, asked) as one:
        await one.get("/version")
        await one.replace("/version", {})
    assert asked == ["GET", "PUT"]


@pytest.mark.parametrize(
    ("path", "folder", "spares"),
    [
        ("/api/v1/namespaces/podgate-system/secrets/podgate-tls", "-k manifests/certificates", "bundles"),
        ("/api/v1/namespaces/podgate-system/configmaps/podgate-jwks", "-k manifests/certificates", "bundles"),
        (f"{WEBHOOKS}/mutatingwebhookconfigurations/podgate", "-f manifests/certificates/14-rbac-bundles.yaml", "-k "),
    ],
)
def test_forbidden_request_names_exactly_the_missing_rights(path: str, folder: str, spares: str) -> None:
    with pytest.raises(CertsError, match="HTTP 403") as refused:
        _checked("GET", path, 403, {})
    assert f"kubectl apply {folder}," in refused.value.remedy
    assert spares not in refused.value.remedy
