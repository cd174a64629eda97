"""`podgate policy`: check, compare and render policy documents, and follow and change their rollout."""

import click

from webhook.cli.options.command_group import CommandGroup
from webhook.cli.policy.candidate import candidate
from webhook.cli.policy.diff import print_difference
from webhook.cli.policy.history import history, wait
from webhook.cli.policy.impact import impact
from webhook.cli.policy.interventions import pause, promote, retry, rollback
from webhook.cli.policy.lint import lint
from webhook.cli.policy.render import print_policy, print_schema
from webhook.cli.policy.sign import sign
from webhook.cli.policy.suggest import suggest
from webhook.cli.policy.webhooks import webhooks


@click.group(cls=CommandGroup)
def policy() -> None:
    """Check, render, compare and suggest policy documents; follow their rollout, or take one back."""


_DOCUMENTS = (lint, print_difference, impact, suggest, print_schema, print_policy, sign, webhooks)
_ROLLOUT = (history, candidate, promote, pause, retry, rollback, wait)
for _command in (*_DOCUMENTS, *_ROLLOUT):
    policy.add_command(_command)
