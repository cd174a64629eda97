"""Index of held controllers: those to be read from the API server, and those that are known to lack Pods."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from webhook.controller.held_controllers.reports import WakeResult, WakeTiming
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.controller.demand import Demand, compute_demand
from webhook.core.controller.held_controller import ControllerReference, CreatingController
from webhook.core.controller.selection import HeldController


@dataclass(slots=True)
class _Entry:
    controller: CreatingController
    namespace_labels: Mapping[str, str]
    refused_us: int
    pause_us: int
    settled: bool = True
    next_us: int = 0
    demand: Demand | None = None


class _UnreadControllers:
    """Controllers to be read, each with the time of its denial. Namespaces take turns: Events may be invented."""

    def __init__(self) -> None:
        self._of: dict[str, dict[ControllerReference, int]] = {}
        """By namespace, in the order of their turns."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, reference: ControllerReference, at_us: int) -> None:
        """Add a controller unless it is known."""
        of_namespace = self._of.setdefault(reference.namespace, {})
        self._count += reference not in of_namespace
        of_namespace.setdefault(reference, at_us)

    def remove(self, reference: ControllerReference) -> None:
        """Remove a controller, if it is known."""
        of_namespace = self._of.get(reference.namespace, {})
        self._count -= of_namespace.pop(reference, None) is not None
        if not of_namespace:
            self._of.pop(reference.namespace, None)

    @property
    def namespaces(self) -> Iterable[str]:
        return self._of.keys()

    def count(self, namespace: str) -> int:
        return len(self._of.get(namespace, ()))

    def find_newest(self, namespace: str) -> ControllerReference | None:
        """Return the controller of a namespace that was added last."""
        return next(reversed(self._of.get(namespace, {})), None)

    def take(self, most: int) -> list[tuple[ControllerReference, int]]:
        """Remove and return the next ones."""
        taken: list[tuple[ControllerReference, int]] = []
        while self._of and len(taken) < most:
            namespace, of_namespace = next(iter(self._of.items()))
            reference, at_us = next(iter(of_namespace.items()))
            self.remove(reference)
            taken.append((reference, at_us))
            if of_namespace:
                self._of[namespace] = self._of.pop(namespace)
        return taken


