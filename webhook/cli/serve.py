"""`podgate serve`: the admission server."""

import os
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import click

from webhook import settings


def _options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give the command a flag for each setting; all are read as text, so that every mistake can be told at once."""
    for item in reversed(fields(settings.Settings)):
        declared = item.metadata
        default = declared["default"]
        suffix = f" [default: {default}]" if default else "" if declared["optional"] else " [required]"
        command = click.option(settings.flag_of(item.name), item.name, help=declared["meaning"] + suffix)(command)
    return command


@click.command(
    epilog="Each flag is also an environment variable: --tls-cert is PODGATE_TLS_CERT. Flags win. "
    "Durations are Go's (5s, 1m30s). Make certificates with `podgate certs issue`, tokens with `podgate token issue`."
)
@_options
def serve(**flags: str | None) -> None:
    """Answer the API server's admission calls over mutual TLS with a JWT, until SIGTERM."""
    parsed = settings.parse(flags, os.environ)
    from webhook.wiring.serving import run  # noqa: PLC0415  --help and a wrong flag need no web server

    run(parsed)
