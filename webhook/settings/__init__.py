"""Typed settings of the long-running processes, from flags, `PODGATE_*` variables and defaults."""

from webhook.ports.store_url import MEMORY
from webhook.ports.traces import TraceParent
from webhook.settings.declared import ControllerSettings, ProcessSettings
from webhook.settings.extender import ExtenderSettings
from webhook.settings.parsing import (
    CLIENT_VARIABLES,
    ENVIRONMENT_PREFIX,
    is_in_cluster,
    name_flag,
    name_variable,
    parse,
    parse_as,
)
from webhook.settings.readers import (
    Certificates,
    ClientIdentity,
    ListenAddress,
    WebhookConfigurationMode,
    parse_store,
)
from webhook.settings.server import Settings

__all__ = [
    "CLIENT_VARIABLES",
    "ENVIRONMENT_PREFIX",
    "MEMORY",
    "Certificates",
    "ClientIdentity",
    "ControllerSettings",
    "ExtenderSettings",
    "ListenAddress",
    "ProcessSettings",
    "Settings",
    "TraceParent",
    "WebhookConfigurationMode",
    "is_in_cluster",
    "name_flag",
    "name_variable",
    "parse",
    "parse_as",
    "parse_store",
]
