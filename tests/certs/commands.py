"""Helpers of the `commands` tests that other tests use, too."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from webhook.cli import root


def run(*words: object) -> str:
    """Run a command that succeeds; return what it printed."""
    result = CliRunner().invoke(root, [str(word) for word in words])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def issue(folder: Path, *words: object) -> list[dict[str, Any]]:
    return json.loads(run("certs", "issue", "--out", folder, "-o", "json", *words))  # type: ignore[no-any-return]
