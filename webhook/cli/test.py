"""`podgate test`: the tests of policies."""

import asyncio
import re
import time
from pathlib import Path

import click

from webhook.app.offline import Offline
from webhook.cli.options.command_group import format_document, report_option
from webhook.commands.manifests import Subject
from webhook.commands.namespace_labels import read_namespace_labels
from webhook.commands.policy_argument import load_policy
from webhook.commands.review_object import Asker, Evaluator, ReviewedObject, judge
from webhook.core.document import Purpose
from webhook.core.policy.custom_workloads import list_template_paths
from webhook.errors import UserError
from webhook.policy_tests.case_files import ReadFiles
from webhook.policy_tests.case_objects import CaseObjects
from webhook.policy_tests.first_case import build_first_test
from webhook.policy_tests.results import (
    build_result_document,
    compute_exit_code,
    format_junit,
    format_result,
    format_summary,
)
from webhook.policy_tests.runner import CaseResult, CaseRunner
from webhook.replay.environment import enforce_live_limits

_PATH = click.Path(path_type=Path)
_AGAIN_SECONDS = 0.5
_EPILOG = """\b
A test:
  apiVersion: podgate.io/v1alpha1
  kind: PolicyTest
  policy: ../policy.yaml
  cases:
  - name: Pods of payments run on SSDs
    objects: [pod.yaml]
    expect: {decision: Admit, patched: {"spec.nodeSelector[disk-type]": ssd}}
  - name: one more than fifty in a minute
    sequence:
    - {at: 0s, object: pod.yaml, count: 50, expect: {decision: Admit}}
    - {at: 30s, object: pod.yaml, expect: {decision: Deny, codes: [QuotaExceeded]}}
"""


@click.command(epilog=_EPILOG)
@click.argument("paths", nargs=-1, type=_PATH)
@click.option("--run", "pattern", metavar="REGEX", default="", help="only cases whose name matches")
@click.option("--junit", "report", metavar="FILE", type=_PATH, help="also write the results as JUnit XML")
@click.option("-w", "--watch", is_flag=True, help="run again when a file changes")
@report_option()
@click.option("--init", "manifest", metavar="OBJECT.yaml", type=_PATH, help="write a first test of this object instead")
@click.option("--policy", type=_PATH, help="with --init: the policy document")
@click.option("--namespaces", type=_PATH, help="with --init: labels of Namespaces, as for podgate review")
def test(
    *,
    paths: tuple[Path, ...],
    pattern: str,
    report: Path | None,
    watch: bool,
    output: str,
    **init: Path | None,
) -> int:
    """Run the tests in PATHS: files, and those with `kind: PolicyTest` in folders and their subfolders.

    Each case starts with empty counters. With --init, PATH is the file to write; without one it is printed.
    Exit code: 0 all cases are as expected, 1 some are not, 2 bad input, such as an invalid test, policy or object.
    """
    if init["manifest"] is not None:
        return _write_first(init["manifest"], init["policy"], init["namespaces"], paths)
    if any(init.values()):
        raise click.UsageError("--policy and --namespaces are for --init: a test names its own policy")
    if not paths:
        raise click.UsageError("Missing argument 'PATHS...'")
    try:
        wanted = re.compile(pattern)
    except re.error as error:
        raise UserError(f"--run: {pattern!r}: {error}", "give a regular expression") from None
    code, read = _run(paths, wanted, report, output)
    while watch:
        while not read.has_changed():  # files are polled
            time.sleep(_AGAIN_SECONDS)
        click.echo(err=True)
        code, read = _run(paths, wanted, report, output)
    return code


def _run(paths: tuple[Path, ...], wanted: re.Pattern[str], report: Path | None, output: str) -> tuple[int, ReadFiles]:
    """Run all cases, and print each; return the exit code, and the files that were read."""
    read = ReadFiles()
    results: list[CaseResult] = []
    for result in CaseRunner(Offline, read).run(paths, lambda name: wanted.search(name) is not None):
        results.append(result)
        text = format_document(build_result_document(result), output, indent=None)
        separator = "---\n" if output == "yaml" else ""
        click.echo("\n".join(format_result(result)) if text is None else separator + text)
    if not results:
        raise UserError(f"--run: {wanted.pattern!r}: no case has such a name", "give another regular expression")
    if report is not None:
        _write(report, format_junit(results))
    click.echo(format_summary(results), err=True)
    return compute_exit_code(results), read


def _write(path: Path, text: bytes) -> None:
    try:
        path.write_bytes(text)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}", "give a file in a writable folder") from None


def _write_first(manifest: Path, policy: Path | None, namespaces: Path | None, to: tuple[Path, ...]) -> int:
    """Write the first test of an object, or print it."""
    if policy is None:
        raise click.UsageError("--init needs --policy")
    if len(to) > 1:
        raise click.UsageError("--init writes one file")
    if to and to[0].exists():
        raise UserError(f"{to[0]}: exists", "give the name of a new file")
    labels = read_namespace_labels(namespaces)
    objects, loaded = CaseObjects(Path(), ReadFiles()), load_policy(policy, Purpose.REVIEW)
    objects.templates = list_template_paths(loaded.policy)
    found, known = objects.read_all([str(manifest)], "default", labels)
    offline = Offline(loaded, known)
    judged = asyncio.run(_judge_subjects(offline, found))
    folder = to[0].parent if to else Path()
    text = build_first_test(judged, manifest, policy, folder, known if len(judged) > 1 else labels)
    if to:
        _write(to[0], text.encode())
        click.echo(f"wrote {to[0]}: run it with podgate test {to[0]}", err=True)
    else:
        click.echo(text, nl=False)
    return 0


async def _judge_subjects(offline: Offline, found: list[Subject]) -> list[ReviewedObject]:
    await enforce_live_limits(offline.find_policy(), offline.store)
    evaluator = Evaluator(offline.interceptor, offline.find_policy)
    return [await judge(evaluator, subject, Asker(), with_notes=False) for subject in found]
