"""Helpers of the `readme` tests that other tests use, too."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.timeouts import HANG_SECONDS

ROOT = Path(__file__).parents[2]


BIN = Path(sys.executable).parent


README = (ROOT / "README.md").read_text()


def shell_blocks(heading: str) -> list[str]:
    section = re.split(r"^## ", README, flags=re.MULTILINE)
    text = next(part for part in section if part.startswith(heading))
    return re.findall(r"```sh\n(.*?)```", text, flags=re.DOTALL)


def environment() -> dict[str, str]:
    return {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}


@contextmanager
def run_script(script: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a script that starts a server; terminate its process group afterwards."""
    process = subprocess.Popen(
        ["/bin/sh", "-e", "-c", script],
        cwd=folder,
        env=environment(),
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=HANG_SECONDS)
