"""`podgate review`: what would happen to this Pod, offline, by the server's own evaluation. Nothing is charged."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import msgspec

from webhook.cli import manifests
from webhook.cli.apiserver import Admission, Ask, admit, in_words, patched
from webhook.cli.manifests import Subject
from webhook.cli.output import as_diff, as_yaml
from webhook.cli.policy_argument import load_policy
from webhook.core.decision import Decision, Half
from webhook.core.document import Purpose
from webhook.core.review import BadReviewError
from webhook.errors import UserError
from webhook.wiring.offline import Offline

DENIED = 3
_UID = "00000000-0000-4000-8000-000000000000"
_FORMS = ("diff", "yaml", "json", "patch")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--policy", required=True, type=click.Path(path_type=Path), help="the policy document to judge by")
@click.option(
    "--namespaces",
    type=click.Path(path_type=Path),
    help="labels of Namespaces, for namespaceSelector: Namespace objects, or name: {label: value}",
)
@click.option("-n", "--namespace", default="default", show_default=True, help="for objects that name none")
@click.option("-o", "--output", type=click.Choice(_FORMS), help="default: diff on a terminal, else json")
@click.option("--explain", is_flag=True, help="say stage by stage what was found")
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
    Exit 0: all are allowed; 3: some are denied; 2: bad input.
    """
    offline = Offline(load_policy(policy, Purpose.REVIEW), manifests.namespace_labels(namespaces))
    show = _SHOWN[output or ("diff" if sys.stdout.isatty() else "json")]
    denied = False
    for path in files:
        for subject in manifests.subjects(path, namespace):
            before, admission = asyncio.run(_judge(offline, subject, path))
            click.echo(show(subject, before, admission), nl=False)
            if explain:
                # Lines for programs stay what they are.
                click.echo(_explained(admission), nl=False, err=show in (_as_json, _as_patch))
            denied |= not admission.validated.allowed
    return DENIED if denied else 0


async def _judge(offline: Offline, subject: Subject, path: Path) -> tuple[dict[str, Any], Admission]:
    try:
        _want_labels(offline, subject.namespace)
        if subject.review is not None:
            return subject.pod, await _recorded(offline, subject.review)
        ask = Ask(subject.pod, subject.namespace, _UID, subject.user, dry_run=True)
        return subject.pod, await admit(offline.interceptor, ask)
    except BadReviewError as error:
        reason = in_words(error) if subject.review is None else str(error)
        raise UserError(
            f"{path}: {subject.name}: {reason}", "give the object as the API server would show it"
        ) from None


def _want_labels(offline: Offline, namespace: str) -> None:
    """Refuse to guess the labels of a Namespace that a service asks for."""
    if offline.misses_labels(namespace):
        raise UserError(
            f"the policy asks for the labels of Namespace {namespace!r}, which are not known here",
            "give them with --namespaces FILE (kubectl get namespaces -o yaml)",
        )


async def _recorded(offline: Offline, recorded: dict[str, Any]) -> Admission:
    """Judge an AdmissionReview as it was sent; the validating half sees what the mutating half made of it."""
    mutated = await offline.interceptor.review(Half.MUTATE, msgspec.json.encode(recorded))
    request = recorded["request"]
    given = request.get("object")
    after = patched(given, msgspec.json.decode(mutated.body)["response"]) if isinstance(given, dict) else given
    if request["operation"] == "CREATE" and isinstance(after, dict) and isinstance(after.get("metadata"), dict):
        after = {**after, "metadata": {"uid": _UID, **after["metadata"]}}
    again = {**recorded, "request": {**request, "object": after, "dryRun": True}}
    validated = await offline.interceptor.review(Half.VALIDATE, msgspec.json.encode(again))
    return Admission(mutated.decision, validated.decision, after if isinstance(after, dict) else {})


def _as_json(_subject: Subject, _before: dict[str, Any], admission: Admission) -> str:
    decision = admission.validated
    line = {
        "decision": decision.verdict,
        "allowed": decision.allowed,
        "status": _status(decision),
        "warnings": decision.warnings,
        "patch": admission.mutated.patch,
        "pod": _without_uid(admission.pod),
        "service": decision.service,
        "trace": [
            {"half": half.half, "stage": step.stage, "found": step.found}
            for half in (admission.mutated, decision)
            for step in half.steps
        ],
    }
    return msgspec.json.encode(line).decode() + "\n"


def _status(decision: Decision) -> dict[str, Any]:
    status = decision.status
    if decision.allowed:
        return {"code": status.code}
    return {"code": status.code, "reason": status.reason, "message": status.message}


def _as_patch(_subject: Subject, _before: dict[str, Any], admission: Admission) -> str:
    return msgspec.json.encode(admission.mutated.patch).decode() + "\n"


def _as_yaml(subject: Subject, _before: dict[str, Any], admission: Admission) -> str:
    return "---\n" + as_yaml(_without_uid(admission.pod)) + _comments(subject, admission.validated)


def _as_diff(subject: Subject, before: dict[str, Any], admission: Admission) -> str:
    after = _without_uid(admission.pod)
    namespace = after.get("metadata", {}).get("namespace")
    before = {**before, "metadata": {**before.get("metadata", {}), **({"namespace": namespace} if namespace else {})}}
    return as_diff(before, after, subject.name) + _comments(subject, admission.validated)


def _comments(subject: Subject, decision: Decision) -> str:
    """Return the verdict and its reasons, as comments so that the output stays what it is."""
    whose = f" (service {decision.service})" if decision.service else ""
    why = f" (by {decision.exemption})" if decision.exemption else ""
    lines = [f"# {subject.name}: {decision.verdict}{whose}{why}"]
    if not decision.allowed:
        lines.append(f"# {decision.status.code} {decision.status.reason}: {decision.status.message}")
    lines += [f"# warning: {warning}" for warning in decision.warnings]
    colour = "green" if decision.allowed else "red"
    return "".join(click.style(line, fg=colour) + "\n" for line in lines)


def _explained(admission: Admission) -> str:
    return "".join(
        f"#   {decision.half:8} {step.stage:8} {step.found}\n"
        for decision in (admission.mutated, admission.validated)
        for step in decision.steps
    )


def _without_uid(pod: dict[str, Any]) -> dict[str, Any]:
    """Leave out the uid and the generated name that only stand in for the API server's own."""
    metadata = {key: value for key, value in pod.get("metadata", {}).items() if (key, value) != ("uid", _UID)}
    if metadata.get("generateName"):
        metadata.pop("name", None)
    return {**pod, "metadata": metadata} if pod else pod


_Show = Callable[[Subject, dict[str, Any], Admission], str]
_SHOWN: dict[str, _Show] = dict(zip(_FORMS, (_as_diff, _as_yaml, _as_json, _as_patch), strict=True))
