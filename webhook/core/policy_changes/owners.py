"""Changed owners: Pods that two services match, and that change their owner with the order of the services."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from webhook.core.kubernetes.label_constraints import combine_expressions
from webhook.core.kubernetes.name_patterns import meet
from webhook.core.kubernetes.types import LabelSelector, Requirement
from webhook.core.policy.model import Match, Service


def find_changed_owners(before: Sequence[Service], after: Sequence[Service]) -> Iterator[str]:
    """Yield a sentence for each pair of services whose Pods may change their owner because of the order alone."""
    old = {service.name: (place, service) for place, service in enumerate(before)}
    new = {service.name: (place, service) for place, service in enumerate(after)}
    for name, (place, service) in old.items():
        if name not in new:
            heirs = [
                other.name
                for other in after
                if other.name in old and old[other.name][0] > place and may_share(service.match, other.match)
            ]
            if heirs:
                yield f"{name} is removed: its Pods that {', '.join(heirs)} match become theirs"
    for name, (place, service) in new.items():
        if name not in old:
            later = [other for other in after[place + 1 :] if other.name in old]
            givers = [other.name for other in later if may_share(service.match, other.match)]
            if givers:
                yield f"{name} is added before {', '.join(givers)}: Pods that it matches become its own"
    yield from _find_moved(old, new)


def _find_moved(old: Mapping[str, tuple[int, Service]], new: Mapping[str, tuple[int, Service]]) -> Iterator[str]:
    common = [name for name in new if name in old]
    moved = _find_moved_names(common, [old[name][0] for name in common])
    seen: set[tuple[str, str]] = set()
    for name in moved:
        for other in common:
            first, second = (name, other) if new[name][0] < new[other][0] else (other, name)
            is_turned = name != other and old[first][0] > old[second][0]
            if is_turned and (first, second) not in seen and may_share(new[first][1].match, new[second][1].match):
                seen.add((first, second))
                yield f"{first} is now before {second}: Pods that both match become those of {first}"


def _find_moved_names(names: Sequence[str], places: Sequence[int]) -> list[str]:
    """Return the names outside the longest rising sequence of places: those that were moved."""
    tails: list[int] = []  # the last index of the best sequence of each length
    before: list[int] = []
    for index, place in enumerate(places):
        length = bisect_left([places[tail] for tail in tails], place)
        before.append(tails[length - 1] if length else -1)
        tails[length : length + 1] = [index]
    kept, index = set[int](), tails[-1] if tails else -1
    while index >= 0:
        kept.add(index)
        index = before[index]
    return [name for index, name in enumerate(names) if index not in kept]


def may_share(one: Match, other: Match) -> bool:
    """Return whether both may match the same Pod. True if that is not known."""
    if one.namespaces and other.namespaces and not any(meet(a, b) for a in one.namespaces for b in other.namespaces):
        return False
    if one.owner_kinds and other.owner_kinds and set(one.owner_kinds).isdisjoint(other.owner_kinds):
        return False
    selectors = (one.namespace_selector, other.namespace_selector), (one.pod_selector, other.pod_selector)
    return not any(_contradict(*pair) for pair in selectors)


def _contradict(one: LabelSelector | None, other: LabelSelector | None) -> bool:
    found = combine_expressions((*_list_expressions(one), *_list_expressions(other)))
    return any(constraint.is_impossible for constraint in found.values())


def _list_expressions(selector: LabelSelector | None) -> Iterator[Requirement]:
    if selector is not None:
        yield from (Requirement(key, "In", (value,)) for key, value in (selector.match_labels or {}).items())
        yield from selector.match_expressions or ()
