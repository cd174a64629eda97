"""Objects of kinds that are not Kubernetes' own: each Pod template is reviewed as that of a workload, and warned of."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from webhook.core.admission import workloads
from webhook.core.admission.decision import Decision, Half, StageNote, Verdict, WouldWrite
from webhook.core.admission.evaluation import NO_POD, Evaluation, conclude
from webhook.core.admission.review import CustomMaker, Request, WorkloadRequest
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.kubernetes.oversized_pod import reduce_template
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_identity import bound_identity
from webhook.core.kubernetes.pod_size import (
    CONTAINERS_MAX,
    ENTRIES_MAX,
    OversizedPod,
    TemplateSize,
    measure_template,
)
from webhook.core.policy.custom_workloads import find_template_paths
from webhook.core.policy_fields import Mode
from webhook.core.workloads.custom_kinds import build_pod, find_templates, find_wrong_part

TEMPLATES_MAX = 16
"""How many templates of one object are reviewed: a list in it may have thousands of entries.

Together they are no larger than the largest Pod: their reviews take as long as one of a Pod.
"""
_PLACES_MAX = 2
_PLACE_LENGTH_MAX = 200
"""Of the path of a template in texts: a key of a mapping may be of any length."""
_BY_IMPORTANCE = (Verdict.DEPENDS, Verdict.ADMIT, Verdict.UNMATCHED, Verdict.EXEMPT)

PolicyChooser = Callable[[Half, Request], tuple[CompiledPolicy | None, bool] | None]
_Told = TypeVar("_Told", bound=Hashable)


class ReadTemplate(NamedTuple):
    """One Pod template: its path in the object, and the request for its first Pod."""

    place: str
    request: Request


class ReviewedTemplate(NamedTuple):
    """One Pod template: its path in the object, and the evaluation of its first Pod."""

    place: str
    evaluation: Evaluation


def exempt(evaluation: Evaluation) -> None:
    """Decide requests that no policy applies to: of the mutating half, and about kinds without Pod templates."""
    request, (workload, _) = evaluation.request, _require_maker(evaluation)
    if not _find_paths(evaluation):
        text = f"{workload.operation} of {request.resource} is not handled by Podgate"
        return evaluation.decide(Verdict.UNMATCHED, "own", text)
    if evaluation.half is Half.MUTATE:
        return workloads.exempt(evaluation)
    return None


def _require_maker(evaluation: Evaluation) -> tuple[WorkloadRequest, CustomMaker]:
    workload = evaluation.request.workload
    if workload is None or workload.maker is None:
        raise LookupError("this review is not about an object of a custom kind")
    return workload, workload.maker


def _find_paths(evaluation: Evaluation) -> Sequence[str]:
    _, maker = _require_maker(evaluation)
    return find_template_paths(evaluation.compiled.policy, maker.group, maker.kind)


def read_templates(evaluation: Evaluation) -> tuple[ReadTemplate, ...]:
    """Return the Pod templates of the object, and note those that cannot be reviewed."""
    return tuple(_read_templates(evaluation))


def _read_templates(evaluation: Evaluation) -> Iterator[ReadTemplate]:
    request, (workload, maker) = evaluation.request, _require_maker(evaluation)
    paths, total = _find_paths(evaluation), _Total()
    for number, (at, template) in enumerate(islice(find_templates(maker.document, paths), TEMPLATES_MAX + 1)):
        place = ".".join(map(str, at))[:_PLACE_LENGTH_MAX]
        if number == TEMPLATES_MAX:
            evaluation.note("templates", f"only the first {TEMPLATES_MAX} templates are reviewed")
        elif (wrong := find_wrong_part(template)) is not None:
            evaluation.note("templates", f"{f'{place}.{wrong}' if wrong else place} is not a mapping")
        else:
            size = measure_template(template) if evaluation.is_large else None
            if size is not None and not total.add(size):
                evaluation.note("templates", f"{place}: the templates together are too large to be reviewed")
                continue
            excess = None if size is None else size.excess
            try:
                yield ReadTemplate(place, _build_request(request, workload, maker, at, template, excess))
            except msgspec.ValidationError as error:
                evaluation.note("templates", f"{place}: {error}")


class _Total:
    """The parts of the templates that are evaluated."""

    def __init__(self) -> None:
        self._containers = self._entries = 0

    def add(self, size: TemplateSize) -> bool:
        """Return whether a template may be evaluated besides the others. One that is oversized itself is not."""
        if size.excess is not None:
            return True
        self._containers += size.containers
        self._entries += size.entries
        return self._containers <= CONTAINERS_MAX and self._entries <= ENTRIES_MAX


def begin_reviews(
    evaluation: Evaluation, templates: Iterable[ReadTemplate], choose: PolicyChooser
) -> tuple[ReviewedTemplate, ...]:
    """Return each template of the object with a new evaluation.

    `choose` chooses the policy for the request that the object's controller would send.
    """
    reviewed = []
    for place, asked in templates:
        chosen, _ = choose(evaluation.half, asked) or (None, True)
        part = Evaluation(evaluation.half, asked, chosen or evaluation.compiled, asked.pod or NO_POD)
        part.is_large = evaluation.is_large
        reviewed.append(ReviewedTemplate(place, part))
    return tuple(reviewed)


def _build_request(
    request: Request,
    workload: WorkloadRequest,
    maker: CustomMaker,
    at: tuple[str | int, ...],
    template: Any,
    excess: OversizedPod | None,
) -> Request:
    if excess is not None:
        template = reduce_template(template)
    made = build_pod(maker.group, maker.document, request.namespace, at, template)
    return replace(
        request,
        resource="pods",
        user=made.user,
        pod=bound_identity(Pod.from_document(made.document)),
        workload=replace(
            workload,
            unresolved=made.unresolved,
            kind=made.kind,
            document=made.document,
            spec=made.spec,
        ),
        excess=excess,
    )


def join(evaluation: Evaluation, reviewed: Sequence[ReviewedTemplate]) -> None:
    """Give the evaluation of an object what was found in its templates, each finding once."""
    if not reviewed:
        return evaluation.decide(Verdict.UNMATCHED, "templates", "no template can be reviewed")
    for _, part in reviewed:
        workloads.advise(part)
    parts = [part for _, part in reviewed]
    verdict = next(verdict for verdict in _BY_IMPORTANCE if any(_get_verdict(part) is verdict for part in parts))
    chosen = next(part for part in parts if _get_verdict(part) is verdict)
    evaluation.service, evaluation.depends_on = chosen.service, chosen.depends_on
    evaluation.deviation = chosen.deviation
    evaluation.would_write = _merge_written(part for part in parts if part.service is chosen.service)
    evaluation.findings = tuple(
        finding if not where else replace(finding, message=f"{finding.message}{where}")
        for finding, where in _merge(reviewed, [part.findings for part in parts])
    )
    evaluation.overwritten = tuple(
        f"{text}{where}" for text, where in _merge(reviewed, [part.overwritten for part in parts])
    )
    for place, part in reviewed:
        evaluation.steps += tuple(StageNote(step.stage, f"{place}: {step.found}") for step in part.steps)
    evaluation.verdict = verdict
    return None


def _merge_written(parts: Iterable[Evaluation]) -> tuple[WouldWrite, ...]:
    fields: dict[tuple[str, Mode], dict[str, None]] = {}
    for part in parts:
        for write in part.would_write:
            fields.setdefault((write.concern, write.mode), {}).update(dict.fromkeys(write.fields))
    return tuple(WouldWrite(concern, mode, tuple(written)) for (concern, mode), written in fields.items())


def _get_verdict(part: Evaluation) -> Verdict:
    return part.verdict or Verdict.ADMIT


def _merge(reviewed: Sequence[ReviewedTemplate], told: Sequence[Sequence[_Told]]) -> Iterator[tuple[_Told, str]]:
    """Yield what was told of templates, each once, with the templates that it is about; "" if it is about all."""
    places: dict[_Told, list[str]] = {}
    for (place, _), of_template in zip(reviewed, told, strict=True):
        for text in dict.fromkeys(of_template):
            places.setdefault(text, []).append(place)
    for text, where in places.items():
        more = f" and {len(where) - _PLACES_MAX} more" if len(where) > _PLACES_MAX else ""
        named = f" ({', '.join(where[:_PLACES_MAX])}{more})"
        yield text, "" if len(where) == len(reviewed) else named


def conclude_custom(evaluation: Evaluation, client_id: str) -> Decision:
    """Return the decision record: the object is always admitted. That of an unknown kind is about no workload."""
    if not _find_paths(evaluation):
        return conclude(evaluation, client_id)
    return workloads.conclude_advised(evaluation, client_id)
