"""Minimality of a patch: which operations could be omitted.

Most operations are one step each. A copied term and all operations on the copy are one step. So are all operations
on a term that then matches no node: it does not matter which expression contradicts the user's.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tests.core.oracle.node_sets import Universe
from tests.core.oracle.nodes import Json, terms_of

_TERMS = "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/"
Patch = Sequence[Json]


class Step(NamedTuple):
    """Operations to omit, and the patch without them."""

    omitted: list[Json]
    rest: list[Json]


def list_steps(patch: Patch, before: Json, after: Json) -> Iterator[Step]:
    """Yield every step of the patch that makes `after` of `before`."""
    own, final = terms_of(before) or [], terms_of(after) or []
    universe = Universe(final)
    copies = [operation for operation in patch if operation["op"] == "copy"]
    sources = [*range(len(own)), *(int(copy["from"].removeprefix(_TERMS)) for copy in copies)]
    for operation in patch:
        index = _parse_index(operation)
        if operation["op"] != "copy" and (index is None or universe.find_box(final[index]) is not None):
            yield Step([operation], [other for other in patch if other is not operation])
    for index in range(len(sources)):
        copy = copies[index - len(own)] if index >= len(own) else None
        group = [operation for operation in patch if operation is copy or _parse_index(operation) == index]
        rest = [operation for operation in patch if operation is not copy and _parse_index(operation) != index]
        if copy is not None and _is_spare(index, sources, final, universe):
            continue
        if group:
            yield Step(group, rest if copy is None else [_renumber(operation, index) for operation in rest])


def _is_spare(index: int, sources: Sequence[int], final: Sequence[Json], universe: Universe) -> bool:
    """Return whether several other terms together match all nodes of a copy, which a rewrite need not detect.

    If a single other copy of the same term matches them, the copy is redundant.
    """
    box, others = universe.find_box(final[index]), [place for place in range(len(final)) if place != index]
    if box is None:
        return False
    siblings = [final[place] for place in others if sources[place] == sources[index]]
    if any(universe.is_within([box], universe.find_boxes([term])) for term in siblings):
        return False
    return universe.is_within([box], universe.find_boxes([final[place] for place in others]))


def _parse_index(operation: Json) -> int | None:
    """Return the index of the term that an operation changes."""
    number, _, field = operation["path"].removeprefix(_TERMS).partition("/")
    return int(number) if operation["path"].startswith(_TERMS) and field else None


def _renumber(operation: Json, removed_index: int) -> Json:
    """Return an operation renumbered for a list of terms with one removed."""
    index = _parse_index(operation)
    if index is None or index < removed_index:
        return operation
    field = operation["path"].removeprefix(_TERMS).partition("/")[2]
    return {**operation, "path": f"{_TERMS}{index - 1}/{field}"}
