"""`podgate controller`: reconciliation of counters with the Pods in the cluster."""

import os

import click

from webhook import settings
from webhook.cli.options.settings import settings_options
from webhook.support.process_memory import defer_collection
from webhook.tls.context import skip_default_cas


@click.command(
    epilog="Each flag is also an environment variable: --plain-listen is PODGATE_PLAIN_LISTEN. Flags win. "
    "With --store memory no controller is needed: `podgate serve` does its work."
)
@settings_options(settings.ControllerSettings, store="the URL of the Redis that the servers share [required]")
def controller(**flags: str | None) -> None:
    """Watch Pods and correct the counters: refund Pods that were never created, track those that run.

    Of several replicas one leads, by Lease podgate-system/podgate-leader; the others stand by.
    """
    parsed = settings.parse_as(settings.ControllerSettings, flags, os.environ)
    with defer_collection(), skip_default_cas():
        from webhook.app.controller import run  # noqa: PLC0415  --help and a wrong flag need no event loop

    run(parsed)
