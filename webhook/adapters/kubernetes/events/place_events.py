"""Events about places and expiry of waiting Pods, with a sender of their own: they never delay Events about denials."""

import time

from webhook.adapters.kubernetes.events.event_object import EventType, Happening, Regarding
from webhook.adapters.kubernetes.events.event_sender import EventSender, EventTiming
from webhook.core.reporting.queue_document import EXPIRED

PLACE_TIMING = EventTiming(per_second=20.0, burst=40, patience_seconds=30.0)


class PodPlaceEvents:
    """A `ports.PlaceEvents`. The same place for the same cause is one Event, also after a change of the leader."""

    def __init__(self, sender: EventSender) -> None:
        self._sender = sender
        self.run = sender.run
        self.drop = sender.drop

    def offer(self, namespace: str, name: str, uid: str, note: str, occasion: str) -> None:
        about = Regarding("v1", "Pod", namespace, name, uid)
        at_ns = time.time_ns()
        self._sender.offer(Happening(about, EventType.NORMAL, "WaitingForQuota", "Wait", note, occasion, at_ns))

    def expired(self, namespace: str, name: str, uid: str, note: str, *, is_kept: bool) -> None:
        about, action = Regarding("v1", "Pod", namespace, name, uid), "Keep" if is_kept else "Delete"
        self._sender.offer(Happening(about, EventType.WARNING, EXPIRED, action, note, action, time.time_ns()))
