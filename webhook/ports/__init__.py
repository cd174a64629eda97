"""The named seams: everything that the decision needs from the world comes in through one of these."""

from webhook.ports.callers import Caller, Denials, Kept, KeySource, TokenKey, TokenKeys
from webhook.ports.credentials import Credentials
from webhook.ports.observers import Observer, Review, WatchReports
from webhook.ports.pods import Continuity, Found, PodTaker, PodWatch
from webhook.ports.policies import NamespaceLabels, Overrides, OverridesBook, PolicyCheck, PolicySource
from webhook.ports.service_statuses import StatusBoard
from webhook.ports.stores import BreakerLedger, CounterStore, PodLedger, SharedStore
from webhook.ports.time import Clock

__all__ = [
    "BreakerLedger",
    "Caller",
    "Clock",
    "Continuity",
    "CounterStore",
    "Credentials",
    "Denials",
    "Found",
    "Kept",
    "KeySource",
    "NamespaceLabels",
    "Observer",
    "Overrides",
    "OverridesBook",
    "PodLedger",
    "PodTaker",
    "PodWatch",
    "PolicyCheck",
    "PolicySource",
    "Review",
    "SharedStore",
    "StatusBoard",
    "TokenKey",
    "TokenKeys",
    "WatchReports",
]
