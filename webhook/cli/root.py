"""Command line `podgate`: a group of lazily loaded commands, and its errors: one line with a remedy.

A command is a module of its name here; a group of many commands is a package with a module for each. To add one, write
the module and list it in `_COMMANDS`.
"""

import os
import sys
from importlib import import_module

import click

from webhook.core.plain_text import escape_lines
from webhook.errors import NoSuchNodeError, NoSuchServiceError, UserError
from webhook.support.process_memory import defer_collection

_COMMANDS = {
    "demo": ("webhook.cli.demo:demo", "demonstrate Podgate on loopback in half a minute, without a cluster"),
    "install": ("webhook.cli.install:install", "install Podgate, and prove that the API server calls it"),
    "uninstall": ("webhook.cli.uninstall:uninstall", "remove Podgate from a cluster"),
    "serve": ("webhook.cli.serve:serve", "run the admission server"),
    "controller": ("webhook.cli.controller:controller", "reconcile counters with the Pods in the cluster"),
    "extender": ("webhook.cli.extender:extender", "answer kube-scheduler: which nodes are too hot, and which are best"),
    "nodes": ("webhook.cli.nodes:nodes", "show the load of nodes, and the services whose thresholds it exceeds"),
    "scheduler": ("webhook.cli.scheduler:scheduler", "print the configuration of a second kube-scheduler"),
    "simulate": (
        "webhook.cli.simulate:simulate",
        "simulate where Pods would go, and how hot nodes become",
    ),
    "review": ("webhook.cli.review:review", "show what would happen to the Pods of manifests"),
    "replay": ("webhook.cli.replay:replay", "replay a sequence of events against a policy, in virtual time"),
    "test": ("webhook.cli.test:test", "run policy tests: manifests or event sequences with expected results"),
    "policy": ("webhook.cli.policy:policy", "check, compare and suggest policies; follow a rollout, or take one back"),
    "check": ("webhook.cli.check:check", "check an installation, and show a remedy for each problem"),
    "explain": ("webhook.cli.explain:explain", "explain why a Pod does not run, or why it was refused"),
    "status": ("webhook.cli.status:status", "show services, quotas and breakers of a running server"),
    "console": ("webhook.cli.console:console", "show services, breakers and quotas in a browser"),
    "decisions": ("webhook.cli.decisions:decisions", "show recent decisions; -w follows new ones"),
    "override": ("webhook.cli.override:override", "temporarily override one service's policy"),
    "breaker": ("webhook.cli.breaker:breaker", "open, close or reset one service's breaker; list all breakers"),
    "quota": ("webhook.cli.quota:quota", "show one service's quota, grant more, reset its counters"),
    "queue": (
        "webhook.cli.queue:queue",
        "show waiting Pods in release order; pause a queue; release or delete a Pod",
    ),
    "certs": ("webhook.cli.certs:certs", "issue, renew and inspect certificates"),
    "apiserver-files": (
        "webhook.cli.apiserver_files:apiserver_files",
        "write and renew kube-apiserver's credentials on its node",
    ),
    "token": ("webhook.cli.token:token", "issue and inspect bearer tokens, and the keys that verify them"),
}
_SERVERS = frozenset({"serve", "controller", "extender"})
USAGE_ERROR = 2
NOT_FOUND = 4
_BROKEN_PIPE = 141  # exit code that a shell reports for SIGPIPE


class _LazyGroup(click.Group):
    """Imports a command when it is called: `podgate --help` must not load a web server."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, attribute = _COMMANDS[name][0].split(":")
        with defer_collection():  # the collector would find nothing: docs/design/start-and-memory.md
            command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.exceptions.NoSuchCommand as error:  # click knows no lazy command to suggest
            raise click.exceptions.NoSuchCommand(error.command_name, possibilities=_COMMANDS, ctx=ctx) from None

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="podgate", message="podgate %(version)s")
def root() -> None:
    """Podgate: scheduling policy, quotas and circuit breakers for Pods, at admission.

    Start with `podgate demo`: it runs on loopback, for half a minute, without a cluster.

    \b
    Completion in bash (in zsh: zsh_source):
    eval "$(_PODGATE_COMPLETE=bash_source podgate)"
    """  # noqa: D301 - the backslash-b keeps click from filling these lines


def main() -> None:
    """Run the command line; a user's mistake is reported in one line, without a stack trace."""
    try:
        # https://no-color.org; otherwise click decides: colours on a terminal only.
        colour = False if os.environ.get("NO_COLOR") else None
        _check_output()
        code = root.main(prog_name="podgate", standalone_mode=False, color=colour)
        _flush_output()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(USAGE_ERROR)
    except click.UsageError as error:
        path = error.ctx.command_path if error.ctx else "podgate"
        _fail(error.format_message().rstrip("."), f"see {path} --help", USAGE_ERROR)
    except click.ClickException as error:
        _fail(error.format_message(), "", error.exit_code)
    except (NoSuchServiceError, NoSuchNodeError) as error:
        _fail(str(error), error.remedy, NOT_FOUND)
    except UserError as error:
        _fail(str(error), error.remedy, USAGE_ERROR)
    except RecursionError:
        _fail("the input is nested too deeply", "flatten it", USAGE_ERROR)
    except click.Abort:
        sys.exit(130)
    except OSError as error:
        # The reader is gone (`| head`), or the disk is full: redirect stdout, so that the last flush succeeds.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(_BROKEN_PIPE)
        _fail(str(error), "", 1)
    sys.exit(code if isinstance(code, int) else 0)


def _check_output() -> None:
    """Raise UserError if standard output is closed, as with `>&-`: then only servers are of use."""
    if sys.stdout is None and not _SERVERS.intersection(sys.argv[1:2]):
        raise UserError("standard output is closed", "redirect it to /dev/null if nothing shall be shown")


def _flush_output() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _fail(message: str, remedy: str, code: int) -> None:
    click.echo(escape_lines(f"error: {message}" + (f": {remedy}" if remedy else "")), err=True)
    sys.exit(code)
