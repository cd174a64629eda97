"""The command line: one executable, subcommands loaded when they are asked for, errors in one line with a remedy."""

import os
import sys
from importlib import import_module

import click

from webhook.errors import UserError

_COMMANDS = {
    "demo": "webhook.cli.demo:demo",
    "serve": "webhook.cli.serve:serve",
    "review": "webhook.cli.review:review",
    "replay": "webhook.cli.replay:replay",
    "policy": "webhook.cli.policy:policy",
    "status": "webhook.cli.status:status",
    "certs": "webhook.cli.certs:certs",
    "token": "webhook.cli.token:token",
}
USAGE_ERROR = 2


class _Lazy(click.Group):
    """Subcommands by name: `podgate --help` must not load a web server."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="podgate", message="podgate %(version)s")
def root() -> None:
    """Podgate: scheduling policy, quotas and circuit breakers for Pods, at admission.

    Start with `podgate demo`: the whole of it on loopback, in a minute, without a cluster.
    """


def main() -> None:
    """Run the command line; never a stack trace for a user's mistake."""
    try:
        code = root.main(prog_name="podgate", standalone_mode=False)
        sys.stdout.flush()
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "podgate"
        _fail(error.format_message(), f"see {path} --help", USAGE_ERROR)
    except click.ClickException as error:
        _fail(error.format_message(), "", error.exit_code)
    except UserError as error:
        _fail(str(error), error.remedy, USAGE_ERROR)
    except click.Abort:
        sys.exit(130)
    except BrokenPipeError:
        # The reader has gone (`| head`); point stdout elsewhere so that the interpreter's last flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, remedy: str, code: int) -> None:
    click.echo(f"error: {message}" + (f": {remedy}" if remedy else ""), err=True)
    sys.exit(code)
