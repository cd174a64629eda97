"""A real `podgate console` process."""

import asyncio
import re
from pathlib import Path

from tests.harness.server_process import Process, start
from tests.timeouts import HANG_SECONDS


async def start_console(folder: Path, *arguments: str) -> tuple[Process, str, Path]:
    """Start it without a browser; return the process, the address that it prints, and its output."""
    log = folder / "console.log"
    process = start(["-m", "webhook", "console", "--no-browser", *arguments], log)
    return process, await wait_for_address(process, log), log


async def wait_for_address(process: Process, log: Path) -> str:
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            text = await asyncio.to_thread(log.read_text)
            if found := re.search(r"^console: (\S+)$", text, re.MULTILINE):
                return found[1]
            assert process.returncode is None, text
            await asyncio.sleep(0.02)
