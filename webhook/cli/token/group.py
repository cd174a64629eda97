"""`podgate token`: JWTs for callers without an issuer of their own, and the key set that verifies them."""

import click

from webhook.cli.options.command_group import CommandGroup
from webhook.cli.token.inspect import inspect
from webhook.cli.token.issue import issue
from webhook.cli.token.jwks import jwks
from webhook.cli.token.rotate import rotate


@click.group(cls=CommandGroup)
def token() -> None:
    """Issue and inspect bearer tokens, and publish the keys that verify them."""


for _command in (issue, jwks, inspect, rotate):
    token.add_command(_command)
