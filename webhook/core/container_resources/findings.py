"""What a Pod's resources leave unfulfilled of its service's: container by container, then the Pod as a whole."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from webhook.core.container_resources.container_cache import shapes, shown_name
from webhook.core.container_resources.plan import RangePlan
from webhook.core.container_resources.pod_limits import Shares, of_the_whole
from webhook.core.container_resources.shortfalls import Shortfall
from webhook.core.findings import Code, Violation
from webhook.core.kubernetes.pod import Pod
from webhook.core.kubernetes.pod_requests import is_sidecar

_KINDS = {"containers": "container", "initContainers": "init container"}
_WHOLE = "the Pod as a whole"


class _Debt(NamedTuple):
    """A shortfall, where it is, and of whom: of one container, or of the whole Pod, which has no name."""

    place: str
    kind: str
    name: str
    shortfall: Shortfall


def lacks(pod: Pod, plan: RangePlan, old: Pod | None = None) -> list[Violation]:
    """Return what a Pod owes of its range; one for each word and resource, however many containers break it.

    What `old` owed already, and as much, is not held against the new Pod. ValueError: an unreadable quantity.
    """
    debts = _debts(pod, plan)
    if debts and old is not None:
        known = {key: far for debt in _debts(old, plan) for key, far in _excess(debt)}
        debts = [debt for debt in debts if any(known.get(key, -1) < far for key, far in _excess(debt))]
    return [_told(group) for group in _grouped(debts)] if debts else []


def _debts(pod: Pod, plan: RangePlan) -> list[_Debt]:
    found: list[_Debt] = []
    if not plan.rules and not plan.pod:
        return found
    running: list[Shares] = []
    starting: list[tuple[Shares, bool]] = []
    for field, index, container, shape in shapes(pod, plan):
        for shortfall in shape.shortfalls:
            place = f"spec.{field}[{index}].resources"
            found.append(_Debt(place, _KINDS[field], shown_name(container), shortfall))
        if field == "containers":
            running.append(shape.taken)
        else:
            starting.append((shape.taken, is_sidecar(container)))
    if plan.pod or pod.spec.resources is not None:
        place = "spec.containers[*].resources" if pod.spec.resources is None else "spec.resources"
        try:
            found += [_Debt(place, _WHOLE, "", one) for one in of_the_whole(pod, plan, running, starting)]
        except ValueError as error:
            raise ValueError(f"{_WHOLE}: {error}") from None
    return found


def _excess(debt: _Debt) -> Iterator[tuple[tuple[str, str, str, str], int]]:
    """Yield how far out each side is, by what it is owed for, whatever the value."""
    for side, far in debt.shortfall.excess:
        yield (debt.place, side, debt.shortfall.name, debt.shortfall.word), far


def _grouped(debts: Iterable[_Debt]) -> Iterable[list[_Debt]]:
    """Gather what is the same of several containers: a tenant chooses how many there are."""
    groups: dict[tuple[str, Code, str, str], list[_Debt]] = {}
    for debt in debts:
        shortfall = debt.shortfall
        groups.setdefault((debt.kind, shortfall.code, shortfall.name, shortfall.word), []).append(debt)
    return groups.values()


def _told(debts: list[_Debt]) -> Violation:
    """Return one lack: the first container's words, and how many more there are."""
    first, shortfall = debts[0], debts[0].shortfall
    whose = f"{first.kind} {first.name}".rstrip() + (f" and {len(debts) - 1} more" if len(debts) > 1 else "")
    side = shortfall.excess[0][0]
    return Violation(
        code=shortfall.code,
        field=f"{first.place}.{side}[{shortfall.name}]",
        owed=f"{shortfall.word}[{shortfall.name}] of {', '.join(debt.place for debt in debts)}",
        text=f"{whose}: {shortfall.text}",
    )
