"""Minimality of a patch: which operations could be omitted.

Most operations stand alone. A copied term goes with all that is done to the copy. What makes a term fit no node at all
is one step too: which of the policy's words contradicts the user's is nobody's business.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.core.oracle.node_sets import Universe
from tests.core.oracle.nodes import Json, terms_of

_TERMS = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/"
Patch = Sequence[Json]


class Step(NamedTuple):
    """Operations to leave out, and the patch without them."""

    left_out: list[Json]
    rest: list[Json]


def steps(patch: Patch, before: Json, after: Json) -> Iterator[Step]:
    """Yield every step of the patch that makes `after` of `before`."""
    own, final = terms_of(before) or [], terms_of(after) or []
    universe = Universe(final)
    copies = [one for one in patch if one["op"] == "copy"]
    sources = [*range(len(own)), *(int(one["from"].removeprefix(_TERMS)) for one in copies)]
    for operation in patch:
        index = _index(operation)
        if operation["op"] != "copy" and (index is None or universe.box(final[index]) is not None):
            yield Step([operation], [one for one in patch if one is not operation])
    for index in range(len(sources)):
        copy = copies[index - len(own)] if index >= len(own) else None
        group = [one for one in patch if one is copy or _index(one) == index]
        rest = [one for one in patch if one is not copy and _index(one) != index]
        if copy is not None and _is_spare(index, sources, final, universe):
            continue
        if group:
            yield Step(group, rest if copy is None else [_renumbered(one, index) for one in rest])


def _is_spare(index: int, sources: Sequence[int], final: Sequence[Json], universe: Universe) -> bool:
    """Say whether several other terms happen to let the same nodes in as a copy does: nobody need find that out.

    That a single other copy of the same term does is another thing.
    """
    box, others = universe.box(final[index]), [place for place in range(len(final)) if place != index]
    if box is None:
        return False
    siblings = [final[place] for place in others if sources[place] == sources[index]]
    if any(universe.within([box], universe.boxes([term])) for term in siblings):
        return False
    return universe.within([box], universe.boxes([final[place] for place in others]))


def _index(operation: Json) -> int | None:
    """Return which term an operation changes."""
    number, _, field = operation["path"].removeprefix(_TERMS).partition("/")
    return int(number) if operation["path"].startswith(_TERMS) and field else None


def _renumbered(operation: Json, gone: int) -> Json:
    """Return an operation on a list of terms in which one is missing."""
    index = _index(operation)
    if index is None or index < gone:
        return operation
    field = operation["path"].removeprefix(_TERMS).partition("/")[2]
    return {**operation, "path": f"{_TERMS}{index - 1}/{field}"}
