"""Enter on a terminal, and standard input that is none."""

import asyncio
import io
import os
import sys

import pytest

from tests.timeouts import HANG_SECONDS
from webhook.commands.terminal_input import watch_enter


async def test_each_enter_on_a_terminal_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    master, slave = os.openpty()
    pressed = asyncio.Event()
    with os.fdopen(slave) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        watch_enter(pressed.set)
        for _ in range(2):
            pressed.clear()
            os.write(master, b"\n")
            await asyncio.wait_for(pressed.wait(), HANG_SECONDS)
        asyncio.get_running_loop().remove_reader(terminal.fileno())
    os.close(master)


async def test_a_script_has_no_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n"))
    watch_enter(lambda: pytest.fail("there is no terminal"))
    await asyncio.sleep(0)
