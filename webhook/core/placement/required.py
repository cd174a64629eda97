"""Required node affinity: the policy's requirements ANDed into each of the Pod's terms.

Terms are ORed: a Pod's term without the policy's requirements would allow other nodes.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.label_constraints import Constraints, combine_expressions
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.types import NodeRequirement, NodeSelectorTerm
from webhook.core.patch import PatchOperation, append, copy, format_pointer
from webhook.core.placement import node_terms
from webhook.core.placement.node_match import find_required_terms
from webhook.core.placement.node_terms import NodeCondition, format_requirement
from webhook.core.placement.plan import PlacementPlan, RequiredTerm

TERMS_MAX = 1000
"""Most terms of one Pod, before and after the rewrite. More would delay other reviews."""
REQUIREMENTS_SHOWN_MAX = 8
TERMS_COMPARED_MAX = 8
"""Most terms of a policy that are compared with each other, per term of a Pod; with more, all are written."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PATH = ("spec", "affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
_TERMS = ".".join(_PATH)
_OS_LABEL = "kubernetes.io/os"


def build_required_field(plan: PlacementPlan) -> dict[str, Any]:
    """Return the fields to set under `nodeAffinity` of a Pod without required node affinity."""
    return {REQUIRED: {"nodeSelectorTerms": [term.plain for term in plan.required]}} if plan.required else {}


def narrow_terms(terms: Sequence[NodeSelectorTerm], plan: PlacementPlan) -> list[PatchOperation]:
    """Return the operations that AND one of the policy's terms into each of the Pod's, another into a copy of it."""
    if len(terms) > TERMS_MAX:
        return []  # the validating webhook denies it
    open_terms = [
        (index, _keep_needed(terms[index], missing)) for index, missing in _find_open_terms(terms, plan.required)
    ]
    if len(terms) + sum(len(missing) - 1 for _, missing in open_terms) > TERMS_MAX:
        return []
    operations: list[PatchOperation] = []
    end = len(terms)
    for index, missing in open_terms:
        # Copies first, of the user's unchanged term.
        operations += [copy(format_pointer(*_PATH, index), *_PATH, "-") for _ in missing[1:]]
        operations += _join_conditions(terms[index], missing[0], index)
        for place, more in enumerate(missing[1:], end):
            operations += _join_conditions(terms[index], more, place)
        end += len(missing) - 1
    return operations


def _find_open_terms(
    terms: Sequence[NodeSelectorTerm], wanted: Sequence[RequiredTerm]
) -> Iterator[tuple[int, list[list[NodeCondition]]]]:
    """Yield the terms that allow other nodes, each with the conditions that it lacks of every wanted term.

    Terms that match no node are skipped.
    """
    for index, term in enumerate(terms):
        constraints = node_terms.term_constraints(term)
        if constraints is not None:
            missing = [
                node_terms.drop_implied(constraints, node_terms.find_missing(constraints, required.asked))
                for required in wanted
            ]
            if all(missing):
                yield index, missing


def _keep_needed(term: NodeSelectorTerm, missing: list[list[NodeCondition]]) -> list[list[NodeCondition]]:
    """Leave out additions that allow no node which the others do not allow.

    If no addition leaves any node, one is kept: the unchanged term would allow other nodes.
    """
    if not 1 < len(missing) <= TERMS_COMPARED_MAX:
        return missing
    needed: list[tuple[Constraints, list[NodeCondition]]] = []
    for lacking in sorted(missing, key=len):
        constraints = node_terms.term_constraints(node_terms.add_conditions(term, lacking))
        if constraints is not None and not any(not node_terms.find_missing(constraints, other) for _, other in needed):
            needed.append((constraints, lacking))
    kept = [
        lacking
        for place, (constraints, lacking) in enumerate(needed)
        if not any(not node_terms.find_missing(constraints, other) for _, other in needed[place + 1 :])
    ]
    return kept or missing[:1]


def _join_conditions(term: NodeSelectorTerm, missing: Sequence[NodeCondition], place: int) -> list[PatchOperation]:
    expressions = [condition.plain for condition in missing if not condition.is_field]
    fields = [condition.plain for condition in missing if condition.is_field]
    return [
        *append(expressions, term.match_expressions, *_PATH, place, "matchExpressions"),
        *append(fields, term.match_fields, *_PATH, place, "matchFields"),
    ]


