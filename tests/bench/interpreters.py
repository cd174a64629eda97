"""Other interpreters that servers are measured under: each a program that takes the arguments of `python`."""

import subprocess

from tests.harness.server_process import TREE

_DESCRIBE = "import platform; print(platform.python_implementation(), platform.python_version())"


def describe_interpreter(python: str) -> str:
    """Return name and version, such as `CPython 3.13.5`."""
    done = subprocess.run([python, "-c", _DESCRIBE], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def compile_modules(python: str) -> None:
    """Write the bytecode of today's modules: otherwise each start compiles them, if it may not write them."""
    subprocess.run([python, "-m", "compileall", "-q", "webhook", "certs"], cwd=TREE, check=True)
