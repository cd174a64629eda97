"""Option for the format of the output: a table on a terminal, JSON elsewhere, or YAML."""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from webhook.offline.output.yaml_text import as_yaml

WIDE = "wide"
_FORMATS = ("table", "json", "yaml")


def output_option(*more: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add -o, passed as `output`, with further formats."""
    formats = click.Choice([*_FORMATS, *more])
    return click.option("-o", "--output", type=formats, help="[default: table on a terminal, json elsewhere]")


def document_text(document: Mapping[str, Any] | Sequence[Any], output: str | None) -> str | None:
    """Return a document in the format of -o; None if that is a table."""
    if output == "yaml":
        return as_yaml(document).removesuffix("\n")
    if output == "json" or (output is None and not sys.stdout.isatty()):
        return json.dumps(document, indent=2, ensure_ascii=False)
    return None