def find_violations(pod: Pod, plan: PlacementPlan) -> list[Violation]:
    """Return one violation per requirement, however many terms miss it: a tenant chooses how many there are."""
    if not plan.required:
        return []
    terms = find_required_terms(pod.spec)
    if terms is None:
        alone = len(plan.required) == 1
        owed = (
            [format_requirement(condition.requirement) for condition in plan.required[0].asked]
            if alone
            else [_join_alternatives(plan.required)]
        )
        text = "required node affinity is missing, expected {}"
        return [Violation(Code.PLACEMENT_UNFULFILLED, _TERMS, expected, text.format(expected)) for expected in owed]
    if len(terms) > TERMS_MAX:
        text = f"required node affinity has {len(terms)} terms, at most {TERMS_MAX} are read: write fewer"
        return [Violation(Code.PLACEMENT_CONFLICT, _TERMS, _join_alternatives(plan.required), text)]
    open_terms = list(_find_open_terms(terms, plan.required))
    if not open_terms:
        return []
    if len(plan.required) > 1:
        return [_build_violation([index for index, _ in open_terms], _join_alternatives(plan.required))]
    found: list[Violation] = []
    for wanted in plan.required[0].asked:
        missing = [index for index, (lacking,) in open_terms if wanted in lacking]
        if missing:
            found.append(_build_violation(missing, format_requirement(wanted.requirement)))
    return found


def _build_violation(missing: Sequence[int], expected: str) -> Violation:
    first, others = missing[0], len(missing) - 1
    which = f"nodeSelectorTerms[{first}]" + (f" and {others} more allow" if others else " allows")
    text = f"required node affinity: {which} other nodes, expected {expected} in every term"
    return Violation(Code.PLACEMENT_UNFULFILLED, f"{_TERMS}[{first}]", expected, text)


def _join_alternatives(wanted: Sequence[RequiredTerm]) -> str:
    return " or ".join(" and ".join(format_requirement(asked.requirement) for asked in term.asked) for term in wanted)


def find_contradiction(pod: Pod) -> Violation | None:
    """Return why no node can match the Pod's nodeSelector, required terms and operating system; None if one may."""
    selected, terms = pod.spec.node_selector, find_required_terms(pod.spec)
    sources = "required node affinity and nodeSelector"
    if pod.spec.os is not None:
        # The kubelet refuses a Pod of another operating system.
        system, wanted = pod.spec.os.name, (selected or {}).get(_OS_LABEL)
        if wanted not in {None, system}:
            text = f"no node can match: nodeSelector asks for {_OS_LABEL}={wanted}, and spec.os.name is {system}"
            return Violation(Code.PLACEMENT_CONTRADICTION, "spec.os", "spec.os", text)
        selected, sources = {**(selected or {}), _OS_LABEL: system}, "required node affinity, nodeSelector and spec.os"
    if (
        not terms
        or len(terms) > TERMS_MAX
        or any(node_terms.term_constraints(term, selected) is not None for term in terms)
    ):
        return None
    words = _describe_contradiction(terms[0], selected or {}) or "nothing, in a term without expressions"
    more = f" (terms that match no node: {len(terms)})" if len(terms) > 1 else ""
    text = f"no node can match: {sources} ask for {words}{more}"
    return Violation(Code.PLACEMENT_CONTRADICTION, _TERMS, _TERMS, text)


def _describe_contradiction(term: NodeSelectorTerm, node_selector: Mapping[str, str]) -> str:
    """Return the text of all requirements on the first label with a contradiction."""
    selected = [NodeRequirement(key, "In", (value,)) for key, value in node_selector.items()]
    asked = (*selected, *(term.match_expressions or ()))
    for group in (asked, term.match_fields or ()):
        for key, constraint in combine_expressions(group).items():
            if constraint.is_impossible:
                return " with ".join(
                    [format_requirement(requirement) for requirement in group if requirement.key == key][
                        :REQUIREMENTS_SHOWN_MAX
                    ]
                )
    return ""
