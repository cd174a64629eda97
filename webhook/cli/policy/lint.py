"""`podgate policy lint`: every mistake in a policy."""

import sys
from dataclasses import asdict
from pathlib import Path

import click

from webhook.cli.options.command_group import format_document, report_option
from webhook.commands.policy_argument import read_document
from webhook.core.document import DocumentError, Problem, Purpose, load
from webhook.core.document.assembly import assemble
from webhook.core.document.yaml.problems import DOCUMENT
from webhook.core.plain_text import escape_line
from webhook.errors import SignatureError, UserError
from webhook.policy_in_force.policy_signatures import PolicySignatures
from webhook.support.input_files import read_content
from webhook.support.process_memory import pause_collection


@click.command()
@click.argument("path", metavar="FILE")
@click.option(
    "--policy-keys",
    "keys",
    type=click.Path(path_type=Path),
    help="Public keys of the servers' --policy-keys: FILE.sig must be a signature of FILE by one of them.",
)
@click.option(
    "--part", "parts", metavar="NAME=FILE", multiple=True, help="A part that the policy declares; may be repeated."
)
@report_option()
def lint(path: str, keys: Path | None, parts: tuple[str, ...], output: str) -> None:
    """Print all mistakes in the policy FILE ("-": standard input), and in its parts.

    One line per mistake, `FILE:line:column: path: value: reason: remedy`, on standard output; warnings on standard
    error.
    Exit code: 0 valid, 1 mistakes, 2 unreadable.
    """
    raw = read_document(path)
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()
    files = dict(map(_parse_part, parts))
    texts = {name: read_document(file) for name, file in files.items()}
    with pause_collection():  # documents have no cycles
        assembled = assemble(raw, texts, Purpose.LINT)
        try:
            warnings = load(assembled.document, Purpose.LINT).warnings
        except DocumentError as error:
            problems = error.problems
    of_parts = [(files[name], problem) for name, found in assembled.problems.items() for problem in found]
    if keys is not None:
        problems += _check_signature(path, raw, PolicySignatures(keys))
    errors = [*((path, problem) for problem in problems), *of_parts]
    found = {
        "errors": [asdict(problem) | ({"file": file} if file != path else {}) for file, problem in errors],
        "warnings": [asdict(w) for w in warnings],
    }
    text = format_document(found, output, indent=None)
    if text is not None:
        click.echo(text)
    else:
        for file, problem in errors:
            click.echo(escape_line(f"{file}:{problem}"))
        for warning in warnings:
            click.echo(escape_line(f"warning: {path}:{warning}"), err=True)
        click.echo(_format_summary(path, len(errors), len(warnings)), err=True)
    sys.exit(1 if errors else 0)


def _parse_part(text: str) -> tuple[str, str]:
    name, separator, file = text.partition("=")
    if not (name and separator and file):
        raise UserError(f"--part {text}: neither a name nor a file", "write NAME=FILE, such as team-a=team-a.yaml")
    return name, file


def _check_signature(path: str, raw: bytes, signatures: PolicySignatures) -> tuple[Problem, ...]:
    place = Path(f"{path}.sig")
    if path == "-":
        raise UserError(
            "--policy-keys: standard input has no signature beside it", "give FILE, with FILE.sig beside it"
        )
    signature = read_content(place).decode(errors="replace") if place.exists() else None
    try:
        signatures.verify(raw, signature, str(place))
    except SignatureError as error:
        return (Problem(1, 1, DOCUMENT, "{...}", error.message, error.remedy),)
    return ()


def _format_summary(path: str, errors: int, warnings: int) -> str:
    if errors:
        return f"error: {path} has {_format_count(errors, 'error')}"
    return f"{path} is valid" + (f", with {_format_count(warnings, 'warning')}" if warnings else "")


def _format_count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
