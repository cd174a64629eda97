"""Queue of Pods that wait for their release."""

from collections.abc import Mapping, Sequence
from typing import Protocol

from webhook.core.quota import Acquire, CounterPlan


class PodQueue(Protocol):
    """Waiting Pods of the services whose plans have a `queue`."""

    def find_overload(self, plan: CounterPlan) -> str:
        """Return why a new Pod is gated without being judged: this server is overloaded; "" to judge it.

        Each call is about one Pod: during an overload some are judged, as probes.
        """
        ...

    async def find_reason_to_wait(self, asked: Acquire, *, is_dry_run: bool) -> str:
        """Return why a new Pod has to wait, "" if it need not. Nothing is charged.

        StoreUnavailableError without an answer.
        """
        ...

    async def enqueue(self, asked: Acquire) -> bool:
        """Register a gated Pod; False if `maxPods` of its service wait already. A known uid is not counted again.

        If the store does not answer, the Pod waits all the same, and the controller registers it.
        """
        ...


class QueueIndex(Protocol):
    """Uids of waiting Pods by service, with the store's time of their registration.

    The index bounds and orders the queue. It can be lost: the gates in the cluster show which Pods wait.
    StoreUnavailableError without an answer; every operation may be repeated.
    """

    async def register(self, plan: CounterPlan, uid: str) -> bool:
        """Register a Pod now; False if `maxPods` others are registered. A known uid keeps its time.

        It is atomic: concurrent calls of all replicas register no Pod beyond `maxPods`.
        """
        ...

    async def restore(self, plan: CounterPlan, times_us: Mapping[str, int]) -> None:
        """Register Pods that wait in the cluster but are not registered, at these times, past `maxPods`."""
        ...

    async def list_waiting(self, plan: CounterPlan) -> Mapping[str, int]:
        """Return the registered uids of a service and their times, in microseconds.

        A Pod that is registered or forgotten meanwhile may be included or not.
        """
        ...

    async def find_times_us(self, plan: CounterPlan, uids: Sequence[str]) -> Mapping[str, int]:
        """Return the registered ones of these uids, and their times."""
        ...

    async def count(self, plan: CounterPlan) -> int:
        """Return how many Pods of a service are registered."""
        ...

    async def forget(self, plan: CounterPlan, uids: Sequence[str]) -> None:
        """Remove Pods that no longer wait."""
        ...


class PlaceEvents(Protocol):
    """Events on Pods that wait, or are evicted. They are sent in the background, within a rate."""

    def offer(self, namespace: str, name: str, uid: str, note: str, occasion: str) -> None:
        """Send an Event on a Pod; Events of the same `occasion` are one. It is dropped if too many Events wait."""
        ...

    def offer_expired(self, namespace: str, name: str, uid: str, note: str, *, is_kept: bool) -> None:
        """Send an Event on a Pod that has waited for `maxWait`, and was deleted if not `is_kept`; dropped likewise."""
        ...

    def offer_evicted(self, namespace: str, name: str, uid: str, reason: str, note: str) -> None:
        """Send an Event on a Pod that was evicted to get another variant; dropped likewise."""
        ...

    def drop(self) -> None:
        """Count an Event that is not sent."""
        ...

    async def run(self) -> None:
        """Send until cancelled."""
        ...


class GateClient(Protocol):
    """Gates of Pods in the cluster. GateError: the API server did not do it; a later call may succeed."""

    async def remove(self, namespace: str, name: str, uid: str) -> bool:
        """Remove Podgate's gate from a Pod; False if the Pod is gone. A Pod without the gate stays as it is."""
        ...

    async def delete(self, namespace: str, name: str, uid: str) -> bool:
        """Delete a Pod; False if it is gone."""
        ...

    async def is_reachable(self) -> bool:
        """Return whether the API server answers a call that no webhook can hold up."""
        ...
