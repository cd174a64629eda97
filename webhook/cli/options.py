"""Settings as flags of a command."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from webhook import settings

Command = Callable[..., Any]


def options_of(kind: type[settings.ControllerSettings], **told: str) -> Callable[[Command], Command]:
    """Return what gives a command a flag for each setting of a kind; `told` says of some what they mean there.

    All are read as text, so that every mistake can be told at once.
    """

    def decorate(command: Command) -> Command:
        for item in reversed(fields(kind)):
            declared = item.metadata
            default = declared["default"]
            suffix = f" [default: {default}]" if default else "" if declared["optional"] else " [required]"
            meaning = told.get(item.name, declared["meaning"] + suffix)
            command = click.option(settings.flag_of(item.name), item.name, help=meaning)(command)
        return command

    return decorate
