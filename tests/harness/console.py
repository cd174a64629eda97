"""A console on loopback over prepared documents, and a client that was let in as a browser is."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import msgspec

from webhook.console.interface.act import Hands
from webhook.console.interface.document_reader import ConsolePorts
from webhook.console.local_server import RunningConsole, run_console
from webhook.errors import NoSuchPageError, UserError

NOW = "2026-12-01T04:00:00.000Z"


@dataclass
class PreparedPort:
    """Answers by path without its query; an error is raised, a function is called."""

    answers: dict[str, Any] = field(default_factory=dict)
    name: str = "http://127.0.0.1:8081"
    paths: list[str] = field(default_factory=list)
    """What was asked, with the query."""

    async def get(self, path: str) -> bytes:
        self.paths.append(path)
        answer = self.answers.get(path.partition("?")[0])
        if isinstance(answer, UserError):
            raise answer
        if answer is None:
            raise NoSuchPageError(f"{self.name}{path}: HTTP 404")
        found = answer() if callable(answer) else answer
        return found if isinstance(found, bytes) else msgspec.json.encode(found)


@dataclass
class ConsoleClient:
    """A browser's session, without a browser."""

    running: RunningConsole
    session: aiohttp.ClientSession

    async def get(self, path: str, **headers: str) -> tuple[int, str]:
        async with self.session.get(self.running.url + path, headers=headers, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def get_json(self, path: str) -> Any:
        status, text = await self.get(path)
        assert status == 200, text
        return msgspec.json.decode(text)

    async def post(self, path: str, form: Mapping[str, str], **headers: str) -> tuple[int, str]:
        sent = {"Sec-Fetch-Site": "same-origin", "Origin": self.running.url, **headers}
        async with self.session.post(self.running.url + path, data=form, headers=sent, allow_redirects=False) as answer:
            return answer.status, answer.headers.get("Location", "") or await answer.text()

    @property
    def form_token(self) -> str:
        """The token of this session's forms."""
        [viewer] = self.running.access._sessions.values()
        return viewer.form_token

    @property
    def cookie(self) -> tuple[str, str]:
        [cookie] = self.session.cookie_jar
        return cookie.key, cookie.value


@asynccontextmanager
async def open_console(ports: ConsolePorts, hands: Hands | None = None) -> AsyncIterator[ConsoleClient]:
    """Run a console, and let one client in."""
    async with (
        run_console(ports, hands) as running,
        aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session,
    ):
        async with session.get(running.issue_address(), allow_redirects=False) as answer:
            assert answer.status == 303, await answer.text()
            assert not urlsplit(answer.headers["Location"]).query
        yield ConsoleClient(running, session)


def make_ports(
    *services: Mapping[str, Any],
    denied: list[dict[str, Any]] | Callable[[], Any] | None = None,
    queues: list[dict[str, Any]] | None = None,
    **status: Any,
) -> ConsolePorts:
    """Return ports with a status document of these services, and records of denials."""
    document = {
        "version": "0.1.0",
        "time": NOW,
        "notReady": [],
        "policy": {"source": "policy.yaml", "hash": "0123456789abcdef", "loadedAt": NOW, "errors": []},
        "store": {"kind": "memory", "healthy": True},
        "queues": {"classes": [], "services": queues or []},
        "services": services,
        **status,
    }
    page = denied if callable(denied) else {"decisions": denied or [], "next": None}
    return ConsolePorts(PreparedPort({"/status": document}), PreparedPort({"/api/v1/decisions": page}))


def service(name: str, used: int | None = 3, hard: int = 50, **fields: Any) -> dict[str, Any]:
    """Return one service of a status document, by default without trouble."""
    window = {"window": "1m", "resource": "pods", "namespace": None, "used": used, "hard": hard}
    full = used is not None and used >= hard
    times = {"full": full, "nextFree": "2026-12-01T04:00:12Z" if full else None, "nextFreeSeconds": 12 if full else 0}
    return {
        "name": name,
        "slaClass": "gold",
        "known": used is not None,
        "windows": [{**window, **times}],
        "breaker": breaker("CLOSED"),
        "override": None,
        **fields,
    }


def shares(variants: Mapping[str, dict[str, Any] | None]) -> dict[str, Any]:
    """Return the shares of a service with the breakers of its variants, None for one without."""
    rows = [
        {"name": name, "weight": 1, "ofCandidate": False, "hasBreaker": found is not None, "breaker": found}
        for name, found in variants.items()
    ]
    return {"base": None, "variants": rows}


def breaker(state: str, seconds: int = 0, **fields: Any) -> dict[str, Any]:
    until = f"2026-12-01T04:{seconds // 60:02d}:{seconds % 60:02d}.000Z" if seconds else None
    return {
        "state": state,
        "reason": "too many requests failed",
        "generation": 3,
        "openUntil": until,
        "openRemainingSeconds": seconds,
        "probes": {"leased": 0, "succeeded": 0, "needed": 3, "early": 0},
        "failed": [],
        **fields,
    }
