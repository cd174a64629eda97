"""Webhook configurations rendered from the policy: the API server calls only for requests that a policy applies to."""

from webhook.core.webhook_configurations.client import ClientConfig, ServiceReference
from webhook.core.webhook_configurations.explanation import explanation
from webhook.core.webhook_configurations.live import (
    NAMES,
    ConfigurationName,
    OutdatedConfiguration,
    leaves_out_no_call,
    outdated,
    wanted_webhooks,
)
from webhook.core.webhook_configurations.namespace_regions import TooManyEntriesError
from webhook.core.webhook_configurations.rendering import configurations

__all__ = [
    "NAMES",
    "ClientConfig",
    "ConfigurationName",
    "OutdatedConfiguration",
    "ServiceReference",
    "TooManyEntriesError",
    "configurations",
    "explanation",
    "leaves_out_no_call",
    "outdated",
    "wanted_webhooks",
]
