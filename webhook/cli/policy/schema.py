"""`podgate policy schema`: the JSON Schema of a policy."""

import json

import click

from webhook.core.document import schema


@click.command("schema")
def print_schema() -> None:
    """Print the JSON Schema of a policy, for editors.

    It describes the structure of a document; `podgate policy lint` also checks the rules between fields.
    """
    click.echo(json.dumps(schema(), indent=2))
