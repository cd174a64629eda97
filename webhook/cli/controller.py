"""`podgate controller`: what became of Pods, held against what was counted."""

import os

import click

from webhook import settings
from webhook.cli.options.settings import options_of


@click.command(
    epilog="Each flag is also an environment variable: --plain-listen is PODGATE_PLAIN_LISTEN. Flags win. "
    "With --store memory there is nothing to run: `podgate serve` does all of it itself."
)
@options_of(settings.ControllerSettings, store="the URL of the Redis that the servers share [required]")
def controller(**flags: str | None) -> None:
    """Watch Pods, and mend what was counted: refund those that never came to be, follow those that live.

    Of several, one leads, by Lease podgate-system/podgate-leader; the others stand by.
    """
    parsed = settings.parse_as(settings.ControllerSettings, flags, os.environ)
    from webhook.app.controller import run  # noqa: PLC0415  --help and a wrong flag need no event loop

    run(parsed)
