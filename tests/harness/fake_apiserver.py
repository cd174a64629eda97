"""A small API server for the objects under test, with every failure of a real one."""

import asyncio
import json
import re
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonpatch
import yaml
from aiohttp import web

from tests.timeouts import HANG_SECONDS

NAMESPACES = "/api/v1/namespaces"
CONFIGMAPS = f"{NAMESPACES}/podgate-system/configmaps"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/podgate-system/leases"
PODS = "/api/v1/pods"
NODES = "/api/v1/nodes"
EVENTS = "/api/v1/events"
TOPOLOGIES = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"
CLAIMS = "/api/v1/persistentvolumeclaims"
STATUSES = "/apis/podgate.io/v1alpha1/servicestatuses"
_KINDS = {
    NAMESPACES: "Namespace",
    CONFIGMAPS: "ConfigMap",
    LEASES: "Lease",
    PODS: "Pod",
    NODES: "Node",
    EVENTS: "Event",
    TOPOLOGIES: "NodeResourceTopology",
    CLAIMS: "PersistentVolumeClaim",
    STATUSES: "ServiceStatus",
}
_PODS_OF = re.compile(rf"{NAMESPACES}/([^/]+)/pods")
_CUT, _END = object(), object()

Fault = Callable[[web.Request], Awaitable[web.StreamResponse]]