class HeldIndex:
    """A controller is read after each Event about it, and some time after it was woken."""

    def __init__(self, timing: WakeTiming) -> None:
        self._timing = timing
        self._settle_us = round(timing.settle_seconds * 1_000_000)
        self._entries: dict[ControllerReference, _Entry] = {}
        self._counts = Counter[str]()
        """Of the entries, by namespace."""
        self._unread = _UnreadControllers()
        self._compiled: CompiledPolicy | None = None
        """The policy to which the demands belong."""
        self.changed_tags: set[str] = set()
        """Tags of controllers that were read since the last selection."""

    def __len__(self) -> int:
        return len(self._entries)

    def note(self, reference: ControllerReference, at_us: int) -> None:
        """Note that a Pod was denied.

        Ignored beyond the bound, because the controller also retries by itself, but not because of other namespaces
        with more; and for a controller that was just woken: it reports a denied Pod before it counts the Pods that it
        has created.
        """
        entry = self._entries.get(reference)
        has_place = len(self._entries) + len(self._unread) < self._timing.held_max
        if entry.settled if entry is not None else has_place or self._make_place(reference.namespace):
            self._unread.add(reference, at_us)

    def forget(self, reference: ControllerReference) -> None:
        self._unread.remove(reference)
        if self._entries.pop(reference, None) is None:
            return
        self._counts[reference.namespace] -= 1
        if not self._counts[reference.namespace]:
            del self._counts[reference.namespace]

    def take_unread(self, most: int) -> Sequence[tuple[ControllerReference, int]]:
        """Remove and return the controllers to read next."""
        return self._unread.take(most)

    def has_unread(self) -> bool:
        return len(self._unread) > 0

    def put(
        self,
        reference: ControllerReference,
        found: CreatingController | None,
        namespace_labels: Mapping[str, str],
        refused_us: int,
        now_us: int,
    ) -> tuple[str, WakeResult] | None:
        """Enter what was read; return the service and the result if the controller had been woken."""
        before = self._entries.get(reference)
        if before is None and not refused_us:
            return None  # it was forgotten meanwhile
        if found is None or not found.missing:
            self.forget(reference)
            result = WakeResult.GONE if found is None else WakeResult.CREATED
            return _make_result(before, result)
        entry = _Entry(found, namespace_labels, refused_us, self._settle_us)
        result = WakeResult.REFUSED
        if before is not None:
            entry.refused_us, entry.next_us, entry.pause_us = before.refused_us, before.next_us, before.pause_us
            result = WakeResult.CREATED if found.missing < before.controller.missing else WakeResult.REFUSED
            if not before.settled:
                self._pause(entry, now_us, is_progress=result is WakeResult.CREATED)
        self._counts[reference.namespace] += before is None
        self._entries[reference] = entry
        entry.demand = self._compute_demand(entry)
        if entry.demand is None and self._compiled is not None:
            self.forget(reference)
        if entry.demand is not None:
            self.changed_tags.add(entry.demand.tag)
        return _make_result(before, result)

    def note_wake(self, reference: ControllerReference, now_us: int, *, is_done: bool) -> None:
        """Note that a controller was woken, or that this failed."""
        entry = self._entries.get(reference)
        if entry is not None:
            entry.settled = not is_done
            entry.next_us = now_us + self._settle_us
            if not is_done:
                self._pause(entry, now_us, is_progress=False)

    def requeue_woken(self, now_us: int) -> bool:
        """Queue controllers that were woken long enough ago to be read again; return whether there are any."""
        due = [reference for reference, entry in self._entries.items() if not entry.settled and entry.next_us <= now_us]
        for reference in due:
            self._unread.remove(reference)
            self._unread.add(reference, 0)
        return bool(due)

    def use(self, compiled: CompiledPolicy) -> bool:
        """Compute all demands under a policy; return whether it is a new one."""
        if compiled is self._compiled:
            return False
        self._compiled = compiled
        for reference, entry in tuple(self._entries.items()):
            entry.demand = self._compute_demand(entry)
            if entry.demand is None:
                self.forget(reference)
        return True

    def list_held(self) -> list[HeldController]:
        """Return the controllers whose Pods a service may deny."""
        return [
            HeldController(
                reference,
                entry.demand,
                entry.controller.missing,
                entry.refused_us,
                settled=entry.settled,
                next_us=entry.next_us,
            )
            for reference, entry in self._entries.items()
            if entry.demand is not None
        ]

    def _make_place(self, namespace: str) -> bool:
        """Forget the newest controller of the namespace with the most; False if that has hardly more than this one.

        One that was not read is the newest: it may be invented.
        """
        longest = max({*self._unread.namespaces, *self._counts}, key=self._count, default=namespace)
        if self._count(longest) <= self._count(namespace) + 1:
            return False
        newest = self._unread.find_newest(longest)
        self.forget(newest or next(one for one in reversed(self._entries) if one.namespace == longest))
        return True

    def _count(self, namespace: str) -> int:
        return self._unread.count(namespace) + self._counts[namespace]

    def _compute_demand(self, entry: _Entry) -> Demand | None:
        if self._compiled is None:
            return None
        return compute_demand(entry.controller, self._compiled, entry.namespace_labels)

    def _pause(self, entry: _Entry, now_us: int, *, is_progress: bool) -> None:
        longest_us = round(self._timing.pause_seconds_max * 1_000_000)
        entry.pause_us = self._settle_us if is_progress else min(2 * entry.pause_us, longest_us)
        entry.next_us = now_us if is_progress else now_us + entry.pause_us


def _make_result(entry: _Entry | None, result: WakeResult) -> tuple[str, WakeResult] | None:
    if entry is None or entry.settled or entry.demand is None:
        return None
    return entry.demand.service, result
