"""`podgate certs`: a CA, and serving and client certificates, as files or in a cluster."""

import click

from webhook.cli.certs.bootstrap import bootstrap
from webhook.cli.certs.inspect import inspect
from webhook.cli.certs.issue import issue
from webhook.cli.certs.rotate import rotate
from webhook.cli.options.command_group import CommandGroup


@click.group(cls=CommandGroup)
def certs() -> None:
    """Issue, renew and inspect CA, serving and client certificates."""


for _command in (issue, rotate, bootstrap, inspect):
    certs.add_command(_command)
