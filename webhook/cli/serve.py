"""`podgate serve`: the admission server."""

import os

import click

from webhook import settings
from webhook.cli.options.settings import options_of
from webhook.support.garbage_collection import put_off
from webhook.tls.default_contexts import without_default_cas


@click.command(
    epilog="Each flag is also an environment variable: --tls-cert is PODGATE_TLS_CERT. Flags win. "
    "Durations are Go's (5s, 1m30s). Make certificates with `podgate certs issue`, tokens with `podgate token issue`."
)
@options_of(settings.Settings)
def serve(**flags: str | None) -> None:
    """Serve the API server's admission requests over mutual TLS and JWT, until SIGTERM."""
    parsed = settings.parse(flags, os.environ)
    with put_off(), without_default_cas():
        from webhook.app.server import run  # noqa: PLC0415  --help and a wrong flag need no web server

    run(parsed)