async def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a condition that the other side of a connection changes."""
    async with asyncio.timeout(HANG_SECONDS):
        while not holds():  # noqa: ASYNC110  there is no event
            await asyncio.sleep(0.001)


@dataclass(frozen=True, slots=True)
class Seen:
    """A received request."""

    verb: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]


@dataclass(eq=False, slots=True)
class OpenWatch:
    """An open watch. It receives no change up to `version`, even if that is in the future."""

    request: web.Request
    version: int
    items: asyncio.Queue[Any] = field(default_factory=asyncio.Queue)

    def offer(self, revision: int, kind: str, path: str, found: dict[str, Any]) -> None:
        if revision > self.version and path == self.request.path and _is_selected(self.request, found):
            self.items.put_nowait(_line(kind, found))


def refuse(code: int, message: str = "", **headers: str) -> Fault:
    """Answer with a Status."""

    async def fault(_: web.Request) -> web.StreamResponse:
        return _status(code, message, {name.replace("_", "-"): value for name, value in headers.items()})

    return fault


def say(body: bytes, *, cut: bool = False) -> Fault:
    """Answer 200 with this body; `cut` breaks the connection off instead of ending the answer."""

    async def fault(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(body)
        if cut:
            _abort(request)
        return response

    return fault


async def hang(_: web.Request) -> web.StreamResponse:
    """Take the request and never answer."""
    await asyncio.Event().wait()
    raise AssertionError


async def drop(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    _abort(request)
    return web.Response()


class FakeApiServer:
    """Starts empty. `revision` counts writes, as etcd's does."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.faults: dict[str, deque[Fault]] = {}
        """Responses to the next requests of a verb, in order."""
        self.always: dict[str, Fault] = {}
        """The response to every request of a verb, after `faults`."""
        self.revision = 100
        self.watching: list[OpenWatch] = []
        self.url = ""
        self.port = 0
        self._objects: dict[tuple[str, str], dict[str, Any]] = {}
        self._log: list[tuple[int, str, str, dict[str, Any]]] = []
        self._oldest = 0

    def verbs(self) -> list[str]:
        return [seen.verb for seen in self.seen]

    def find_last(self, verb: str) -> Seen:
        return [seen for seen in self.seen if seen.verb == verb][-1]

    def fail_next(self, verb: str, *faults: Fault) -> None:
        self.faults.setdefault(verb, deque()).extend(faults)

    def put(self, path: str, name: str, **fields: Any) -> dict[str, Any]:
        """Write an object, as another client. `labels` belong to the metadata, and `metadata` adds to it."""
        labels = fields.pop("labels", None)
        kept = self._objects.get((path, name), {}).get("metadata", {})
        metadata = {**kept, "name": name} | ({"labels": labels} if labels is not None else {})
        metadata |= fields.pop("metadata", {})
        return self._write(path, {"apiVersion": "v1", "kind": _KINDS[path], "metadata": metadata, **fields})

    def put_pod(self, namespace: str, name: str, uid: str, **fields: Any) -> None:
        """Write a Pod, as another client; `metadata` adds to its metadata. Its name here is `namespace/name`."""
        metadata = {"name": name, "namespace": namespace, "uid": uid, **fields.pop("metadata", {})}
        self._write(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}, **fields})

    def remove(self, path: str, name: str) -> None:
        gone = self._objects.pop((path, name))
        self.revision += 1
        metadata = {**gone["metadata"], "resourceVersion": str(self.revision)}
        self._publish("DELETED", path, {**gone, "metadata": metadata})

    def find_stored(self, path: str, name: str) -> dict[str, Any] | None:
        return self._objects.get((path, name))

    def list_stored(self, path: str) -> list[dict[str, Any]]:
        """Return the objects at a path, oldest first."""
        return [found for (place, _), found in self._objects.items() if place == path]

    def compact(self) -> None:
        """Forget all versions up to now: a watch from one of them gets a 410."""
        self._oldest = self.revision
        self._log.clear()

    def bookmark(self) -> None:
        self.send(_line("BOOKMARK", {"kind": "X", "metadata": {"resourceVersion": str(self.revision)}}))

    def error(self, code: int, message: str = "") -> None:
        """Put an ERROR event into every open watch, which then ends."""
        self.send(_line("ERROR", _status_object(code, message)))
        self.end()

    def break_watches(self) -> None:
        """Break every watch off."""
        self.send(_CUT)

    def end(self) -> None:
        """End every watch, as at its timeout."""
        self.send(_END)

    def send(self, item: object) -> None:
        """Put bytes into every open watch."""
        for watch in self.watching:
            watch.items.put_nowait(item)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        verb = _verb(request)
        self.seen.append(Seen(verb, request.path, dict(request.query), dict(request.headers)))
        faults = self.faults.get(verb)
        fault = faults.popleft() if faults else self.always.get(verb)
        if fault is not None:
            return await fault(request)
        handlers = {"list": self.list, "watch": self._watch, "get": self._get, "delete": self._delete}
        handler = handlers.get(verb, self.change)
        return await handler(request)

    async def list(self, request: web.Request) -> web.StreamResponse:
        version, _, begin = request.query.get("continue", f"{self.revision}:0").partition(":")
        if int(version) < self._oldest:
            return _status(410, "The provided continue parameter is too old")
        path = _place(request)
        # All pages show the state of the first one; these tests only add objects meanwhile.
        items = [
            found
            for (place, _), found in self._objects.items()
            if place == path
            and _is_selected(request, found)
            and int(found["metadata"]["resourceVersion"]) <= int(version)
        ]
        end = int(begin) + int(request.query.get("limit", len(items) or 1))
        metadata = {"resourceVersion": version} | ({"continue": f"{version}:{end}"} if end < len(items) else {})
        body = {"kind": f"{_KINDS[path]}List", "metadata": metadata, "items": items[int(begin) : end]}
        return web.json_response(body)

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        version = int(request.query["resourceVersion"])
        response = web.StreamResponse()
        await response.prepare(request)
        if version < self._oldest:
            await response.write(_line("ERROR", _status_object(410, "too old resource version")))
            return response
        watch = OpenWatch(request, version)
        for entry in self._log:
            watch.offer(*entry)
        self.watching.append(watch)
        try:
            while (item := await watch.items.get()) is not _END:
                if item is _CUT:
                    _abort(request)
                    break
                await response.write(item)
        finally:
            self.watching.remove(watch)
        return response

    async def _get(self, request: web.Request) -> web.StreamResponse:
        path, _, name = request.path.rpartition("/")
        found = self._objects.get((path, name))
        return _status(404, f'"{name}" not found') if found is None else web.json_response(found)

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        path, _, name = request.path.rpartition("/")
        found = self._objects.get((path, name))
        if found is None:
            return _status(404, f'"{name}" not found')
        wanted = (await request.json()).get("preconditions", {}).get("resourceVersion")
        if wanted not in (None, found["metadata"]["resourceVersion"]):
            return _status(409, "the object has been modified")
        self.remove(path, name)
        return _status(200, "")

    async def change(self, request: web.Request) -> web.StreamResponse:
        sent = await request.json()
        if isinstance(sent, list):
            return self._apply_json_patch(request, sent)
        name = sent["metadata"]["name"]
        path = request.path.removesuffix(f"/{name}")
        existing = self._objects.get((path, name))
        if request.method == "POST" and existing is not None:
            return _status(409, f'"{name}" already exists')
        if request.method == "PUT" and existing is None:
            return _status(404, f'"{name}" not found')
        version = sent["metadata"].get("resourceVersion")
        if existing is not None and version not in (None, existing["metadata"]["resourceVersion"]):
            return _status(409, "the object has been modified")
        return web.json_response(self._write(path, sent))

    def _apply_json_patch(self, request: web.Request, patch: Any) -> web.StreamResponse:
        path, _, name = request.path.rpartition("/")
        existing = self._objects.get((path, name))
        if existing is None:
            return _status(404, f'"{name}" not found')
        try:
            return web.json_response(self._write(path, jsonpatch.apply_patch(existing, patch)))
        except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
            return _status(422, str(error))

    def _write(self, path: str, found: dict[str, Any]) -> dict[str, Any]:
        self.revision += 1
        name = found["metadata"]["name"]
        if path == PODS:
            name = f"{found['metadata']['namespace']}/{name}"
        kind = "MODIFIED" if (path, name) in self._objects else "ADDED"
        written = {**found, "metadata": {**found["metadata"], "resourceVersion": str(self.revision)}}
        self._objects[path, name] = written
        self._publish(kind, path, written)
        return written

    def _publish(self, kind: str, path: str, found: dict[str, Any]) -> None:
        entry = (self.revision, kind, path, found)
        self._log.append(entry)
        for watch in self.watching:
            watch.offer(*entry)


