"""The command line: one executable, subcommands loaded when they are asked for, errors in one line with a remedy."""

import os
import sys
from importlib import import_module

import click

from webhook.errors import NoSuchServiceError, UserError

_COMMANDS = {
    "demo": ("webhook.cli.demo:demo", "the main job on loopback, in half a minute, without a cluster"),
    "serve": ("webhook.cli.serve:serve", "the admission server"),
    "controller": ("webhook.cli.controller:controller", "what became of Pods, held against what was counted"),
    "review": ("webhook.cli.review:review", "what would become of the Pods of manifests"),
    "replay": ("webhook.cli.replay:replay", "a sequence of events over virtual time against a policy"),
    "policy": ("webhook.cli.policy:policy", "check, explain and show policy documents"),
    "status": ("webhook.cli.status:status", "services, their quotas and breakers, as a server has them"),
    "override": ("webhook.cli.override:override", "hands on a service for a time, with a reason"),
    "breaker": ("webhook.cli.breaker:breaker", "open, close or reset one service's breaker; how all of them stand"),
    "quota": ("webhook.cli.quota:quota", "one service's quota: show it, grant more, forget what was counted"),
    "certs": ("webhook.cli.certs:certs", "a CA, serving and client certificates"),
    "apiserver-files": (
        "webhook.cli.apiserver_files:apiserver_files",
        "what kube-apiserver calls with, written and renewed on its node",
    ),
    "token": ("webhook.cli.token:token", "bearer tokens, and the keys that verify them"),
}
USAGE_ERROR = 2
NO_SUCH_SERVICE = 4
_BROKEN_PIPE = 141  # as a shell reports SIGPIPE


class _Lazy(click.Group):
    """Subcommands by name: `podgate --help` must not load a web server."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[name][0].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="podgate", message="podgate %(version)s")
def root() -> None:
    """Podgate: scheduling policy, quotas and circuit breakers for Pods, at admission.

    Start with `podgate demo`: the whole of it on loopback, in a minute, without a cluster.
    """


def main() -> None:
    """Run the command line; never a stack trace for a user's mistake."""
    try:
        # https://no-color.org; else click decides by whether there is a terminal.
        colour = False if os.environ.get("NO_COLOR") else None
        code = root.main(prog_name="podgate", standalone_mode=False, color=colour)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(USAGE_ERROR)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "podgate"
        _fail(error.format_message().rstrip("."), f"see {path} --help", USAGE_ERROR)
    except click.ClickException as error:
        _fail(error.format_message(), "", error.exit_code)
    except NoSuchServiceError as error:
        _fail(str(error), error.remedy, NO_SUCH_SERVICE)
    except UserError as error:
        _fail(str(error), error.remedy, USAGE_ERROR)
    except RecursionError:
        _fail("something in the input is nested too deeply", "flatten it", USAGE_ERROR)
    except click.Abort:
        sys.exit(130)
    except OSError as error:
        # Nobody reads on (`| head`), or the disk is full: point stdout elsewhere, so that the last flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(_BROKEN_PIPE)
        _fail(str(error), "", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, remedy: str, code: int) -> None:
    click.echo(f"error: {message}" + (f": {remedy}" if remedy else ""), err=True)
    sys.exit(code)
