"""Application of the console: routes of pages, acts, static files and events, each behind the same checks."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib.resources import files

import msgspec
from aiohttp import web
from yarl import URL

from webhook.console.access import (
    FORM_TOKEN,
    SECURITY_HEADERS,
    Access,
    AccessDeniedError,
    StatusDeniedError,
    TokenNeededError,
    check_form_token,
    check_origin,
    read_form,
)
from webhook.console.act_endpoint import NOTICE, ActEndpoint, Notices, list_act_links
from webhook.console.interface.act import ConsoleAct, Hands
from webhook.console.interface.console_form import Attachment, ConsoleForm, NextPage
from webhook.console.interface.document_reader import DocumentReader
from webhook.console.interface.page import Page, PageRequest, Viewer
from webhook.console.live_updates import LiveUpdates, TooManyClientsError
from webhook.console.page_templates import build_environment, render
from webhook.console.registry import list_acts, list_forms, list_pages
from webhook.core.console_views.cell import View
from webhook.core.document.yaml.text import DOCUMENT_BYTES_MAX
from webhook.core.plain_text import escape_json, escape_line
from webhook.errors import NoSuchNodeError, NoSuchPageError, NoSuchServiceError, UserError

STATIC = "/static/"
_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_ABSENT = (NoSuchServiceError, NoSuchPageError, NoSuchNodeError)
_BODY_BYTES_MAX = 64 << 10
_FORM_BYTES_MAX = DOCUMENT_BYTES_MAX + _BODY_BYTES_MAX
"""Of those who are let in: a form may have a whole policy."""
_RETRY_SECONDS = 10
_CONNECTION_SECONDS = 300.0
"""After this time a browser connects again, and is judged again."""
_HTTP_REASONS = {404: "there is no such page", 405: "nothing can be sent to this page"}
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_VIEWER = web.RequestKey("viewer", Viewer)


@dataclass(frozen=True, slots=True)
class ConsoleParts:
    """What a console is made of. Without `hands` nothing can be changed: no route for it exists."""

    reader: DocumentReader
    access: Access
    is_own_host: Callable[[str], bool]
    hands: Hands | None = None
    live: LiveUpdates | None = None


def build_application(parts: ConsoleParts) -> web.Application:
    """Return the application, to run with a handler that logs nothing of requests: an address may have a token."""
    return _Console(parts).application


class _Console:
    def __init__(self, parts: ConsoleParts) -> None:
        self._parts = parts
        self._environment = build_environment()
        self._live = parts.live or LiveUpdates()
        self._pages: dict[str, Page] = {}
        self._notices = Notices()
        self.application = application = web.Application(
            middlewares=[self._answer], client_max_size=_BODY_BYTES_MAX, logger=logging.getLogger("podgate.console")
        )
        router = application.router
        router.add_get(STATIC + "{name}", self._show_static)
        router.add_get("/api/v1/events", self._send_events)
        for page in list_pages():
            resource = router.add_resource(page.path)
            resource.add_route("GET", partial(self._show_page, page))
            self._pages[resource.canonical] = page
            router.add_get(page.api_path, partial(self._show_json, page))
        self._acts: tuple[ConsoleAct, ...] = ()
        if parts.hands is not None:
            self._acts = tuple(act for act in list_acts() if act.list_arguments(parts.hands) is not None)
            for act in self._acts:
                endpoint = ActEndpoint(act, parts.hands, self._render, self._notices.put)
                router.add_get(act.path, partial(self._run_act, endpoint.show))
                router.add_post(act.path, partial(self._run_act, endpoint.submit))
        if parts.reader.ports.policies is not None:
            for form in list_forms():
                router.add_post(form.path, partial(self._answer_form, form))
        application.on_shutdown.append(self._close)

    @web.middleware
    async def _answer(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Check a request, and answer errors by a page. All answers leave with the same headers."""
        try:
            check_origin(request.method, request.headers, self._parts.is_own_host)
            if not request.path.startswith(STATIC):
                request[_VIEWER] = await self._parts.access.identify(request)
            response = await handler(request)
        except TokenNeededError as error:
            response = self._show_login(str(error))
        except AccessDeniedError as error:
            response = self._show_error(error.status, str(error), error.remedy, _list_open_pages(error))
        except _ABSENT as error:
            response = self._show_error(HTTPStatus.NOT_FOUND, str(error), error.remedy)
        except UserError as error:
            response = self._show_error(HTTPStatus.BAD_GATEWAY, str(error), error.remedy)
        except web.HTTPRedirection as found:
            found.headers.update(SECURITY_HEADERS)
            raise
        except web.HTTPException as error:
            response = self._show_error(HTTPStatus(error.status), _HTTP_REASONS.get(error.status, error.reason), "")
        except Exception:
            request.app.logger.exception("a page failed: %s", request.match_info.route.resource)
            response = self._show_error(HTTPStatus.INTERNAL_SERVER_ERROR, "the page failed", "see the log of podgate")
        if not response.prepared:
            response.headers.update(SECURITY_HEADERS)
        return response

    async def _show_page(self, page: Page, request: web.Request) -> web.Response:
        asked = self._build_request(request)
        await _check_access(page, asked.viewer)
        view = await page.build(asked)
        order = msgspec.json.encode([escape_line(name) for name in view.list_order()]).decode()
        values = {"view": view, "cells": view.list_cells(), "page": page, "path": dict(asked.path), "order": order}
        links = list_act_links(self._acts, page, asked.path)
        return self._render(f"{page.name}.html", request, {**values, "act_links": links})

    async def _show_json(self, page: Page, request: web.Request) -> web.Response:
        asked = self._build_request(request)
        await _check_access(page, asked.viewer)
        view = await page.build(asked)
        text = escape_json(msgspec.json.encode(view).decode())
        return web.Response(text=text, content_type="application/json")

    def _render(
        self, template: str, request: web.Request, values: dict[str, object], status: int = HTTPStatus.OK
    ) -> web.Response:
        """Return a page within the frame that all share."""
        shared = {
            "menu": [page for page in list_pages() if page.menu_place is not None],
            "viewer": request.get(_VIEWER),
            "server": self._parts.reader.ports.plain.name,
            "here": request.path,
            "notice": self._notices.get(request.query.get(NOTICE, "")),
            "query": dict(request.query),
            "page": None,
            "path": {},
            "acts": {act.name: act.path for act in self._acts},
            "act_links": (),
            "token_name": FORM_TOKEN,
        }
        text = render(self._environment, template, {**shared, **values})
        return web.Response(text=text, content_type="text/html", status=status)

    def _show_error(
        self, status: HTTPStatus, reason: str, remedy: str, open_pages: Sequence[Page] = ()
    ) -> web.Response:
        """Return an error page, which shows nothing that only viewers may see, but the pages that they may open."""
        lines = {"reason": reason.splitlines(), "remedy": remedy.splitlines()}
        values = {"status": status.value, "phrase": status.phrase, "open_pages": open_pages, **lines}
        text = render(self._environment, "error.html", values)
        return web.Response(text=text, content_type="text/html", status=status)

    def _show_login(self, reason: str) -> web.Response:
        text = render(self._environment, "login.html", {"reason": reason})
        return web.Response(text=text, content_type="text/html", status=HTTPStatus.UNAUTHORIZED)

    async def _show_static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        folder = files("webhook.console").joinpath("static")
        if name not in {entry.name for entry in folder.iterdir()}:
            raise web.HTTPNotFound
        kind = _TYPES.get(name.rpartition(".")[2], "application/octet-stream")
        return web.Response(body=folder.joinpath(name).read_bytes(), content_type=kind, charset="utf-8")

    async def _run_act(
        self, step: Callable[[PageRequest, web.Request], Awaitable[web.Response]], request: web.Request
    ) -> web.Response:
        return await step(self._build_request(request), request)

    async def _answer_form(self, form: ConsoleForm, request: web.Request) -> web.Response:
        asked = self._build_request(request)
        if not await asked.viewer.sees_services():
            raise StatusDeniedError(asked.viewer.name)
        texts = await read_form(request.clone(client_max_size=_FORM_BYTES_MAX))
        check_form_token(asked.viewer, texts.get(FORM_TOKEN, ""))
        answer = await form.answer(asked, texts)
        if isinstance(answer, NextPage):
            noticed = {NOTICE: self._notices.put(answer.notice)} if answer.notice else {}
            raise web.HTTPSeeOther(URL(answer.address).update_query(noticed).with_fragment(answer.part or None))
        if isinstance(answer, Attachment):
            named = {"Content-Disposition": f'attachment; filename="{answer.name}"'}
            return web.Response(body=answer.content, headers=named, content_type="application/yaml")
        text = escape_json(msgspec.json.encode(answer.document).decode())
        return web.Response(text=text, content_type="application/json")

    def _build_request(self, request: web.Request) -> PageRequest:
        return PageRequest(self._parts.reader, request[_VIEWER], dict(request.match_info), dict(request.query))

    async def _send_events(self, request: web.Request) -> web.StreamResponse:
        """Send the updates of the page whose address is the parameter `page`."""
        address = _read_address(request.query.get("page", "/"))
        found = await request.app.router.resolve(request.clone(method="GET", rel_url=address))
        resource = found.route.resource
        page = self._pages.get(resource.canonical) if resource is not None else None
        if page is None or not page.is_live:
            raise web.HTTPNotFound
        viewer = request[_VIEWER]
        await _check_access(page, viewer)
        asked = PageRequest(self._parts.reader, viewer, dict(found), dict(address.query))

        async def build() -> View:
            try:
                await _check_access(page, viewer)
            except AccessDeniedError as error:
                raise UserError(str(error)) from None
            return await page.build(asked)

        key = f"{viewer.identity}\n{address.path_qs}"
        try:
            subscriber = self._live.subscribe(key, build, request.headers.get("Last-Event-ID", ""))
        except TooManyClientsError:
            error = self._show_error(HTTPStatus.SERVICE_UNAVAILABLE, "too many browsers look at this console", "")
            error.headers["Retry-After"] = str(_RETRY_SECONDS)
            return error
        response = web.StreamResponse(headers={**SECURITY_HEADERS, "Content-Type": "text/event-stream"})
        try:
            await response.prepare(request)
            async with asyncio.timeout(_CONNECTION_SECONDS):
                while (event := await subscriber.events.get()) is not None:
                    await response.write(event)
        except (ConnectionResetError, TimeoutError):
            pass
        finally:
            self._live.unsubscribe(key, subscriber)
            if subscriber.is_dropped and request.transport is not None:
                request.transport.abort()
        return response

    async def _close(self, _: web.Application) -> None:
        await self._live.close()


def _read_address(text: str) -> URL:
    """Return the address of a page of this host: what has another, such as `//[`, may be no URL."""
    return URL(text if text.startswith("/") and not text.startswith("//") else "/")


def _list_open_pages(error: AccessDeniedError) -> list[Page]:
    """Return the pages of the menu that may answer a viewer who may not see services."""
    if not isinstance(error, StatusDeniedError):
        return []
    return [page for page in list_pages() if page.is_of_namespace and page.menu_place is not None]


async def _check_access(page: Page, viewer: Viewer) -> None:
    """Raise AccessDeniedError unless the viewer may see the page."""
    if not page.is_of_namespace and not await viewer.sees_services():
        raise StatusDeniedError(viewer.name)
