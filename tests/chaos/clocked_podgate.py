"""Podgate with short intervals under libfaketime, run in place of `python -m webhook`.

libfaketime takes the moment until which Python's `time.sleep` waits for one of its own clock, and refuses it.
"""

import runpy
import select
import time
from pathlib import Path

_SHORT_INTERVALS = Path(__file__).parents[1] / "cluster" / "short_intervals.py"


def sleep(seconds: float) -> None:
    select.select([], [], [], seconds)


if __name__ == "__main__":
    time.sleep = sleep
    runpy.run_path(str(_SHORT_INTERVALS), run_name="__main__")
