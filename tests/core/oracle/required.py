"""Required node affinity of a rewritten Pod: the nodes that user and policy both allow, with the user's terms kept."""

from collections.abc import Iterator, Sequence

from tests.core.oracle import policy
from tests.core.oracle.node_sets import Box, Universe, selector_term
from tests.core.oracle.nodes import Json, node_affinity, terms_of

TERMS_MAX = 1000
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def build_universe(*terms: Sequence[Json] | None) -> Universe:
    return Universe(term for some in terms for term in some or [])


def find_required_faults(before: Json, after: Json, placement: Json) -> Iterator[str]:
    own, final, wanted = terms_of(before), terms_of(after), policy.find_required_terms(placement)
    if wanted is None:
        if node_affinity(before).get(_REQUIRED) != node_affinity(after).get(_REQUIRED):
            yield f"required node affinity: touched, though the policy asks for none: {final}"
        return
    nodes = build_universe(own, final, wanted)
    expected = nodes.intersect(nodes.find_boxes(own), nodes.find_boxes(wanted))
    if final is None or not nodes.is_same(nodes.find_boxes(final), expected):
        yield f"required node affinity: {final} allows other nodes than {own} and {wanted}"
    for term in final or []:
        if not is_untouched(term, wanted, nodes):
            yield f"required node affinity: {term} implies none of {wanted}"
    if own is not None:
        yield from _check_own_terms(own, final or [], wanted, nodes)


def _check_own_terms(
    own: Sequence[Json], final: Sequence[Json], wanted: Sequence[Json], nodes: Universe
) -> Iterator[str]:
    """Check each term: unchanged if it implies the policy's, else only extended; a new term extends one of these."""
    if len(final) < len(own):
        yield f"required node affinity: {len(final)} terms are left of {len(own)}"
        return
    for old, new in zip(own, final, strict=False):
        if is_untouched(old, wanted, nodes):
            if new != old:
                yield f"required node affinity: {old} needed nothing, and is {new}"
        elif not _is_extended(old, new):
            yield f"required node affinity: {new} is not {old} and more"
    if len(own) == len(final):
        return
    for new in final[len(own) :]:
        if not any(_is_extended(old, new) for old in own if not is_untouched(old, wanted, nodes)):
            yield f"required node affinity: {new} comes from no term of the user's"


def is_untouched(term: Json, wanted: Sequence[Json], nodes: Universe) -> bool:
    """Return whether a term matches nothing, or implies one of the policy's."""
    box = nodes.find_box(term)
    if box is None:
        return True
    return any(nodes.is_within([box], [other]) for other in nodes.find_boxes(wanted))


def _is_extended(old: Json, new: Json) -> bool:
    for field in ("matchExpressions", "matchFields"):
        mine = old.get(field) or []
        if (new.get(field) or [])[: len(mine)] != mine:
            return False
    rest = {key: value for key, value in old.items() if key not in {"matchExpressions", "matchFields"}}
    return all(new.get(key) == value for key, value in rest.items())


def nodes_of(pod: Json) -> tuple[Universe, list[Box]]:
    """Return the nodes that a Pod may go to by its own nodeSelector and required terms."""
    terms, selector = terms_of(pod), selector_term(pod["spec"].get("nodeSelector"))
    found = build_universe(terms, [selector] if selector else None)
    boxes = found.find_boxes(terms)
    return found, boxes if selector is None else found.intersect(boxes, found.find_boxes([selector]))
