"""A person at `podgate console`: a real process with a user's kubeconfig, its forms, and the commands that it shows."""

import re
import shlex
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import aiohttp

from tests.harness.console_process import start_console

_FIELD = re.compile(r'<(?:input|select) [^>]*name="([^"]+)"(?: value="([^"]*)")?')
_SELECTED = re.compile(r'name="([^"]+)">(?:\s*<option>[^<]*</option>)*\s*<option selected>([^<]*)</option>')
_NOTICE = re.compile(r'<p class="notice" role="status">([^<]*)</p>')
_COMMAND = re.compile(r'<code id="command">([^<]*)</code>')
_ERROR = re.compile(r"<p>(Nothing was done: [^<]*)</p>")


@dataclass(frozen=True)
class Acted:
    """What the console has shown: the command line, and what was done or why not."""

    command: list[str]
    said: str


@dataclass
class ConsoleSession:
    """A browser's session with a console."""

    url: str
    session: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, str]:
        async with self.session.get(self.url + path, allow_redirects=False) as answer:
            return answer.status, await answer.text()

    async def _post(self, path: str, form: Mapping[str, str]) -> tuple[int, str]:
        headers = {"Sec-Fetch-Site": "same-origin", "Origin": self.url}
        async with self.session.post(self.url + path, data=form, headers=headers) as answer:
            return answer.status, await answer.text()

    async def act(self, path: str, form: Mapping[str, str]) -> Acted:
        """Fill a form, confirm, and read what is said."""
        status, page = await self.get(path)
        assert status == 200, page
        sent = {name: unescape(value) for name, value in [*_FIELD.findall(page), *_SELECTED.findall(page)]}
        sent = {**sent, **form}
        status, page = await self._post(path, sent)
        assert status == 200, page
        [command] = _COMMAND.findall(page)
        _, page = await self._post(path, {**sent, "confirmed": "yes"})
        [said] = _NOTICE.findall(page) or _ERROR.findall(page)
        return Acted(shlex.split(unescape(command)), unescape(said))


@asynccontextmanager
async def open_session(folder: Path, server: str, kubeconfig: Path, *arguments: str) -> AsyncIterator[ConsoleSession]:
    """Run a console for a user until the block ends."""
    where = ("--server", f"http://{server}", "--kubeconfig", str(kubeconfig))
    process, address, log = await start_console(folder, *where, *arguments)
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        async with session.get(address) as answer:
            assert answer.status == 200, log.read_text()
        try:
            yield ConsoleSession(address.partition("/?")[0], session)
        finally:
            process.terminate()
            assert await process.wait() == 0, log.read_text()
