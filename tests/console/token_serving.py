"""The console of a server, with a prepared API server behind it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web

from tests.harness.console import make_ports, service
from webhook.console.access import is_loopback_host
from webhook.console.application import ConsoleParts, build_application
from webhook.console.interface.document_reader import ConsolePorts, DocumentReader
from webhook.console.listener import ConsoleListener
from webhook.console.token_access import TokenAccess
from webhook.errors import UserError
from webhook.ports.viewers import ResourceAccess, ReviewedUser

ANN, BOB = ReviewedUser("ann"), ReviewedUser("bob", groups=("<b>dev</b>",))
STATUS = ResourceAccess("get", "services", "podgate-system", "proxy", "http:podgate-metrics:plain")
SAME_SITE = {"Sec-Fetch-Site": "same-origin"}


@dataclass
class Reviews:
    """An API server with two users, of whom ann may read the status."""

    users: dict[str, ReviewedUser] = field(default_factory=lambda: {"token-of-ann": ANN, "token-of-bob": BOB})
    rights: set[tuple[str, ResourceAccess]] = field(default_factory=lambda: {("ann", STATUS)})
    asked: list[object] = field(default_factory=list)
    error: str = ""

    async def find_user(self, token: str) -> ReviewedUser | None:
        self.asked.append(token)
        if self.error:
            raise UserError(self.error)
        return self.users.get(token)

    async def may(self, user: ReviewedUser, access: ResourceAccess) -> bool:
        self.asked.append((user.name, access))
        return (user.name, access) in self.rights


@dataclass
class Served:
    """The console of a server, and a browser before it."""

    reviews: Reviews
    url: str
    session: aiohttp.ClientSession
    application: web.Application
    now: list[float]

    async def get(self, path: str = "/", token: str = "", **headers: str) -> tuple[int, str]:
        sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **headers}
        async with self.session.get(self.url + path, headers=sent) as answer:
            return answer.status, await answer.text()

    async def log_in(self, token: str, **headers: str) -> tuple[int, str, str]:
        async with self.session.post(
            self.url + "/login", data={"token": token}, headers={**SAME_SITE, **headers}, allow_redirects=False
        ) as answer:
            return answer.status, answer.headers.get("Set-Cookie", ""), await answer.text()


@asynccontextmanager
async def serve(ports: ConsolePorts | None = None) -> AsyncIterator[Served]:
    reviews, now = Reviews(), [1000.0]

    def is_proxied(host: str) -> bool:
        return host == "podgate.example.com"

    access = TokenAccess(reviews, lambda: now[0], is_proxied)
    reader = DocumentReader(ports or make_ports(service("web")), lambda: 0)
    parts = ConsoleParts(reader, access, lambda host: is_loopback_host(host) or is_proxied(host))
    application = build_application(parts)
    listener = ConsoleListener(application)
    [(_, port)] = await listener.start("127.0.0.1", 0)
    url = f"http://127.0.0.1:{port}"
    try:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
            yield Served(reviews, url, session, application, now)
    finally:
        await listener.stop()
