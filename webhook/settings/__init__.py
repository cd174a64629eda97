"""Typed settings of the long-running processes, from flags, `PODGATE_*` variables and defaults."""

from webhook.ports.store_url import MEMORY
from webhook.ports.traces import TraceParent
from webhook.settings.declared import ControllerSettings, ProcessSettings, Settings
from webhook.settings.extender import ExtenderSettings
from webhook.settings.parsing import (
    CLIENT_VARIABLES,
    ENVIRONMENT_PREFIX,
    flag_of,
    in_cluster,
    parse,
    parse_as,
    variable_of,
)
from webhook.settings.readers import (
    Certificates,
    ClientIdentity,
    ListenAddress,
    WebhookConfigurationMode,
    store_of,
)

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
    "flag_of",
    "in_cluster",
    "parse",
    "parse_as",
    "store_of",
    "variable_of",
]
