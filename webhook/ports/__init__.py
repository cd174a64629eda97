"""The named seams: everything that the decision needs from the world comes in through one of these."""

from webhook.ports.callers import Caller, TokenKey, TokenKeys
from webhook.ports.observers import Observer, Review, WatchReports
from webhook.ports.pods import Continuity, Found, PodTaker, PodWatch
from webhook.ports.policies import NamespaceLabels, Overrides, OverridesBook, PolicyCheck, PolicySource
from webhook.ports.stores import CounterStore, Outcome, PodLedger
from webhook.ports.time import Clock

__all__ = [
    "Caller",
    "Clock",
    "Continuity",
    "CounterStore",
    "Found",
    "NamespaceLabels",
    "Observer",
    "Outcome",
    "Overrides",
    "OverridesBook",
    "PodLedger",
    "PodTaker",
    "PodWatch",
    "PolicyCheck",
    "PolicySource",
    "Review",
    "TokenKey",
    "TokenKeys",
    "WatchReports",
]
