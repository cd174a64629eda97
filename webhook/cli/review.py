"""`podgate review`: what would happen to this Pod, offline, by the server's own evaluation. Nothing is charged."""

import asyncio
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from webhook.cli import reasons
from webhook.cli.forms import FORMS
from webhook.cli.judging import Judged, judge
from webhook.cli.manifests import subjects
from webhook.cli.namespaces import namespace_labels
from webhook.cli.policy_argument import load_policy
from webhook.core.document import Purpose
from webhook.errors import UserError
from webhook.wiring.offline import Offline

DENIED = 3
BAD_INPUT = 2


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _namespace(_context: click.Context, _option: click.Parameter, name: str) -> str:
    if _LABEL.fullmatch(name) is None:
        raise UserError(
            f"--namespace: {name!r}: not a DNS-1123 label",
            "give lower-case letters, digits and '-', at most 63, such as payments",
        )
    return name


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--policy", required=True, type=click.Path(path_type=Path), help="the policy document to judge by")
@click.option(
    "--namespaces",
    type=click.Path(path_type=Path),
    help="labels of Namespaces, for namespaceSelector: Namespace objects, or name: {label: value}",
)
@click.option(
    "-n", "--namespace", default="default", show_default=True, callback=_namespace, help="for objects that name none"
)
@click.option("-o", "--output", type=click.Choice(list(FORMS)), help="default: diff on a terminal, else json")
@click.option("--explain", is_flag=True, help="say stage by stage which rule did what, and why not")
def review(
    *,
    files: tuple[Path, ...],
    policy: Path,
    namespaces: Path | None,
    namespace: str,
    output: str | None,
    explain: bool,
) -> int:
    """Show what would become of the Pods in FILES: Pods, workloads, Lists, AdmissionReviews; `-` is standard input.

    Counters start empty and nothing is charged: a quota denies only what could never pass.
    Exit 0: all are allowed; 3: some are denied; 2: bad input. What is bad does not hide the rest.
    """
    offline = Offline(load_policy(policy, Purpose.REVIEW), namespace_labels(namespaces))
    form = output or ("diff" if sys.stdout.isatty() else "json")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    complaints = set[str]()
    is_denied = is_another = False
    for found in _judged(offline, files, namespace, with_notes=explain or form == "diff"):
        if isinstance(found, UserError):
            _complain(found, complaints)
            continue
        if form == "diff" and is_another:
            click.echo()
        click.echo(FORMS[form](found, width), nl=False)
        if explain:
            # Lines for programs stay lines.
            stages = reasons.stages(found.admission, found.notes, width)
            click.echo(stages, nl=False, err=form in {"json", "patch"})
        is_another = True
        is_denied |= not found.admission.validated.allowed
    return BAD_INPUT if complaints else DENIED if is_denied else 0


def _judged(
    offline: Offline, files: tuple[Path, ...], namespace: str, *, with_notes: bool
) -> Iterator[Judged | UserError]:
    for path in files:
        try:
            found = subjects(path, namespace)
        except UserError as error:
            found = [error]
        for subject in found:
            if isinstance(subject, UserError):
                yield subject
                continue
            try:
                yield asyncio.run(judge(offline, subject, with_notes=with_notes))
            except UserError as error:
                yield error


def _complain(error: UserError, known: set[str]) -> None:
    """Say each thing once, in the command line's usual form."""
    line = f"error: {error}" + (f": {error.remedy}" if error.remedy else "")
    if line not in known:
        known.add(line)
        click.echo(line, err=True)
