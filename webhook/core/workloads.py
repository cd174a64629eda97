"""What the Pods of a workload object will be told, said where somebody reads it: as warnings, never as a refusal."""

from msgspec.structs import replace

from webhook.core import draft as drafts
from webhook.core import matching, mutation, stages, validation
from webhook.core.decision import Decision, Finding, Half, Verdict
from webhook.core.draft import Draft
from webhook.core.findings import Code
from webhook.core.placement import SERVICE_LABEL
from webhook.core.pod import Metadata, Pod, Spec
from webhook.core.policy import Policy, Service
from webhook.core.review import BadReviewError, Request
from webhook.core.stanzas import Mode
from webhook.core.templates import SOURCES, Source

_LABEL = f"metadata.labels[{SERVICE_LABEL}]"


def asked(policy: Policy) -> tuple[Source, ...]:
    """Return the kinds that are worth asking about: those whose controller's Pods are not all left alone."""
    nobody = Pod(Metadata(), Spec())
    return tuple(
        source
        for source in SOURCES
        if not matching.exemption(
            Request("", "CREATE", "pods", "", "", source.controller, dry_run=False, pod=nobody, old_pod=None),
            nobody,
            policy,
        )
    )


def leave_alone(draft: Draft) -> None:
    """Settle what is no business of ours; a template is never rewritten, its Pods are."""
    if draft.half is Half.MUTATE:
        return draft.settle(Verdict.UNMATCHED, "own", "templates are not rewritten, their Pods are")
    return stages.leave_alone(draft)


def check(draft: Draft) -> None:
    """Judge the Pod that the template would have become: what is left after our own rewriting is the user's doing."""
    service, pod = draft.owner, draft.pod
    try:
        rewritten = mutation.patched(pod, mutation.rewrite(pod, service, draft.compiled.hash))
        findings = (*_forged_label(pod, service), *stages.check_new(draft, rewritten, hash_known=True))
    except ValueError as error:
        raise BadReviewError(f"AdmissionReview.request.object: the template's resources: {error}") from None
    draft.object_to("check", findings)
    if not findings:
        draft.note("check", "nothing in the template contradicts the policy")


def _forged_label(pod: Pod, service: Service) -> tuple[Finding, ...]:
    carried = pod.labels.get(SERVICE_LABEL, service.name)
    if carried == service.name or service.modes.all_disabled():
        return ()
    message = f"service {service.name}: {_LABEL} is {carried!r}: leave the label out, Podgate writes {service.name!r}"
    return (Finding(Code.IMMUTABLE, "placement", validation.own_mode(service), message, _LABEL),)


def conclude(draft: Draft, client_id: str) -> Decision:
    """Return the finished record: whatever was found, the object is admitted."""
    workload = draft.request.workload
    if workload is None:
        raise LookupError("this review is about a Pod")
    told = (finding for finding in draft.findings if finding.mode in {Mode.ENFORCE, Mode.WARN})
    draft.findings = [_advice(finding, workload.name) for finding in told]
    if draft.verdict is Verdict.DENY:
        draft.verdict = Verdict.UNMATCHED if draft.service is None else Verdict.ADMIT
    return replace(
        drafts.conclude(draft, client_id),
        workload=workload.name,
        operation=workload.operation,
        user=workload.user,
        pod="",
    )


def _advice(finding: Finding, workload: str) -> Finding:
    """Word a finding for whoever reads it before there is a Pod, perhaps among those about many objects."""
    # Our label is written over, or taken off, before the Pod is judged.
    denied = finding.mode is Mode.ENFORCE and finding.code is not Code.IMMUTABLE
    where = f"Pods of {workload} will be denied" if denied else f"in Pods of {workload}"
    return replace(finding, mode=Mode.WARN, message=f"{where}: {finding.message}")