@asynccontextmanager
async def fake_apiserver(
    folder: Path, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[FakeApiServer]:
    """Serve on loopback, with a kubeconfig in the folder."""
    fake = FakeApiServer()
    application = web.Application(client_max_size=8 << 20)
    application.router.add_route("*", "/{path:.*}", fake.handle)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, host, 0, ssl_context=tls)
    await site.start()
    fake.port = runner.addresses[0][1]
    fake.url = f"{'https' if tls else 'http'}://{host}:{fake.port}"
    (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig(fake.url)))
    try:
        yield fake
    finally:
        await runner.cleanup()


def kubeconfig(server: str, **user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


def _verb(request: web.Request) -> str:
    if request.method != "GET":
        return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[request.method]
    if _place(request) not in _KINDS:
        return "get"
    return "watch" if request.query.get("watch") == "true" else "list"


def _place(request: web.Request) -> str:
    """Return the path under which a request's objects are stored."""
    return PODS if _PODS_OF.fullmatch(request.path) else request.path


def _is_selected(request: web.Request, found: dict[str, Any]) -> bool:
    of = _PODS_OF.fullmatch(request.path)
    if of is not None and found["metadata"]["namespace"] != of[1]:
        return False
    for selector in filter(None, request.query.get("fieldSelector", "").split(",")):
        field_name, operator, value = re.split("(!?=)", selector)
        place = found["metadata"] if field_name.startswith("metadata.") else found
        if (place.get(field_name.removeprefix("metadata.")) == value) is (operator == "!="):
            return False
    wanted = [
        requirement.partition("=") for requirement in request.query.get("labelSelector", "").split(",") if requirement
    ]
    labels = found["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, _, value in wanted)


def _line(kind: str, found: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode() + b"\n"


def _status_object(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "message": message}


def _status(code: int, message: str, headers: dict[str, str] | None = None) -> web.Response:
    return web.json_response(_status_object(code, message), status=code, headers=headers)


def _abort(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
