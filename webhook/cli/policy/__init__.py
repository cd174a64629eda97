"""`podgate policy`: check policy documents, print their schema, render them, and generate webhook configurations."""

import click

from webhook.cli.policy.lint import lint
from webhook.cli.policy.render import print_rendered
from webhook.cli.policy.schema import print_schema
from webhook.cli.policy.webhooks import webhooks


@click.group()
def policy() -> None:
    """Check and render policy documents."""


for _command in (lint, print_schema, print_rendered, webhooks):
    policy.add_command(_command)
