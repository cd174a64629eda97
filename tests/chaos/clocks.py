"""Clocks of parts that a run can step: libfaketime of Debian's package, preloaded, reads the step from a file."""

import platform
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.debian_package import unpack_debian_package

_PACKAGE, _REMEDY = "libfaketime", "run on Debian or Ubuntu"
_REREAD_SECONDS = "1"
"""Compared with whole seconds, so that a step takes up to two."""


def library() -> Path:
    """Return libfaketime; the first call downloads it."""
    root = unpack_debian_package(_PACKAGE, _REMEDY)
    return root / "usr" / "lib" / f"{platform.machine()}-linux-gnu" / "faketime" / "libfaketimeMT.so.1"


def build_variables(clock: Path | str) -> Mapping[str, str]:
    """Return the environment of a process whose wall clock the file `clock` steps, within two seconds."""
    return {
        "LD_PRELOAD": str(library()),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_CACHE_DURATION": _REREAD_SECONDS,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
    }


def list_words(clock: Path | str) -> list[str]:
    """Return how a command line begins whose program has such a clock."""
    return ["env", *(f"{name}={value}" for name, value in build_variables(clock).items())]


def step(clock: Path, seconds: float) -> None:
    """Step a clock to so many seconds off the real time; 0 sets it right."""
    draft = clock.with_suffix(".draft")
    draft.write_text(f"{seconds:+g}\n")
    draft.replace(clock)
