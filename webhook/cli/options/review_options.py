"""Options of `podgate review`: the objects under review, the evaluator, and the requesting user."""

import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple

import click

from webhook.commands.clients.remote_server import ServerOptions
from webhook.commands.review_object import Asker
from webhook.commands.simulator import USER
from webhook.core.document.formats import find_fault, fits
from webhook.core.workloads.custom_kinds import TemplatePaths
from webhook.errors import UserError

PATH = click.Path(path_type=Path, allow_dash=True)
_FILE = click.Path(path_type=Path)
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
Command = Callable[..., int]


class Inputs(NamedTuple):
    """Paths of the objects, the namespace of objects without one, and the Pod templates given for kinds.

    `is_strict`: an object of a kind that is not known is an error.
    """

    paths: tuple[Path, ...]
    recursive: bool
    namespace: str
    templates: TemplatePaths
    is_strict: bool


class JudgeBy(NamedTuple):
    """The evaluator: a policy with labels of Namespaces, or a server."""

    policy: Path | None
    namespaces: Path | None
    server: ServerOptions | None


def input_options(command: Command) -> Command:
    """Add the options for the objects under review, passed as `inputs`."""

    @click.argument("files", nargs=-1, type=PATH)
    @click.option(
        "-f",
        "--filename",
        "more_files",
        multiple=True,
        metavar="FILE|DIR|-",
        type=PATH,
        help="the same as FILES, as in kubectl; repeatable",
    )
    @click.option("-R", "--recursive", is_flag=True, help="read the subfolders of folders, too")
    @click.option(
        "-n",
        "--namespace",
        default="default",
        show_default=True,
        callback=_check_label,
        help="namespace of objects without one",
    )
    @click.option(
        "--templates",
        multiple=True,
        metavar="GROUP/KIND=PATH",
        callback=_parse_templates,
        help="where a further kind has Pod templates, as example.com/Train=spec.workers.*.template, whatever the policy"
        " says of it; without a PATH the kind makes no Pods; repeatable",
    )
    @click.option("--strict-kinds", is_flag=True, help="exit code 2 for an object of a kind that is not known")
    @wraps(command)
    def run(
        *,
        files: tuple[Path, ...],
        more_files: tuple[Path, ...],
        recursive: bool,
        namespace: str,
        templates: TemplatePaths,
        strict_kinds: bool,
        **rest: Any,
    ) -> int:
        paths = (*files, *more_files)
        if not paths:
            raise click.UsageError("Missing argument 'FILES...'")
        return command(inputs=Inputs(paths, recursive, namespace, templates, strict_kinds), **rest)

    return run


def _parse_templates(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> TemplatePaths:
    """Return the templates that are given, by kind."""
    found: dict[tuple[str, str], tuple[str, ...]] = {}
    for text in given:
        name, equals, path = text.partition("=")
        group, slash, kind = name.rpartition("/")
        if not (equals and slash and fits(group, "api-group") and fits(kind, "kind")):
            raise UserError(
                f"--templates: {text!r}: not GROUP/KIND=PATH", "write it as example.com/Train=spec.workers.*.template"
            )
        fault = find_fault(path, "template-path") if path else None
        if fault is not None:
            raise UserError(f"--templates: {text!r}: {fault.reason}", fault.remedy)
        found[group, kind] = (*found.get((group, kind), ()), *filter(None, [path]))
    return found


def _check_label(_context: click.Context, _option: click.Parameter, name: str) -> str:
    if _LABEL.fullmatch(name) is None:
        raise UserError(
            f"--namespace: {name!r}: not a DNS-1123 label",
            "give lower-case letters, digits and '-', at most 63, such as payments",
        )
    return name


def evaluator_options(command: Command) -> Command:
    """Add the options for the evaluator, passed as `judge_by`."""

    @click.option("--policy", type=PATH, help="the policy document  [this or --server is required]")
    @click.option(
        "--namespaces",
        type=PATH,
        help="labels of Namespaces, for namespaceSelector: Namespace objects, or name: {label: value};"
        " those of Namespaces among FILES are used as well",
    )
    @click.option(
        "--server",
        metavar="URL",
        help="evaluate on this running server, as dry runs: https://HOST:PORT of its admission port",
    )
    @click.option("--ca", type=_FILE, help="with --server: the CAs of its certificate  [default: the system's]")
    @click.option("--cert", "certificate", type=_FILE, help="with --server: the client certificate")
    @click.option("--key", type=_FILE, help="with --server: the key of --cert")
    @click.option("--token-file", "token", type=_FILE, help="with --server: the file of the bearer token")
    @click.option("--tls-server-name", "tls_name", metavar="NAME", help="with --server: the name in its certificate")
    @wraps(command)
    def run(*, policy: Path | None, namespaces: Path | None, server: str | None, ca: Path | None, **rest: Any) -> int:
        names = ("certificate", "key", "token", "tls_name")
        certificate, key, token, tls_name = (rest.pop(name) for name in names)
        if policy is None and server is None:
            raise click.UsageError("Missing option '--policy' or '--server'")
        if policy is not None and server is not None:
            raise click.UsageError("--policy and --server exclude each other")
        if server is not None and namespaces is not None:
            raise click.UsageError("--namespaces is for --policy: a server knows its cluster's")
        if server is None and any((ca, certificate, key, token, tls_name)):
            raise click.UsageError("--ca, --cert, --key, --token-file and --tls-server-name need --server")
        if (certificate is None) != (key is None):
            raise click.UsageError("--cert and --key go together")
        called = None if server is None else ServerOptions(server, ca, certificate, key, token, tls_name)
        return command(judge_by=JudgeBy(policy, namespaces, called), **rest)

    return run


def user_options(command: Command) -> Command:
    """Add the options for the requesting user, passed as `asker`."""

    @click.option("--as", "username", metavar="USER", help=f"the user who requests the objects  [default: {USER}]")
    @click.option("--as-group", "groups", metavar="GROUP", multiple=True, help="a group of this user; repeatable")
    @wraps(command)
    def run(*, username: str | None, groups: tuple[str, ...], **rest: Any) -> int:
        if groups and not username:
            raise click.UsageError("--as-group needs --as")
        return command(asker=Asker(username, groups), **rest)

    return run
