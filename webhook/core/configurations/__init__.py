"""Webhook configurations, rendered from the policy: the API server asks us about what we would act on, and no more."""

from webhook.core.configurations.regions import TooManyEntriesError
from webhook.core.configurations.rendering import (
    POLICY_CONFIG_MAP,
    SYSTEM_NAMESPACE,
    ClientConfig,
    ServiceReference,
    configurations,
)

__all__ = [
    "POLICY_CONFIG_MAP",
    "SYSTEM_NAMESPACE",
    "ClientConfig",
    "ServiceReference",
    "TooManyEntriesError",
    "configurations",
]
