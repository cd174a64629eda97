"""Events about the places of waiting Pods, with a sender of their own: they never delay Events about denials."""

import time

from webhook.adapters.kubernetes.events.event_object import EventType, Happening, Regarding, in_bounds
from webhook.adapters.kubernetes.events.event_sender import EventSender, EventTiming

PLACE_TIMING = EventTiming(per_second=20.0, burst=40, patience_seconds=30.0)


class PodPlaceEvents:
    """A `ports.PlaceEvents`. The same place for the same cause is one Event, also after a change of the leader."""

    def __init__(self, sender: EventSender) -> None:
        self._sender = sender
        self.run = sender.run
        self.drop = sender.drop

    def offer(self, namespace: str, name: str, uid: str, note: str, occasion: str) -> None:
        about = Regarding("v1", "Pod", namespace, name, uid)
        note, at_ns = in_bounds(note), time.time_ns()
        self._sender.offer(Happening(about, EventType.NORMAL, "WaitingForQuota", "Wait", note, occasion, at_ns))
