"""Output of `podgate install` and `podgate uninstall`: a line for each object, or one JSON document."""

import json
from typing import Any

import click


class InstallOutput:
    """Lines on standard output as they happen, or (json) one document at the end; waits on standard error."""

    def __init__(self, *, is_json: bool, is_dry: bool) -> None:
        self._is_json = is_json
        self._suffix = " (dry run)" if is_dry else ""
        self._objects: list[dict[str, str]] = []

    @property
    def is_empty(self) -> bool:
        """Whether nothing was done to any object."""
        return not self._objects

    def on_object(self, reference: object, result: str) -> None:
        self._objects.append({"object": str(reference), "result": result})
        self.line(f"{reference} {result}{self._suffix}")

    def on_wait(self, text: str) -> None:
        click.echo(f"waiting for {text}", err=True)

    def line(self, text: str) -> None:
        if not self._is_json:
            click.echo(text)

    def finish(self, **more: Any) -> None:
        """Print the JSON document."""
        if self._is_json:
            click.echo(json.dumps({"objects": self._objects, **more}, indent=2))
