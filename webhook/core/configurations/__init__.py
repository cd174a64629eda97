"""Webhook configurations rendered from the policy: the API server calls only for requests that a policy applies to."""

from webhook.core.configurations.client import ClientConfig, ServiceReference
from webhook.core.configurations.namespace_regions import TooManyEntriesError
from webhook.core.configurations.rendering import configurations

__all__ = ["ClientConfig", "ServiceReference", "TooManyEntriesError", "configurations"]
