"""A headless Chromium, driven by DevTools over a WebSocket: pages, input, screenshots, log and accessibility tree."""

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.browser.programs import axe, chromium
from tests.timeouts import HANG_SECONDS

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
    "--remote-debugging-port=0",
)
ENDED = tuple(
    f"Failed to load resource: net::ERR_{error}"
    for error in ("CONNECTION_REFUSED", "CONNECTION_RESET", "EMPTY_RESPONSE", "INCOMPLETE_CHUNKED_ENCODING")
)
"""How a load fails while its server ends. The icon is loaded at any time, and the stream of an open page again."""
PHONE, DESK = (390, 844), (1280, 800)


@dataclass
class Tab:
    """One tab. `problems` has each CSP violation, console error, failed load and uncaught exception."""

    socket: aiohttp.ClientWebSocketResponse
    folder: Path
    problems: list[str] = field(default_factory=list)
    _number: int = 0
    _answers: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)
    _events: dict[str, asyncio.Event] = field(default_factory=dict)

    async def read(self) -> None:
        """Read answers and events until the socket closes."""
        async for message in self.socket:
            said = message.json()
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
                continue
            name, parameters = said["method"], said["params"]
            if name == "Log.entryAdded" and parameters["entry"]["level"] == "error":
                text, url = parameters["entry"]["text"], parameters["entry"].get("url", "")
                is_expected = text in ENDED and (url.endswith("/static/icon.svg") or "/api/v1/events?" in url)
                if not is_expected:
                    self.problems.append(f"{text} {url}")
            elif name == "Runtime.exceptionThrown":
                self.problems.append(str(parameters["exceptionDetails"]))
            elif name == "Runtime.consoleAPICalled" and parameters["type"] in {"error", "assert", "warning"}:
                self.problems.append(str(parameters["args"]))
            elif name == "Audits.issueAdded" and "contentSecurityPolicyIssueDetails" in parameters["issue"]["details"]:
                self.problems.append(str(parameters["issue"]["details"]))
            if name in self._events:
                self._events[name].set()

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        answer = self._answers[self._number] = asyncio.get_running_loop().create_future()
        await self.socket.send_json({"id": self._number, "method": method, "params": parameters})
        said = await asyncio.wait_for(answer, HANG_SECONDS)
        assert "error" not in said, (method, said)
        result: dict[str, Any] = said["result"]
        return result

    async def open(self, url: str) -> None:
        """Load a page, and wait until it is loaded."""
        await self.wait_for_load(self.call("Page.navigate", url=url))

    async def wait_for_load(self, doing: Any) -> None:
        """Wait for the load that something begins."""
        loaded = self._events["Page.loadEventFired"] = asyncio.Event()
        await doing
        await asyncio.wait_for(loaded.wait(), HANG_SECONDS)

    async def evaluate(self, expression: str) -> Any:
        """Return the value of a script, by DevTools' right beside the page's policy."""
        said = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said
        return said["result"].get("value")

    async def text(self, selector: str = "body") -> str:
        return str(await self.evaluate(f"document.querySelector({selector!r}).innerText"))

    async def wait_until(self, expression: str) -> None:
        """Wait until a script's value is true."""
        async with asyncio.timeout(HANG_SECONDS):
            while not await self.evaluate(expression):  # noqa: ASYNC110  it happens in another process
                await asyncio.sleep(0.05)

    async def press(self, key: str, text: str = "", modifiers: int = 0) -> None:
        """Press a key, such as Tab or Enter; a key that writes has a text."""
        codes = {"Enter": 13, "Tab": 9, " ": 32, "Escape": 27}
        common = {"key": key, "modifiers": modifiers, "windowsVirtualKeyCode": codes.get(key, 0)}
        written = text or {"Enter": "\r", " ": " "}.get(key, "")
        await self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": written} if written else {}))
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def write(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def set_size(self, size: tuple[int, int], zoom: float = 1.0, *, is_dark: bool = False) -> None:
        """Set the window's size; with a zoom of 2 it is half as wide in CSS pixels, as a person's zoom makes it."""
        width, height = (round(side / zoom) for side in size)
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=zoom, mobile=False
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def set_scripts(self, *, on: bool) -> None:
        await self.call("Emulation.setScriptExecutionDisabled", value=not on)

    async def shoot(self, name: str, **cut: float) -> Path:
        """Keep a screenshot of the whole page, or with a `height` of its top; return its path."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"] | cut
        clip = {**size, "scale": 1}
        said = await self.call("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path = self.folder / f"{name}.png"
        path.write_bytes(base64.b64decode(said["data"]))
        return path

    async def list_violations(self) -> list[str]:
        """Return the rules of axe-core that the page violates, each with its elements."""
        if not await self.evaluate("'axe' in window"):
            await self.evaluate(await asyncio.to_thread(axe().read_text) + ";0")
        found = await self.evaluate("axe.run({resultTypes: ['violations']}).then((done) => done.violations)")
        return [f"{rule['id']}: {[node['target'] for node in rule['nodes']]}" for rule in found]

    async def list_accessible(self) -> list[tuple[str, str]]:
        """Return role and name of each node of the accessibility tree that has a name."""
        nodes = (await self.call("Accessibility.getFullAXTree"))["nodes"]
        found = ((node.get("role", {}).get("value", ""), node.get("name", {}).get("value", "")) for node in nodes)
        return [(str(role), str(name)) for role, name in found if name]


@asynccontextmanager
async def open_browser(folder: Path, shots: Path) -> AsyncIterator[Tab]:
    """Run a browser with a profile of its own, and yield its tab; screenshots go to `shots`."""
    profile = folder / "profile"
    arguments = [*FLAGS, f"--user-data-dir={profile}", "about:blank"]
    null = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(chromium(), *arguments, stdin=null, stdout=null, stderr=null)
    try:
        host = await asyncio.wait_for(_read_address(profile / "DevToolsActivePort"), HANG_SECONDS)
        async with aiohttp.ClientSession() as session:
            page = await asyncio.wait_for(_find_page(session, host), HANG_SECONDS)
            async with session.ws_connect(page, max_msg_size=0) as socket:
                tab = Tab(socket, shots)
                reading = asyncio.create_task(tab.read())
                for domain in ("Page", "Runtime", "Log", "Network", "Audits", "Accessibility"):
                    await tab.call(f"{domain}.enable")
                await tab.set_size(DESK)
                yield tab
            await reading
    finally:
        process.terminate()
        await process.wait()
        shutil.rmtree(profile, ignore_errors=True)


async def _read_address(file: Path) -> str:
    """Return the address of DevTools, which the browser writes into its profile."""
    while True:
        lines = await asyncio.to_thread(lambda: file.read_text().splitlines() if file.exists() else [])
        if len(lines) > 1:
            return f"127.0.0.1:{lines[0]}"
        await asyncio.sleep(0.02)


async def _find_page(session: aiohttp.ClientSession, host: str) -> str:
    """Return the socket of the browser's tab, which may be there only after the address."""
    while True:
        async with session.get(f"http://{host}/json/list") as answer:
            for target in await answer.json():
                if target["type"] == "page":
                    return str(target["webSocketDebuggerUrl"])
        await asyncio.sleep(0.02)
