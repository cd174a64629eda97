"""Options of `podgate review` that belong together: what is reviewed, and who asks for it."""

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from webhook.cli.apiserver import USER
from webhook.cli.judging import Asker
from webhook.errors import UserError

PATH = click.Path(path_type=Path, allow_dash=True)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
Command = Callable[..., int]


class Inputs(NamedTuple):
    """Where the objects are, and the namespace of those that name none."""

    paths: tuple[Path, ...]
    recursive: bool
    namespace: str


def reading(command: Command) -> Command:
    """Give a command the options that say what it reads; it gets them as `inputs`."""

    @click.argument("files", nargs=-1, type=PATH)
    @click.option(
        "-f",
        "--filename",
        "more_files",
        multiple=True,
        metavar="FILE|DIR|-",
        type=PATH,
        help="the same as FILES, as kubectl writes it; repeatable",
    )
    @click.option("-R", "--recursive", is_flag=True, help="of a folder, read the folders in it too")
    @click.option(
        "-n", "--namespace", default="default", show_default=True, callback=_label, help="for objects that name none"
    )
    @wraps(command)
    def run(
        *, files: tuple[Path, ...], more_files: tuple[Path, ...], recursive: bool, namespace: str, **rest: Any
    ) -> int:
        paths = (*files, *more_files)
        if not paths:
            raise click.UsageError("Missing argument 'FILES...'")
        return command(inputs=Inputs(paths, recursive, namespace), **rest)

    return run


def _label(_context: click.Context, _option: click.Parameter, name: str) -> str:
    if _LABEL.fullmatch(name) is None:
        raise UserError(
            f"--namespace: {name!r}: not a DNS-1123 label",
            "give lower-case letters, digits and '-', at most 63, such as payments",
        )
    return name


def asking(command: Command) -> Command:
    """Give a command the options of who asks for the objects; it gets them as `asker`."""

    @click.option("--as", "username", metavar="USER", help=f"who asks for the objects  [default: {USER}]")
    @click.option("--as-group", "groups", metavar="GROUP", multiple=True, help="a group of this user; repeatable")
    @wraps(command)
    def run(*, username: str | None, groups: tuple[str, ...], **rest: Any) -> int:
        if groups and not username:
            raise click.UsageError("--as-group needs --as")
        return command(asker=Asker(username, groups), **rest)

    return run
