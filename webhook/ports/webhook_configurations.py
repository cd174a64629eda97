"""Webhook configurations in the cluster."""

from collections.abc import Mapping
from typing import Any, Protocol

from webhook.core.webhook_configurations import ConfigurationName, OutdatedConfiguration


class WebhookConfigurationClient(Protocol):
    """Reads and writes Podgate's webhook configurations. WebhookConfigurationError on failure."""

    async def read(self) -> Mapping[ConfigurationName, dict[str, Any]]:
        """Return the configurations that exist."""
        ...

    async def write(self, changed: OutdatedConfiguration) -> bool:
        """Replace the webhooks of one configuration; False if it has changed since it was read."""
        ...
