"""`podgate queue`: waiting Pods in the order of their release, and manual changes of that order."""

import click

from webhook.cli.options.command_group import CommandGroup
from webhook.cli.queue.manual import drop, pause, release, resume
from webhook.cli.queue.table import list_


class QueueGroup(CommandGroup):
    """Takes arguments that begin with no subcommand as those of `default`."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        is_own = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        # A misspelt subcommand: there is only one SERVICE.
        is_misspelt = len(args) > 1 and not any(argument.startswith("-") for argument in args[:2])
        return super().parse_args(ctx, args if is_own or is_misspelt else [self.default, *args])


@click.group(cls=QueueGroup)
def queue() -> None:
    """Show waiting Pods, of SERVICE or of all: `podgate queue [SERVICE]`. Pause a queue; release or delete one Pod.

    `podgate queue` and `podgate queue list` are the same.
    """


for _command in (list_, pause, resume, release, drop):
    queue.add_command(_command)
