"""The fuzzer, atheris, from a pinned, checksummed wheel in a cache outside the tree."""

import hashlib
import platform
import shutil
import sys
from pathlib import Path

from tests.cluster.binaries import cache
from tests.cluster.toolchain import hold_lock, install_wheels

REQUIREMENTS = Path(__file__).with_name("fuzzer.requirements")


def fetch_fuzzer() -> Path:
    """Return the folder of atheris; the first call downloads it. BuildError: there is none for this Python."""
    inputs = repr((REQUIREMENTS.read_text(), sys.version_info[:2], sys.platform, platform.machine()))
    folder = cache() / f"fuzzer-{hashlib.sha256(inputs.encode()).hexdigest()[:16]}"
    with hold_lock(folder):
        if not folder.exists():
            draft = folder.with_name(f".{folder.name}")
            shutil.rmtree(draft, ignore_errors=True)
            install_wheels(
                REQUIREMENTS, draft, remedy="use CPython 3.11 on Linux x86_64, or pin a wheel of atheris for yours"
            )
            draft.rename(folder)
    return folder
