"""`podgate policy render` and `schema`: a policy with defaults and the source of each value, and the JSON Schema."""

import json
import sys
from typing import Any

import click

from webhook.commands.policy_argument import read_document
from webhook.core.document import DocumentError, render, schema
from webhook.core.document.rendering import format_yaml_lines, list_sources, strip_sources
from webhook.core.document.yaml.problems import suggest
from webhook.core.plain_text import escape_json, escape_line


@click.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of a policy, for editors.

    It describes the structure of a document; `podgate policy lint` also checks the rules between fields.
    """
    click.echo(json.dumps(schema(), indent=2))


NO_SUCH_SERVICE = 4


@click.command("render")
@click.argument("service", required=False)
@click.option(
    "--policy", "path", metavar="PATH", required=True, envvar="PODGATE_POLICY", help='The document ("-": stdin).'
)
@click.option("-o", "--output", type=click.Choice(["yaml", "json"]), default="yaml", show_default=True)
def print_policy(service: str | None, path: str, output: str) -> None:
    """Print a policy, or one SERVICE of it, with `defaults` applied, each value with its source.

    Exit code: 0 success, 1 the document has mistakes, 2 unreadable, 4 no such service.
    """
    raw = read_document(path)
    try:
        rendered = render(raw, service)
        names = [] if rendered else _list_service_names(raw)
    except DocumentError as error:
        for problem in error.problems:
            click.echo(escape_line(f"error: {path}:{problem}"), err=True)
        sys.exit(1)
    if rendered is None:
        remedy = suggest(service or "", names, "the services are")
        click.echo(escape_line(f"error: {path} has no service {service}: {remedy}"), err=True)
        sys.exit(NO_SUCH_SERVICE)
    if output == "json":
        origins = {at: {"origin": source.origin, "line": source.line} for at, source in list_sources(rendered)}
        click.echo(escape_json(json.dumps({"policy": strip_sources(rendered), "sources": origins}, ensure_ascii=False)))
        return
    for line in format_yaml_lines(rendered):
        click.echo(escape_json(line))


def _list_service_names(raw: bytes) -> list[str]:
    whole: Any = render(raw)
    return [service["name"] for service in strip_sources(whole)["services"]]
