"""`podgate review`: what would happen to the Pods of manifests, evaluated here or by a server."""

import asyncio
import shutil
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
from msgspec.structs import replace

from webhook.app.offline import Offline
from webhook.cli.options.review_options import Inputs, JudgeBy, evaluator_options, input_options, user_options
from webhook.commands.manifest_files import list_manifest_files
from webhook.commands.manifests import KNOWN_KINDS, Subject, read_subjects
from webhook.commands.namespace_labels import is_namespace, merge_labels, read_namespace_labels
from webhook.commands.pages import explain_view
from webhook.commands.pages.review_output import FORMS
from webhook.commands.pages.review_summary import ReviewSummary
from webhook.commands.policy_argument import load_policy
from webhook.commands.review_object import Asker, Evaluator, ReviewedObject, find_rejection, judge
from webhook.commands.simulator import ReviewServerError
from webhook.core.document import Purpose
from webhook.core.policy.custom_workloads import list_template_paths
from webhook.core.workloads.custom_kinds import KNOWN_TEMPLATES, TemplatePaths
from webhook.errors import UserError
from webhook.replay.environment import enforce_live_limits

_STRICT_REMEDY = (
    "say where it has Pod templates: --templates GROUP/KIND=PATH, GROUP/KIND= for none, or workloads of the policy"
)


@click.command()
@input_options
@evaluator_options
@user_options
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(list(FORMS)),
    default="diff",
    show_default=True,
    help="form of the output",
)
@click.option("--explain", is_flag=True, help="explain for each stage what each rule did, or why it did nothing")
def review(*, inputs: Inputs, judge_by: JudgeBy, asker: Asker, form: str, explain: bool) -> int:
    """Show what would happen to the Pods in FILES: Pods, workloads (some custom kinds, too), Lists, AdmissionReviews.

    A folder means the .yaml, .yml and .json files in it, and `-` standard input.
    With --policy, counters are empty: a quota denies only a Pod that alone exceeds it.
    With --server, a running server evaluates with its current counters. Nothing is charged in either case.
    Exit code: 0 all are allowed, 3 some are denied, 2 bad input. The other objects are reviewed even if one is invalid.
    """
    _refuse_reading_twice((*inputs.paths, judge_by.policy, judge_by.namespaces))
    return asyncio.run(_review_objects(inputs, judge_by, asker, form, explain=explain))


async def _review_objects(inputs: Inputs, judge_by: JudgeBy, asker: Asker, form: str, *, explain: bool) -> int:
    summary = ReviewSummary()
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    is_another = False
    async with _open_evaluator(inputs, judge_by, summary) as (found, evaluator):
        async for judged in _judge_objects(
            evaluator, found, asker, summary, with_notes=explain or form == "diff", is_strict=inputs.is_strict
        ):
            if form == "diff" and is_another:
                click.echo()
            click.echo(FORMS[form](judged, width), nl=False)
            if explain:
                # Machine-readable lines stay on stdout alone.
                stages = explain_view.format_stages(judged.admission, judged.notes, width)
                click.echo(stages, nl=False, err=form in {"json", "patch"})
            is_another = True
    if str(summary):
        click.echo(str(summary), err=True)
    return summary.exit_code


@asynccontextmanager
async def _open_evaluator(
    inputs: Inputs, judge_by: JudgeBy, summary: ReviewSummary
) -> AsyncIterator[tuple[list[Subject | UserError], Evaluator]]:
    """Yield the objects, and the evaluator: a policy or a server."""
    if judge_by.server is not None:
        from webhook.commands.clients.remote_server import open_remote  # noqa: PLC0415  not needed with a policy

        async with open_remote(judge_by.server) as interceptor:
            yield _read_objects(inputs, KNOWN_TEMPLATES), Evaluator(interceptor)
        return
    if judge_by.policy is None:
        raise LookupError("neither a policy nor a server")
    loaded, labels = load_policy(judge_by.policy, Purpose.REVIEW), read_namespace_labels(judge_by.namespaces)
    found = _read_objects(inputs, list_template_paths(loaded.policy))
    offline = Offline(loaded, merge_labels(labels, found, summary.report_error))
    offline.clock.set(time.time_ns() // 1000)  # schedules are those of now
    await enforce_live_limits(offline.find_policy(), offline.store)
    yield found, Evaluator(offline.interceptor, offline.find_policy)


def _refuse_reading_twice(paths: Sequence[Path | None]) -> None:
    if [str(path) for path in paths].count("-") > 1:
        raise UserError("-: standard input is named twice", "it can only be read once: put the other in a file")


def _read_objects(inputs: Inputs, templates: TemplatePaths) -> list[Subject | UserError]:
    found = list(_read_files(inputs, {**templates, **inputs.templates}))
    if not found:
        raise UserError(f"{', '.join(map(str, inputs.paths))}: no object in it", f"give one of {KNOWN_KINDS}")
    return found


def _read_files(inputs: Inputs, templates: TemplatePaths) -> Iterator[Subject | UserError]:
    """Yield the objects of all files; an invalid one does not hide the others."""
    for path in list_manifest_files(inputs.paths, recursive=inputs.recursive):
        try:
            found = [path] if isinstance(path, UserError) else read_subjects(path, inputs.namespace, templates)
        except UserError as error:
            found = [error]
        if not found and len(inputs.paths) > 1:
            click.echo(f"note: {path}: no object in it", err=True)
        yield from found


async def _judge_objects(
    evaluator: Evaluator,
    found: list[Subject | UserError],
    asker: Asker,
    summary: ReviewSummary,
    *,
    with_notes: bool,
    is_strict: bool,
) -> AsyncIterator[ReviewedObject]:
    """Yield the review of each object that makes Pods, and count the others.

    Each template of an object is reviewed in the object that the reviews of its other templates have rewritten.
    """
    rewritten: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {})
    for subject in found:
        if isinstance(subject, UserError):
            summary.report_error(subject)
        elif is_namespace(subject):
            summary.count_namespace()
        elif is_strict and subject.is_unknown:
            summary.report_error(UserError(f"{subject.where}: {subject.name}: {subject.idle}", _STRICT_REMEDY))
        elif subject.idle:
            summary.count_not_handled()
            click.echo(f"note: {subject.where}: {subject.name}: not handled by Podgate: {subject.idle}", err=True)
        else:
            before, after = rewritten
            try:
                whole = replace(subject, written=after) if subject.written is before else subject
                judged = await judge(evaluator, whole, asker, with_notes=with_notes)
                wrong = find_rejection(judged)
            except ReviewServerError:
                raise
            except UserError as error:
                wrong = error
            if wrong is not None:
                summary.report_error(wrong)
            else:
                rewritten = subject.written, judged.committed
                summary.count_decision(judged.admission.validated)
                yield judged
