"""Groups of commands with whole summaries in their help, and option -o: tables, reports, JSON and YAML.

Rows are a table on a terminal and JSON elsewhere. A report is text everywhere.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

from webhook.commands.pages.yaml_text import format_yaml
from webhook.core.plain_text import escape_json

WIDE = "wide"
TABLE_FORMATS = ("table", WIDE, "json", "yaml")
REPORT_FORMATS = ("text", "json", "yaml")
Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def output_option() -> Decorator:
    """Add -o for a command that lists rows, passed as `output`."""
    return click.option(
        "-o", "--output", type=click.Choice(TABLE_FORMATS), help="[default: table on a terminal, json elsewhere]"
    )


def report_option(*former: str) -> Decorator:
    """Add -o for a command that reports, passed as `output`; `former` names of the text are still accepted."""
    formats = click.Choice([*REPORT_FORMATS, *former])
    metavar = f"[{'|'.join(REPORT_FORMATS)}]"
    return click.option("-o", "--output", type=formats, default="text", show_default=True, metavar=metavar)


def format_document(
    document: Mapping[str, Any] | Sequence[Any], output: str | None, *, indent: int | None = 2
) -> str | None:
    """Return a document in the format of -o; None if that is a table or text."""
    if output == "yaml":
        return format_yaml(document).removesuffix("\n")
    if output == "json" or (output is None and not sys.stdout.isatty()):
        return escape_json(json.dumps(document, indent=indent, ensure_ascii=False))
    return None


_SUMMARY_CHARACTERS_MAX = 1_000


class CommandGroup(click.Group):
    """A group that wraps the summaries of its commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl(
                [(name, self.commands[name].get_short_help_str(_SUMMARY_CHARACTERS_MAX)) for name in names]
            )
