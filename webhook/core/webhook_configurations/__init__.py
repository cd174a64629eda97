"""Webhook configurations rendered from the policy: the API server calls only for requests that a policy applies to."""

from webhook.core.webhook_configurations.client import ClientConfig, ServiceReference
from webhook.core.webhook_configurations.explanation import explain_configurations
from webhook.core.webhook_configurations.live import (
    NAMES,
    ConfigurationName,
    OutdatedConfiguration,
    find_outdated,
    leaves_out_no_call,
    render_wanted_webhooks,
)
from webhook.core.webhook_configurations.namespace_regions import TooManyEntriesError
from webhook.core.webhook_configurations.rendering import render_configurations
from webhook.core.webhook_configurations.union import render_either_webhooks

__all__ = [
    "NAMES",
    "ClientConfig",
    "ConfigurationName",
    "OutdatedConfiguration",
    "ServiceReference",
    "TooManyEntriesError",
    "explain_configurations",
    "find_outdated",
    "leaves_out_no_call",
    "render_configurations",
    "render_either_webhooks",
    "render_wanted_webhooks",
]
