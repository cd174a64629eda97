"""Review of one object by both halves, in the order of the API server, with explanations."""

from collections.abc import Callable, Iterator
from dataclasses import replace as replace_dataclass
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from webhook.commands import decode_errors
from webhook.commands.manifests import Subject
from webhook.commands.rewritten_manifest import rewrite_manifest
from webhook.commands.simulator import (
    USER,
    Admission,
    Ask,
    Reviewer,
    admit,
    apply_patch,
    build_admission_review,
    build_workload_review,
    prepare_for_mutate,
    record_creator,
    set_priority,
)
from webhook.core.admission.decision import Decision, Half, Verdict
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.admission_request import BadReviewError
from webhook.core.patch import NO_PATCH
from webhook.core.pods.object_checks import ObjectFault, check_pod, check_selector
from webhook.core.rule_notes import Note, explain
from webhook.core.workloads import find_slot_range
from webhook.errors import UserError
from webhook.interceptor import UnknownNamespaceError

UID = "00000000-0000-4000-8000-000000000000"
"""Placeholder for the uid that the API server would assign."""


class Asker(NamedTuple):
    """The user given by --as, who requests the objects; Pods of workloads are requested by their controllers."""

    username: str | None = None
    groups: tuple[str, ...] = ()

    def build_ask(self, subject: Subject) -> Ask:
        """Return the request that creates the Pod of an object."""
        is_own = self.username is not None and not subject.template_at
        user, groups = (self.username, self.groups) if is_own else (subject.user, ())
        return Ask(subject.pod, subject.namespace, UID, user or USER, dry_run=True, groups=groups)


class Evaluator(NamedTuple):
    """A policy or a server. `policy` returns the policy of a hash; None for a server, which does not show it."""

    interceptor: Reviewer
    policy: Callable[[str], CompiledPolicy] | None = None


class WorkloadSplit(NamedTuple):
    """How the Pods of a workload are divided when all of them exist, as text and by variant."""

    pods: int
    text: str
    by_variant: dict[str, int]


class ReviewedObject(NamedTuple):
    """The result of a review. `before`: the Pod as the mutating half received it."""

    subject: Subject
    before: dict[str, Any]
    admission: Admission
    notes: tuple[Note, ...]
    committed: dict[str, Any]
    """The rewritten object of the file; for an AdmissionReview the Pod."""
    split: WorkloadSplit | None = None


async def judge(evaluator: Evaluator, subject: Subject, asker: Asker, *, with_notes: bool) -> ReviewedObject:
    """Review an object by both halves. UserError: the object is invalid, or labels of its Namespace are missing.

    `with_notes`: explain each entry of the policy, which takes longer.
    """
    try:
        if subject.review is not None:
            before, admission = subject.pod, await _review_recorded(evaluator, subject.review)
            rewritten = admission.pod
        else:
            ask = asker.build_ask(subject)
            before, admission = prepare_for_mutate(ask), await admit(evaluator.interceptor, ask)
            undecided = await _find_undecided(evaluator, subject)
            if undecided is not None:
                admission = Admission(replace(undecided, half=Half.MUTATE, steps=()), undecided, before)
            rewritten = await _rewrite_document(evaluator, subject, asker, admission.mutated)
    except BadReviewError as error:
        wrong = _explain_error(str(error), subject)
        raise UserError(f"{subject.where}: {subject.name}: {wrong.text}", wrong.remedy) from None
    except UnknownNamespaceError:
        raise UserError(
            f"the policy needs the labels of Namespace {subject.namespace!r}, which are not known here",
            "give them with --namespaces FILE (kubectl get namespaces -o yaml), in a test as namespaceLabels",
        ) from None
    notes = _build_notes(evaluator, before, admission.mutated) if with_notes else ()
    return ReviewedObject(
        subject, before, admission, notes, rewritten, _find_split(evaluator, subject, admission.mutated)
    )


def find_rejection(judged: ReviewedObject) -> UserError | None:
    """Return why the API server would reject the object or its rewritten Pod; None if no reason is known."""
    subject = judged.subject
    if subject.review is not None:
        return None
    faults = list(_find_object_faults(subject))
    whose = f"{subject.where}: {subject.name}"
    if not faults:  # the API server checks the Pod between the two halves
        faults = list(check_pod(judged.admission.pod.get("spec")))
        whose += " as rewritten" if subject.template_at or not any(check_pod(subject.pod.get("spec"))) else ""
    if not faults:
        return None
    return UserError(
        f"{whose}: {'; '.join(map(str, faults))}", "; ".join(dict.fromkeys(fault.remedy for fault in faults))
    )


def _find_object_faults(subject: Subject) -> Iterator[ObjectFault]:
    """Yield the faults of the object as it is written."""
    if not subject.template_at:
        return
    template: Any = subject.document
    for step in subject.template_at:
        template = template[step]
    yield from check_pod(template.get("spec"), f"{'.'.join(map(str, subject.template_at))}.spec")
    if subject.source is not None and subject.source.group == "apps":
        yield from check_selector(subject.document["spec"].get("selector"), template)


