"""Output of `podgate install` and `podgate uninstall`: a line for each object, or one document."""

from typing import Any

import click

from webhook.cli.options.command_group import format_document
from webhook.core.plain_text import escape_line


class InstallOutput:
    """Lines on standard output as they happen, or one document (JSON or YAML) at the end; waits on standard error."""

    def __init__(self, output: str, *, is_dry: bool) -> None:
        self._output = output
        self._suffix = " (dry run)" if is_dry else ""
        self._objects: list[dict[str, str]] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was done to any object."""
        return not self._objects

    @property
    def changed(self) -> list[str]:
        """The objects that were created or changed."""
        return [entry["object"] for entry in self._objects if entry["result"] in {"created", "changed", "taken over"}]

    def on_object(self, reference: object, result: str) -> None:
        self._objects.append({"object": str(reference), "result": result})
        self.print_line(f"{reference} {result}{self._suffix}")

    def on_wait(self, text: str) -> None:
        click.echo(f"waiting for {escape_line(text)}", err=True)

    def print_line(self, text: str) -> None:
        if self._output == "text":
            click.echo(escape_line(text))

    def finish(self, **more: Any) -> None:
        """Print the document."""
        text = format_document({"objects": self._objects, **more}, self._output)
        if text is not None:
            click.echo(text)
