"""Settings as options of a command."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

import click

from webhook import settings

Command = Callable[..., Any]


def settings_options(kind: type[settings.ProcessSettings], **help_texts: str) -> Callable[[Command], Command]:
    """Return a decorator that adds an option for each setting of a kind; `help_texts` replaces some of their texts.

    All are read as text, so that every mistake can be reported at once.
    """

    def decorate(command: Command) -> Command:
        for item in reversed(fields(kind)):
            declared = item.metadata
            meaning = help_texts.get(item.name, declared["meaning"] + _format_suffix(declared))
            command = click.option(settings.name_flag(item.name), item.name, help=meaning)(command)
        return command

    return decorate


def _format_suffix(declared: Mapping[str, Any]) -> str:
    default, reduced, modes = declared["default"], declared["reduced"], declared["modes"]
    if default:
        return f" [default: {default}]" if reduced == default else f" [default: {default}; {reduced} if reduced]"
    kind = "optional" if declared["optional"] else "required"
    if len(modes) < len(settings.ClientIdentity):
        return f" [{kind} if {' or '.join(modes)}, not allowed otherwise]"
    return "" if declared["optional"] else " [required]"
