"""Runs the command line: the installed command, or `main` in this process."""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from webhook.cli import main

BIN = Path(sys.executable).parent
Json = dict[str, Any]

TRACE = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Done:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Json]:
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def document(self) -> Json:
        """Return the JSON document that is all its output; assert that the command succeeded."""
        assert self.code == 0, self.err
        found: Json = json.loads(self.out)
        return found

    @property
    def error(self) -> str:
        """Return the only error line; assert that there is exactly one."""
        (line,) = self.err.splitlines()
        assert line.startswith("error: "), line
        return line.removeprefix("error: ")


def podgate(*arguments: str | Path, stdin: str | bytes = "") -> Done:
    """Run `podgate` in this process."""
    stdin_stream = io.TextIOWrapper(io.BytesIO(stdin if isinstance(stdin, bytes) else stdin.encode()))
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["podgate", *map(str, arguments)]),
        mock.patch.object(sys, "stdin", stdin_stream),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ending,
    ):
        main()
    code = ending.value.code
    assert isinstance(code, int), "an exit code is a number: a text would be printed"
    return Done(code, out.getvalue(), err.getvalue())


def run_installed(*arguments: object, name: str = "podgate", stdin: str = "", cwd: Path | None = None) -> Done:
    """Run the installed command as a process of its own."""
    done = subprocess.run(
        [BIN / name, *map(str, arguments)], input=stdin, capture_output=True, text=True, check=False, cwd=cwd
    )
    return Done(done.returncode, done.stdout, done.stderr)


def policy_text(services: str, head: str = "") -> str:
    return f"apiVersion: podgate.io/v1alpha1\nkind: Policy\n{head}\nservices:\n{services}"


def encode_lines(events: Iterable[Json]) -> Iterator[str]:
    for event in events:
        yield json.dumps(event) + "\n"
