"""Gated Pods: an observer of the watch that collects the Pods with Podgate's gate, for the release loop."""

from collections.abc import Callable, Iterable

from msgspec import Struct

from webhook.core.admission.mutation import has_queue_gate
from webhook.core.admission.queueing import priority_of
from webhook.core.compiled_policy import CompiledPolicy
from webhook.core.controller.waiting_pod import WaitingPod
from webhook.core.groups.membership import GROUP_ANNOTATION, Membership
from webhook.core.kubernetes.controllers import find_controller_source
from webhook.core.kubernetes.pod import OwnerReference, Pod
from webhook.core.kubernetes.pod_identity import KIND_MAX, NAME_MAX, UID_MAX, shorten
from webhook.core.pods.ownership import OwnedPod, counts_alike
from webhook.core.pods.start_outcome import read_created_us
from webhook.core.quota import Booking

_ATTEMPT = "jobset.sigs.k8s.io/restart-attempt"


class GatedPod(Struct, frozen=True, gc=False):
    """A waiting Pod, and what is needed to charge and to release it."""

    waiting: WaitingPod
    namespace: str
    name: str
    source: str
    """As `Acquire.event_source`."""
    owner: str = ""
    """Its controller, as KIND/NAME; "" without one."""
    due_us: int = 0
    """Of a Pod that is being released: since when that was possible."""
    group: Membership | None = None
    created_us: int = 0
    attempt: str = ""
    """As `read_attempt` returns it."""
    run: str = ""
    """As `read_run` returns it."""

    @property
    def pods(self) -> tuple["GatedPod", ...]:
        """Return the Pod: what waits alone is a group of one."""
        return (self,)

    def build_booking(self, now_us: int) -> Booking:
        """Return its charge at a moment."""
        waiting = self.waiting
        return Booking(self.namespace, waiting.uid, waiting.cost, now_us, self.name, waiting.scope)


class GatedPods:
    """A `PodObserver`. `take_changes` returns what has changed since its last call.

    New Pods of a list are returned when it is complete: its first pages may lack the head of a queue.
    """

    def __init__(self) -> None:
        self._is_listing = False
        self._compiled: CompiledPolicy | None = None
        """The policy of the last list, also of one that is not complete."""
        self._counted_by: CompiledPolicy | None = None
        """As that of the last list that was completed."""
        self._gated: set[str] = set()
        self._new: dict[str, GatedPod] = {}
        self._left: set[str] = set()
        self._released: set[str] = set()
        """Gated Pods whose gate is gone: what a list or a late event shows of it is older, until one shows none."""

    def on_list_begun(self, compiled: CompiledPolicy | None) -> None:
        """Start a list under a policy."""
        self._compiled = compiled
        self._is_listing = True

    def on_list_complete(self) -> None:
        self._is_listing, self._counted_by = False, self._compiled

    def are_counted_by(self, compiled: CompiledPolicy) -> bool:
        """Return whether the Pods of the last complete list have the services, costs and scopes of a policy."""
        known = self._counted_by
        if known is not None and compiled is not known and counts_alike(compiled, known):
            self._counted_by = compiled
        return compiled is self._counted_by

    def on_listed(self, pod: Pod, found: OwnedPod | None) -> None:
        self.on_changed(pod, found)

    def on_changed(self, pod: Pod, found: OwnedPod | None) -> None:
        uid = pod.metadata.uid
        if self._compiled is None or not has_queue_gate(pod) or pod.metadata.deletion_timestamp is not None:
            self.on_deleted(uid)
            return
        if uid in self._released:
            return
        service, cost = (found.service, found.cost) if found is not None else ("", {})
        plan, namespace = self._compiled.plans.get(service), pod.metadata.namespace
        scope = plan.scope_of(found) if plan is not None and found is not None else ""
        waiting = WaitingPod(uid, service, read_created_us(pod), cost, scope, priority_of(pod))
        self._gated.add(uid)
        self._left.discard(uid)
        self._new[uid] = GatedPod(
            waiting,
            namespace,
            pod.metadata.name,
            find_controller_source(pod),
            _format_owner(pod),
            group=read_membership(pod),
            created_us=read_created_us(pod),
            attempt=read_attempt(pod),
            run=read_run(pod),
        )

    def on_deleted(self, uid: str) -> None:
        self._new.pop(uid, None)
        self._released.discard(uid)
        if uid in self._gated:
            self._gated.remove(uid)
            self._left.add(uid)

    def note_released(self, uid: str) -> None:
        """Note that the gate of a Pod is removed: gates are never added again, so it waits no more."""
        if uid in self._gated:
            self._new.pop(uid, None)
            self._released.add(uid)

    def select_new(self, is_known: Callable[[str], bool]) -> dict[str, GatedPod]:
        """Return the gated Pods that have changed by their uids, but those that are known."""
        return {uid: pod for uid, pod in self._new.items() if not is_known(uid)}

    def take_changes(self) -> tuple[list[GatedPod], set[str]]:
        """Return Pods that are gated, oldest first, and uids of those that no longer are."""
        left, self._left = self._left, set()
        if self._is_listing:
            return [], left
        new, self._new = sorted(self._new.values(), key=lambda pod: pod.waiting.since_us), {}
        return new, left

    def put_back(self, pods: Iterable[GatedPod]) -> None:
        """Return Pods again that could not be taken over, unless they have changed since."""
        for pod in pods:
            if pod.waiting.uid in self._gated and pod.waiting.uid not in self._released:
                self._new.setdefault(pod.waiting.uid, pod)


def read_membership(pod: Pod) -> Membership | None:
    """Return the membership that Podgate wrote into a waiting Pod; None without one."""
    text = pod.annotations.get(GROUP_ANNOTATION)
    return None if text is None else Membership.decode(text)


def read_attempt(pod: Pod) -> str:
    """Return which attempt of its JobSet a Pod is made for; "" without one."""
    return pod.labels.get(_ATTEMPT, "")


def read_run(pod: Pod) -> str:
    """Return the run of a workload that a Pod is made for: the attempt of its JobSet, or its Job; "" without one.

    Within a run no Pod of a group is made again for one that has succeeded.
    """
    if attempt := read_attempt(pod):
        return attempt
    owner = _find_controller(pod)
    return shorten(owner.uid, UID_MAX) if owner is not None and owner.kind == "Job" else ""


def _format_owner(pod: Pod) -> str:
    owner = _find_controller(pod)
    return "" if owner is None else f"{shorten(owner.kind, KIND_MAX)}/{shorten(owner.name, NAME_MAX)}"


def _find_controller(pod: Pod) -> OwnerReference | None:
    return next((reference for reference in pod.metadata.owner_references or () if reference.controller), None)
