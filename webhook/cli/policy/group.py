"""`podgate policy`: check, compare and render policy documents; their schema, and webhook configurations."""

import click

from webhook.cli.options.command_group import CommandGroup
from webhook.cli.policy.diff import print_difference
from webhook.cli.policy.impact import impact
from webhook.cli.policy.lint import lint
from webhook.cli.policy.render import print_policy, print_schema
from webhook.cli.policy.webhooks import webhooks


@click.group(cls=CommandGroup)
def policy() -> None:
    """Check, render and compare policy documents."""


for _command in (lint, print_difference, impact, print_schema, print_policy, webhooks):
    policy.add_command(_command)
