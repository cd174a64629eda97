"""The runbook: an entry for each denial, and commands that exist."""

import re
import shlex
from pathlib import Path

import click
import pytest

from webhook.cli import root
from webhook.core.findings import Code

RUNBOOK = (Path(__file__).parents[2] / "docs" / "runbook.md").read_text()
DENIALS = RUNBOOK.partition("\n## Denials\n")[2].partition("\n## ")[0]
NO_DENIALS = {Code.REWRITTEN, Code.WOULD_REWRITE}
"""Only warnings about rewritten fields."""


def commands() -> list[str]:
    """Return the `podgate` commands of the page, in code spans and blocks."""
    lines = [*re.findall(r"`([^`\n]+(?:\n[^`\n]+)?)`", RUNBOOK), *RUNBOOK.splitlines()]
    parts = (" ".join(part.split()).removeprefix("$ ") for line in lines for part in re.split(r"(?<!\w)\\?\|", line))
    return sorted({part.strip("`") for part in parts if re.match(r"podgate [a-z]+", part) and "`" not in part})


def test_each_denial_has_an_entry_that_begins_with_a_command() -> None:
    entries = dict(re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", DENIALS, re.MULTILINE | re.DOTALL))
    assert entries.keys() == {str(code) for code in set(Code) - NO_DENIALS}
    assert [name for name, text in entries.items() if not re.search(r"First: `(kubectl|podgate) ", text)] == []


@pytest.mark.parametrize("line", commands())
def test_each_command_exists_with_its_options(line: str) -> None:
    command: click.Command | None = root
    arguments = shlex.split(line)[1:]
    while isinstance(command, click.Group):
        command = command.get_command(click.Context(command), arguments.pop(0))
    assert command is not None
    options = {name for parameter in command.params if isinstance(parameter, click.Option) for name in parameter.opts}
    assert {part for part in arguments if re.fullmatch(r"--?[a-z].*", part)} <= options


def test_the_page_has_commands() -> None:
    assert len(commands()) > 10
