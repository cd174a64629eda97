"""The targets by name. A module of `tests/fuzz/targets` is one."""

from collections.abc import Callable, Sequence
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).with_name("targets")
NAMES = tuple(sorted(path.stem for path in _FOLDER.glob("[a-z]*.py")))


class Form(StrEnum):
    """How the inputs of a target are changed, beside their bytes."""

    JSON = "json"
    LINES = "lines"
    BYTES = "bytes"


class Target(NamedTuple):
    """A function of bytes with an oracle, and what its inputs are made of."""

    name: str
    check: Callable[[bytes], None]
    list_seeds: Callable[[], Sequence[bytes]]
    form: Form
    words: Sequence[str]
    """Texts that its grammar knows."""


def load_target(name: str) -> Target:
    """Return a target. What it tests is imported only now, so that a fuzzer can watch it."""
    module = import_module(f"tests.fuzz.targets.{name}")
    return Target(name, module.check, module.list_seeds, module.FORM, module.WORDS)
