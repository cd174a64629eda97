"""`podgate policy`: check policy documents, print their schema, and render them with defaults."""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from webhook.core.document import DocumentError, Problem, Purpose, load, render, schema
from webhook.core.document.rendering import plain, sources, yaml_lines
from webhook.core.document.yaml.problems import suggestion
from webhook.support.input_files import content

NO_SUCH_SERVICE = 4


@click.group()
def policy() -> None:
    """Check and render policy documents."""


@policy.command()
@click.argument("path", metavar="P")
@click.option("-o", "output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def lint(path: str, output: str) -> None:
    """Print all mistakes in policy P ("-": standard input).

    One line a problem, `P:line:column: path: value: reason: remedy`, on standard output; warnings go to standard error.
    Exit code: 0 valid, 1 mistakes, 2 unreadable.
    """
    raw = read_document(path)
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    try:
        warnings = load(raw, Purpose.LINT).warnings
    except DocumentError as error:
        problems = error.problems
    if output == "json":
        found = {"errors": [asdict(problem) for problem in problems], "warnings": [asdict(w) for w in warnings]}
        click.echo(json.dumps(found, ensure_ascii=False))
    else:
        for problem in problems:
            click.echo(f"{path}:{problem}")
        for warning in warnings:
            click.echo(f"warning: {path}:{warning}", err=True)
        click.echo(_summary(path, len(problems), len(warnings)), err=True)
    sys.exit(1 if problems else 0)


def _summary(path: str, errors: int, warnings: int) -> str:
    if errors:
        return f"error: {path} has {_counted(errors, 'error')}"
    return f"{path} is valid" + (f", with {_counted(warnings, 'warning')}" if warnings else "")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@policy.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of a policy, for editors.

    It describes the structure of a document; `podgate policy lint` also checks the rules between fields.
    """
    click.echo(json.dumps(schema(), indent=2))


@policy.command("render")
@click.argument("service", required=False)
@click.option(
    "--policy", "path", metavar="PATH", required=True, envvar="PODGATE_POLICY", help='The document ("-": stdin).'
)
@click.option("-o", "output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def print_rendered(service: str | None, path: str, output: str) -> None:
    """Print a policy, or one SERVICE of it, with `defaults` applied, each value with its source.

    Exit code: 0, 1 the document has mistakes, 2 unreadable, 4 no such service.
    """
    raw = read_document(path)
    try:
        rendered = render(raw, service)
        names = [] if rendered else _service_names(raw)
    except DocumentError as error:
        for problem in error.problems:
            click.echo(f"error: {path}:{problem}", err=True)
        sys.exit(1)
    if rendered is None:
        remedy = suggestion(service or "", names, "the services are")
        click.echo(f"error: {path} has no service {service}: {remedy}", err=True)
        sys.exit(NO_SUCH_SERVICE)
    if output == "json":
        origins = {at: {"origin": source.origin, "line": source.line} for at, source in sources(rendered)}
        click.echo(json.dumps({"policy": plain(rendered), "sources": origins}, ensure_ascii=False))
        return
    for line in yaml_lines(rendered):
        click.echo(line)


def _service_names(raw: bytes) -> list[str]:
    whole: Any = render(raw)
    return [service["name"] for service in plain(whole)["services"]]


def read_document(path: str) -> bytes:
    """Read a document; UserError if it cannot be read."""
    return content(Path(path), "give the path of a policy document, or - for standard input")


from webhook.cli import webhooks  # noqa: E402, F401  a command of this group, which imports the above