async def _rewrite_document(evaluator: Evaluator, subject: Subject, asker: Asker, mutated: Decision) -> dict[str, Any]:
    """Return the rewritten object of the file, without what its controller adds to a Pod.

    A template gets what all variants have in common: the nodes of one of them would hold for all of its Pods.
    """
    holder: Any = subject.document
    for step in subject.template_at:
        holder = holder[step]
    is_divided = bool(subject.template_at) and mutated.inputs.slot is not None
    if mutated.patch and (holder["spec"] != subject.pod["spec"] or is_divided):
        ask = asker.build_ask(replace(subject, pod={**subject.pod, "spec": holder["spec"]}))
        ask = replace_dataclass(ask, user=USER) if is_divided else ask
        review = build_admission_review(ask, prepare_for_mutate(ask), Half.MUTATE)
        again = (await evaluator.interceptor.review(Half.MUTATE, msgspec.json.encode(review))).decision
        # The service may only own Pods of controllers: then the manifest stays as it is.
        mutated = again if again.service == mutated.service else replace(mutated, patch=NO_PATCH)
    is_ours = mutated.service is not None or mutated.patch
    return rewrite_manifest(subject.written, subject.template_at, mutated.patch) if is_ours else dict(subject.written)


async def _find_undecided(evaluator: Evaluator, subject: Subject) -> Decision | None:
    """Return the decision about the workload if its Pods may get different decisions, else None."""
    if subject.workload is None or subject.source is None:
        return None
    body = msgspec.json.encode(build_workload_review(subject.workload, subject.source, subject.namespace))
    decision = (await evaluator.interceptor.review(Half.VALIDATE, body)).decision
    return decision if decision.verdict is Verdict.DEPENDS else None


async def _review_recorded(evaluator: Evaluator, recorded: dict[str, Any]) -> Admission:
    """Review an AdmissionReview as recorded; the validating half receives the rewritten object."""
    asked = recorded.get("request")
    dry = {**recorded, "request": {**asked, "dryRun": True}} if isinstance(asked, dict) else recorded
    mutated = await evaluator.interceptor.review(Half.MUTATE, msgspec.json.encode(dry))
    request = recorded["request"]
    given = request.get("object")
    after = apply_patch(given, msgspec.json.decode(mutated.body)["response"]) if isinstance(given, dict) else given
    if request["operation"] == "CREATE" and isinstance(after, dict) and isinstance(after.get("metadata"), dict):
        metadata = after["metadata"]
        after = {**after, "metadata": {**metadata, "uid": metadata.get("uid", UID)}}
    stored = after
    if isinstance(after, dict) and isinstance(after.get("metadata"), dict) and isinstance(given, dict):
        stored = record_creator(set_priority(after), given)
    again = {**recorded, "request": {**request, "object": stored, "dryRun": True}}
    validated = await evaluator.interceptor.review(Half.VALIDATE, msgspec.json.encode(again))
    is_pod = isinstance(after, dict) and request["resource"].get("resource") == "pods"
    return Admission(mutated.decision, validated.decision, after if is_pod else {})


def _find_split(evaluator: Evaluator, subject: Subject, mutated: Decision) -> WorkloadSplit | None:
    """Return the split of a workload's Pods; None if they are not divided, or the policy is not shown."""
    if evaluator.policy is None or subject.source is None or subject.workload is None or mutated.service is None:
        return None
    shares = evaluator.policy(mutated.policy_hash).shares.get(mutated.service)
    found = None if shares is None else find_slot_range(subject.source, subject.workload)
    if shares is None or found is None:
        return None
    split = shares.split
    return WorkloadSplit(found.pods, split.describe(*found), split.count_by_variant(*found))


def _explain_error(error: str, subject: Subject) -> decode_errors.DecodeError:
    if subject.review is not None:
        return decode_errors.explain_review_error(error, subject.review)
    at = "".join(f"{step}." for step in subject.template_at)
    return decode_errors.explain_pod_error(error, subject.pod, {name: at + name for name in ("metadata", "spec")})


def _build_notes(evaluator: Evaluator, before: dict[str, Any], mutated: Decision) -> tuple[Note, ...]:
    """Return a note for each entry of the policy, if it was evaluated at all."""
    is_new = mutated.call.operation == "CREATE" and not mutated.call.sub_resource and not mutated.workload
    if mutated.service is None or not is_new or evaluator.policy is None:
        return ()
    compiled = evaluator.policy(mutated.policy_hash)
    # As in the mutating call: a recorded review may be a validating one, with a uid.
    metadata = {key: value for key, value in (before.get("metadata") or {}).items() if key != "uid"}
    service, slot = compiled.services[mutated.service], mutated.inputs.slot
    variant = "" if slot is None else slot.variant
    return explain({**before, "metadata": metadata}, service, compiled.hash, mutated.inputs.namespace_values, variant)
