"""Ports: the interfaces between the application and its adapters."""

from webhook.ports.callers import (
    KEY_SET_BYTES_MAX,
    Caller,
    Credentials,
    CurrentValue,
    KeyDocument,
    KeyPublisher,
    KeySource,
    TokenKey,
    TokenKeys,
    TokenRevocations,
)
from webhook.ports.decisions import SharedDecisions, SharedPage, SharedRecord
from webhook.ports.observers import Observer, PartialObserver, Review, WatchReports
from webhook.ports.pods import (
    Continuity,
    ControllerClient,
    CreationFailureHandler,
    PodEventHandler,
    PodLookup,
    PodWatch,
)
from webhook.ports.policies import (
    DocumentReceiver,
    NamespaceLabels,
    Overrides,
    OverridesStore,
    PolicyCheck,
    PolicySource,
    ServiceStatusClient,
    WebhookConfigurationClient,
)
from webhook.ports.queues import GateClient, PlaceEvents, PodQueue, QueueIndex
from webhook.ports.stores import BreakerLedger, Clock, CounterStore, PodLedger, SharedStore

__all__ = [
    "KEY_SET_BYTES_MAX",
    "BreakerLedger",
    "Caller",
    "Clock",
    "Continuity",
    "ControllerClient",
    "CounterStore",
    "CreationFailureHandler",
    "Credentials",
    "CurrentValue",
    "DocumentReceiver",
    "GateClient",
    "KeyDocument",
    "KeyPublisher",
    "KeySource",
    "NamespaceLabels",
    "Observer",
    "Overrides",
    "OverridesStore",
    "PartialObserver",
    "PlaceEvents",
    "PodEventHandler",
    "PodLedger",
    "PodLookup",
    "PodQueue",
    "PodWatch",
    "PolicyCheck",
    "PolicySource",
    "QueueIndex",
    "Review",
    "ServiceStatusClient",
    "SharedDecisions",
    "SharedPage",
    "SharedRecord",
    "SharedStore",
    "TokenKey",
    "TokenKeys",
    "TokenRevocations",
    "WatchReports",
    "WebhookConfigurationClient",
]
