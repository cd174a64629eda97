"""Group of commands whose help has the first sentence of each command in full: click cuts it at the end of the line."""

import click

_LONGEST_SUMMARY = 1_000


class CommandGroup(click.Group):
    """A group that wraps the summaries of its commands."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        names = self.list_commands(ctx)
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.commands[name].get_short_help_str(_LONGEST_SUMMARY)) for name in names])
