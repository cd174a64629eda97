"""Input from the terminal of a command that keeps running: Enter."""

import asyncio
import os
import sys
from collections.abc import Callable


def watch_enter(on_enter: Callable[[], None]) -> None:
    """Call a function at each Enter from now on, if there is a terminal to press it on."""
    if not sys.stdin.isatty():
        return
    loop, number = asyncio.get_running_loop(), sys.stdin.fileno()

    def read() -> None:
        if _is_in_background(number):
            return  # reading would stop this process
        if os.read(number, 1024):
            on_enter()
        else:
            loop.remove_reader(number)

    loop.add_reader(number, read)


def _is_in_background(number: int) -> bool:
    try:
        return os.tcgetpgrp(number) != os.getpgrp()
    except OSError:  # a terminal without job control
        return False
