"""`podgate extender`: the scheduler extender."""

import os

import click

from webhook import settings
from webhook.cli.options.settings import settings_options
from webhook.support.process_memory import defer_collection
from webhook.tls.context import skip_default_cas


@click.command(epilog="Each flag is also an environment variable: --listen is PODGATE_LISTEN. Flags win.")
@settings_options(settings.ExtenderSettings)
def extender(**flags: str | None) -> None:
    """Answer kube-scheduler's extender calls over mutual TLS: refuse hot nodes, and score the others.

    It acts on Pods of services with the stanza `scheduling`, and watches Nodes, Pods and the policy in the cluster.
    """
    parsed = settings.parse_as(settings.ExtenderSettings, flags, os.environ)
    with defer_collection(), skip_default_cas():
        from webhook.app.scheduling.extender import run  # noqa: PLC0415  --help and a wrong flag need no web server

    run(parsed)
