"""Ports: the interfaces between the application and its adapters."""

from webhook.ports.callers import (
    KEY_SET_BYTES_MAX,
    Caller,
    CurrentValue,
    KeyDocument,
    KeyPublisher,
    KeySource,
    TokenKey,
    TokenKeys,
    TokenRevocations,
)
from webhook.ports.credentials import Credentials
from webhook.ports.decisions import SharedDecisions, SharedPage, SharedRecord
from webhook.ports.held_controllers import ControllerClient, CreationFailureHandler
from webhook.ports.observers import Observer, PartialObserver, Review, WatchReports
from webhook.ports.pods import Continuity, PodEventHandler, PodLookup, PodWatch
from webhook.ports.policies import (
    DocumentReceiver,
    NamespaceLabels,
    Overrides,
    OverridesStore,
    PolicyCheck,
    PolicySource,
)
from webhook.ports.queues import GateClient, PlaceEvents, PodQueue, QueueIndex
from webhook.ports.service_statuses import ServiceStatusClient
from webhook.ports.stores import BreakerLedger, CounterStore, PodLedger, SharedStore
from webhook.ports.time import Clock
from webhook.ports.webhook_configurations import WebhookConfigurationClient

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
