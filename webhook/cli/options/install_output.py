"""Output of `podgate install` and `podgate uninstall`: a line for each object, or one document."""

from typing import Any

import click

from webhook.cli.options.command_group import document_text
from webhook.core.plain_text import printable


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
        self.line(f"{reference} {result}{self._suffix}")

    def on_wait(self, text: str) -> None:
        click.echo(f"waiting for {printable(text)}", err=True)

    def line(self, text: str) -> None:
        if self._output == "text":
            click.echo(printable(text))

    def finish(self, **more: Any) -> None:
        """Print the document."""
        text = document_text({"objects": self._objects, **more}, self._output)
        if text is not None:
            click.echo(text)
