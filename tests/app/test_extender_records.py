"""Records of a Pod from all extenders of a cluster, through the port-forward of an API server, or from one URL."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.core.strategies import Json
from webhook.core.diagnosis import Surroundings
from webhook.core.diagnosis.objects import ReportedPod
from webhook.errors import UserError
from webhook.operations.pod_records import ExtenderRecords

PODS = "/api/v1/namespaces/podgate-system/pods"
PORT = (8083).to_bytes(2, "little")
POD = msgspec.convert(
    {"metadata": {"name": "web-1", "namespace": "shop", "uid": "u", "labels": {"podgate.io/service": "web"}}},
    ReportedPod,
)
AROUND = Surroundings(0)


def record(second: int, attempts: int) -> Json:
    at = f"2026-11-24T04:00:0{second}Z"
    named = {"uid": "u", "namespace": "shop", "name": "web-1", "service": "web", "mode": "Enforce"}
    return {**named, "firstAt": at, "at": at, "attempts": attempts, "filter": {"at": at, "asked": second, "passed": 0}}


@asynccontextmanager
async def kubeconfig(folder: Path, records: dict[str, list[Json]], *silent: str) -> AsyncIterator[Path]:
    """Yield a kubeconfig for a cluster with extender Pods that have these records, and others without the right."""

    async def list_pods(request: web.Request) -> web.Response:
        assert request.query["labelSelector"] == "app.kubernetes.io/name=podgate-extender"
        ready = {"conditions": [{"type": "Ready", "status": "True"}]}
        names = (*records, *silent)
        return web.json_response(
            {"items": [{"metadata": {"name": name}, "spec": {}, "status": ready} for name in names]}
        )

    async def forward(request: web.Request) -> web.StreamResponse:
        pod = request.match_info["pod"]
        if pod in silent:
            return web.json_response({"message": "no"}, status=403)
        socket = web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await socket.prepare(request)
        assert b"GET /api/v1/scheduling?uid=u HTTP/1.1\r\n" in await socket.receive_bytes()
        body = msgspec.json.encode({"records": records[pod]})
        await socket.send_bytes(b"\x00" + PORT)
        await socket.send_bytes(b"\x01" + PORT)
        head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
        await socket.send_bytes(b"\x00" + head + body)
        await socket.close()
        return socket

    application = web.Application()
    application.router.add_get(PODS, list_pods)
    application.router.add_get(f"{PODS}/{{pod}}/portforward", forward)
    async with TestServer(application) as server:
        path = folder / "kubeconfig"
        document: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.port}"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_bytes(msgspec.json.encode(document))
        yield path


async def test_all_replicas_are_asked_and_the_newest_call_counts(tmp_path: Path) -> None:
    async with kubeconfig(tmp_path, {"extender-0": [record(1, 2)], "extender-1": [record(3, 1)]}) as path:
        found = await (records := ExtenderRecords(None, path)).find((POD,), AROUND)
    assert records.missing == ""
    assert found["u"].filter is not None
    assert (found["u"].filter.asked, found["u"].attempts) == (3, 3)


async def test_replica_that_cannot_be_read_is_named_beside_what_the_other_knows(tmp_path: Path) -> None:
    async with kubeconfig(tmp_path, {"extender-0": [record(1, 2)]}, "extender-1") as path:
        found = await (records := ExtenderRecords(None, path)).find((POD,), AROUND)
    assert found["u"].attempts == 2
    assert "extender-1" in records.missing
    assert "grant the right to create pods/portforward in podgate-system" in records.missing


async def test_pod_without_a_record_is_told_its_scheduler(tmp_path: Path) -> None:
    async with kubeconfig(tmp_path, {"extender-0": []}) as path:
        assert await (records := ExtenderRecords(None, path)).find((POD,), AROUND) == {}
    assert records.missing.startswith(
        "no extender has a record of the Pod: its scheduler default-scheduler did not ask"
    )


async def test_pod_of_no_service_is_not_asked_about(tmp_path: Path) -> None:
    other = msgspec.convert({"metadata": {"name": "web-1", "namespace": "shop", "uid": "u"}}, ReportedPod)
    assert await (records := ExtenderRecords("http://127.0.0.1:1", tmp_path)).find((other,), AROUND) == {}
    assert records.missing == ""


async def test_url_at_which_nothing_answers_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no extender answers") as raised:
        await ExtenderRecords("http://127.0.0.1:1", tmp_path).find((POD,), AROUND)
    assert "http://127.0.0.1:1" in (raised.value.remedy or "")
