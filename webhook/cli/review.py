"""`podgate review`: what would happen to this Pod, offline, by the server's own evaluation. Nothing is charged."""

import asyncio
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from webhook.cli import reasons
from webhook.cli.forms import FORMS
from webhook.cli.judging import Asker, Judged, judge
from webhook.cli.manifest_files import manifest_files
from webhook.cli.manifests import KNOWN_KINDS, Subject, subjects
from webhook.cli.namespaces import is_namespace, known_labels, namespace_labels
from webhook.cli.policy_argument import load_policy
from webhook.cli.review_options import PATH, Inputs, asking, reading
from webhook.cli.review_summary import ReviewSummary
from webhook.core.document import Purpose
from webhook.errors import UserError
from webhook.wiring.offline import Offline


@click.command()
@reading
@click.option("--policy", type=PATH, help="the policy document to judge by  [required]")
@click.option(
    "--namespaces",
    type=PATH,
    help="labels of Namespaces, for namespaceSelector: Namespace objects, or name: {label: value};"
    " those of Namespaces among FILES are known as well",
)
@asking
@click.option(
    "-o", "--output", "form", type=click.Choice(list(FORMS)), default="diff", show_default=True, help="in pipes too"
)
@click.option("--explain", is_flag=True, help="say stage by stage which rule did what, and why not")
def review(
    *, inputs: Inputs, policy: Path | None, namespaces: Path | None, asker: Asker, form: str, explain: bool
) -> int:
    """Show what would become of the Pods in FILES: Pods, workloads, Lists, AdmissionReviews.

    A folder stands for the .yaml, .yml and .json files in it, `-` for standard input.
    Counters start empty and nothing is charged: a quota denies only what could never pass.
    Exit 0: all are allowed; 3: some are denied; 2: bad input. What is bad does not hide the rest.
    """
    if policy is None:
        raise click.UsageError("Missing option '--policy'")
    _refuse_reading_twice((*inputs.paths, policy, namespaces))
    summary = ReviewSummary()
    loaded, told = load_policy(policy, Purpose.REVIEW), namespace_labels(namespaces)
    found = list(_found(inputs))
    if not found:
        raise UserError(f"{', '.join(map(str, inputs.paths))}: no object in it", f"give one of {KNOWN_KINDS}")
    offline = Offline(loaded, known_labels(told, found, summary.wrong))
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    is_another = False
    for judged in _judged(offline, found, asker, summary, with_notes=explain or form == "diff"):
        if form == "diff" and is_another:
            click.echo()
        click.echo(FORMS[form](judged, width), nl=False)
        if explain:
            # Lines for programs stay lines.
            stages = reasons.stages(judged.admission, judged.notes, width)
            click.echo(stages, nl=False, err=form in {"json", "patch"})
        is_another = True
    if str(summary):
        click.echo(str(summary), err=True)
    return summary.exit_code


def _refuse_reading_twice(paths: Sequence[Path | None]) -> None:
    if [str(path) for path in paths].count("-") > 1:
        raise UserError("-: standard input is named twice", "it can be read once: put the other in a file")


def _found(inputs: Inputs) -> Iterator[Subject | UserError]:
    """Yield the objects of all files; one that is wrong does not hide the others."""
    for path in manifest_files(inputs.paths, recursive=inputs.recursive):
        try:
            found = [path] if isinstance(path, UserError) else subjects(path, inputs.namespace)
        except UserError as error:
            found = [error]
        if not found and len(inputs.paths) > 1:
            click.echo(f"note: {path}: no object in it", err=True)
        yield from found


def _judged(
    offline: Offline, found: list[Subject | UserError], asker: Asker, summary: ReviewSummary, *, with_notes: bool
) -> Iterator[Judged]:
    """Yield what became of each object that makes Pods, and count the others."""
    for subject in found:
        if isinstance(subject, UserError):
            summary.wrong(subject)
        elif is_namespace(subject):
            continue
        elif subject.idle:
            summary.not_handled()
            click.echo(f"note: {subject.where}: {subject.name}: not handled by Podgate: {subject.idle}", err=True)
        else:
            try:
                judged = asyncio.run(judge(offline, subject, asker, with_notes=with_notes))
            except UserError as error:
                summary.wrong(error)
            else:
                summary.judged(judged.admission.validated)
                yield judged
