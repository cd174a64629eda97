"""How objects are shown to a person: YAML, and what changed between two of them."""

import difflib
from typing import Any

import click
import yaml

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


def as_yaml(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, default_flow_style=False)


def as_diff(before: dict[str, Any], after: dict[str, Any], name: str) -> str:
    """Return a unified diff of two objects as YAML; colour is dropped where the output is no terminal."""
    lines = difflib.unified_diff(
        as_yaml(before).splitlines(), as_yaml(after).splitlines(), name, f"{name} (rewritten)", lineterm=""
    )
    return "".join(f"{_coloured(line)}\n" for line in lines)


def _coloured(line: str) -> str:
    return click.style(line, fg=_COLOURS[line[0]]) if line[:1] in _COLOURS else line
