"""docs/review.md shows what the command prints."""

import re
import shlex
from pathlib import Path

import pytest

from tests.cli.command_runner import podgate
from webhook.support.input_files import INPUT_BYTES_MAX

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "review.md").read_text()


def test_example_is_the_output_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    command, diff, messages = re.findall(r"^```\w*\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)[:3]
    program, *arguments = shlex.split(command)
    done = podgate(*arguments)
    assert (program, done.code, done.out, done.err) == ("podgate", 0, diff, messages)


def test_keys_of_a_line_are_documented(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT / "docs" / "examples" / "review")
    for form in ("json", "patch"):
        (line,) = podgate("review", "payment-api.yaml", "--policy", "policy.yaml", "-o", form).lines
        (row,) = re.findall(rf"^\| `{form}` \| (.*) \|$", PAGE, re.MULTILINE)
        assert re.findall(r"`(\w+)`", row)[: len(line)] == list(line)


def test_size_limit_is_documented() -> None:
    assert f"at most {INPUT_BYTES_MAX >> 20} MiB of a file" in PAGE
