"""Unschedulable Pods: those that the rules keep off nodes, and which of them a node would take now.

Which nodes refused a Pod is kept as the bits of a number, one bit a node: there may be thousands of both.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec
from msgspec import Struct

from webhook.core.kubernetes.controllers import is_like_daemon_pod
from webhook.core.kubernetes.pod import Pod
from webhook.core.scheduling.hot_node_filters import NodeFilters
from webhook.core.scheduling.node_table import NodeRow, NodeRows

WOKEN_AT = "podgate.io/woken-at"
"""Annotation with the time at which a Pod was woken last, in the form of RFC 3339 in UTC, with milliseconds."""
PODS_MAX, KINDS_MAX = 10_000, 256
_NAMES_MAX = 100_000
"""Names of nodes in calls that are noted, and not kept yet."""
_NODES_MIN = 4_096
_DIGITS = bytes.maketrans(b"\x00\x01", b"01")

Names = Mapping[str, object] | AbstractSet[str]
"""Names of nodes, such as those of refusals by node."""
FindFilters = Callable[[Pod], NodeFilters | None]
"""Returns the filters of a Pod by the policy in force, None if no node is refused to it."""


class PodReference(Struct, frozen=True, gc=False):
    """A Pod that waits. Another one may get its name, but not its uid."""

    namespace: str
    name: str
    uid: str


class _Refusal(NamedTuple):
    """A filter call that refused nodes."""

    service: str
    pod: Pod
    nodes: Names
    serial: int


class _Unschedulable(Struct, gc=False):
    reference: PodReference
    woken_at: str
    nominated: str | None
    kind: bytes
    nodes: int
    serial: int
    asked_seconds: float | None = None
    """When its wake was asked for, None if it was not."""


class _Kind(Struct, gc=False):
    """Pods that differ in nothing that filters read; `pod` is one of them."""

    pod: Pod
    filters: NodeFilters | None
    uids: set[str]
    judged: int = 0
    """The nodes of its Pods."""
    passing: int = 0
    """Those of them that pass."""
    version: int = -1
    rules: object = None


class UnschedulablePods:
    """Pods by uid, from a filter call that refused nodes to the next one, or until they are bound or gone.

    `is_incomplete`: others may wait, too: they are not kept, to bound memory, or were refused by an earlier process.
    """

    def __init__(self) -> None:
        self._noted: dict[str, _Refusal] = {}
        """Calls since the last round; most of these Pods are bound soon."""
        self._former: dict[str, _Refusal] = {}
        """Calls of the round before."""
        self._names = 0
        """The number of all names of nodes in both."""
        self._pods: dict[str, _Unschedulable] = {}
        self._kinds: dict[bytes, _Kind] = {}
        self._bits: dict[str, int] = {}
        """The number of each node's bit."""
        self.serial = 0
        """Number of calls that were noted so far."""
        self.is_incomplete = True

    def __len__(self) -> int:
        return len(self._pods)

    def note_refusal(self, service: str, pod: Pod, nodes: Names) -> None:
        """Note a filter call that refused these nodes. It does not copy them."""
        uid = pod.metadata.uid
        self.forget(uid)
        self.serial += 1
        self._noted[uid] = _Refusal(service, pod, nodes, self.serial)
        self._names += len(nodes)
        while self._names > _NAMES_MAX:
            self.keep_noted(next(iter(self._former or self._noted)))

    def forget(self, uid: str) -> None:
        """Forget a Pod: the scheduler tries it now, or it waits no longer."""
        refusal = self._noted.pop(uid, None) or self._former.pop(uid, None)
        if refusal is not None:
            self._names -= len(refusal.nodes)
        waiting = self._pods.pop(uid, None)
        if waiting is not None:
            kind = self._kinds[waiting.kind]
            kind.uids.discard(uid)
            if not kind.uids:
                del self._kinds[waiting.kind]

    def see(self, pod: Pod) -> bool:
        """Take in a Pod as the watch shows it; return whether it shows the wake that was asked for."""
        uid, waiting = pod.metadata.uid, self._pods.get(pod.metadata.uid)
        if pod.spec.node_name or not pod.is_pending or self._is_nominated_since(pod):
            self.forget(uid)
        elif waiting is not None:
            woken_at, is_asked = pod.annotations.get(WOKEN_AT, ""), waiting.asked_seconds is not None
            # Until it is asked for, an earlier event of the Pod may come late. A tenant may have written any time.
            if woken_at != waiting.woken_at if is_asked else woken_at > waiting.woken_at:
                self.forget(uid)  # the scheduler has it from the same watch
                return is_asked
        return False

    def list_uids(self) -> set[str]:
        return {*self._pods, *self._noted, *self._former}

    def begin_round(self, nodes: int) -> list[str]:
        """Return the Pods to keep: they were noted before the last round, and are not bound. `nodes` exist now."""
        if len(self._bits) > max(_NODES_MIN, 4 * nodes):  # most of them are gone
            self.forget_until(self.serial)
            self._bits.clear()
            self.is_incomplete = True
        due = list(self._former)
        self._former, self._noted = {**self._former, **self._noted}, {}
        return due

    def keep_noted(self, uid: str) -> None:
        """Keep a Pod whose call was noted."""
        refusal = self._former.pop(uid, None) or self._noted.pop(uid, None)
        if refusal is None:
            return
        self._names -= len(refusal.nodes)
        spec, metadata = refusal.pod.spec, refusal.pod.metadata
        read = spec.init_containers, spec.containers, spec.resources, spec.overhead
        key = msgspec.json.encode((refusal.service, is_like_daemon_pod(refusal.pod), *read))
        is_full = len(self._pods) >= PODS_MAX or (key not in self._kinds and len(self._kinds) >= KINDS_MAX)
        if is_full:
            self.is_incomplete = True
            return
        kind = self._kinds.setdefault(key, _Kind(refusal.pod, None, set()))
        kind.uids.add(uid)
        reference = PodReference(metadata.namespace, metadata.name, uid)
        woken_at, nominated = refusal.pod.annotations.get(WOKEN_AT, ""), refusal.pod.status.nominated_node_name
        nodes = self._number(refusal.nodes)
        self._pods[uid] = _Unschedulable(reference, woken_at, nominated, key, nodes, refusal.serial)

    def list_kinds(self) -> list[bytes]:
        return list(self._kinds)

    def judge(self, key: bytes, rows: NodeRows, rules: object, find_filters: FindFilters) -> None:
        """Find out which nodes pass a kind now. `rules` is another object whenever the policy has changed."""
        kind = self._kinds.get(key)
        if kind is None:
            return
        if kind.rules is not rules:
            filters, kind.rules = find_filters(kind.pod), rules
            if filters != kind.filters:
                kind.filters, kind.judged, kind.passing = filters, 0, 0
        nodes = 0
        for uid in kind.uids:
            nodes |= self._pods[uid].nodes
        changed, added = rows.changes.list_since(kind.version), nodes & ~kind.judged
        kind.version, kind.judged = rows.changes.version, nodes
        kind.passing &= nodes
        if kind.filters is None or not nodes:
            return
        for name, bit in self._list_nodes(nodes if changed is None else added, changed or ()):
            if nodes & bit:
                is_passing = _passes(kind.filters, rows.by_name.get(name))
                kind.passing = kind.passing | bit if is_passing else kind.passing & ~bit

    def list_fitting(self) -> list[PodReference]:
        """Return the Pods that a node which refused them would take now, but for those whose wake is asked for."""
        return [
            waiting.reference
            for kind in self._kinds.values()
            if kind.filters is None or kind.passing
            for uid in kind.uids
            if (waiting := self._pods[uid]).asked_seconds is None
            and (kind.filters is None or waiting.nodes & kind.passing)
        ]

    def ask(self, pods: Iterable[PodReference], now_seconds: float) -> None:
        """Note that the wake of these Pods is asked for."""
        for pod in pods:
            waiting = self._pods.get(pod.uid)
            if waiting is not None:
                waiting.asked_seconds = now_seconds

    def count_unanswered(self, since_seconds: float) -> int:
        """Return how many Pods were not woken although that was asked for before a time."""
        asked = (waiting.asked_seconds for waiting in self._pods.values())
        return sum(1 for seconds in asked if seconds is not None and seconds <= since_seconds)

    def forget_until(self, serial: int) -> None:
        """Forget the Pods of calls up to this one: all were woken."""
        self.is_incomplete = False
        kept = [uid for uid, waiting in self._pods.items() if waiting.serial <= serial]
        noted = {**self._former, **self._noted}
        for uid in (*kept, *(uid for uid, refusal in noted.items() if refusal.serial <= serial)):
            self.forget(uid)

    def _is_nominated_since(self, pod: Pod) -> bool:
        """Return whether the scheduler has chosen a node for a Pod since its last call, to bind it after a while."""
        uid, nominated = pod.metadata.uid, pod.status.nominated_node_name
        if not nominated:
            return False
        waiting, refusal = self._pods.get(uid), self._noted.get(uid) or self._former.get(uid)
        if refusal is not None:
            return refusal.pod.status.nominated_node_name != nominated
        return waiting is not None and waiting.nominated != nominated

    def _number(self, names: Names) -> int:
        """Return these nodes as bits of a number."""
        bits = self._bits
        digits = bytes(map(names.__contains__, bits))
        if digits.count(1) < len(names):
            for name in names:
                bits.setdefault(name, len(bits))
            digits = bytes(map(names.__contains__, bits))
        return int(digits[::-1].translate(_DIGITS) or b"0", 2)

    def _list_nodes(self, numbered: int, names: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Yield the nodes of a number, and those of these names that have a bit, with their bits."""
        bits = self._bits
        for place, (name, digit) in enumerate(zip(bits, reversed(f"{numbered:b}"), strict=False)):
            if digit == "1":
                yield name, 1 << place
        for name in filter(bits.__contains__, names):
            yield name, 1 << bits[name]


def _passes(filters: NodeFilters, row: NodeRow | None) -> bool:
    return row is not None and filters.find_refusal(row) is None
