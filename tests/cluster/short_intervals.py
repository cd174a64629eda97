"""Podgate with intervals of seconds instead of minutes, run in place of `python -m webhook`."""

from typing import Any

from certs.cluster import loop
from webhook.adapters.kubernetes import Lease, LeaseTiming
from webhook.cli import main
from webhook.controller import Controller, ControllerTiming, ServiceStatusWriter, StatusTiming, StatusWriter
from webhook.policy_in_force.webhook_configurations import WebhookConfigurationTiming, WebhookConfigurationWriter

CONTROLLER = ControllerTiming(round_seconds=0.2, overdue_seconds=2, skew_seconds=0.2, repair_seconds=1)
STATUSES = StatusTiming(round_seconds=0.2, read_seconds=1, first_pause_seconds=0.2, pause_seconds_max=1)
LEASE = LeaseTiming(duration_seconds=3, renew_seconds=0.3, retry_seconds=0.2)

WEBHOOKS = WebhookConfigurationTiming(poll_seconds=0.1, check_seconds=0.5, longest_pause_seconds=1)

CERTIFICATES_PAUSE_SECONDS = 0.5


def shorten(kind: type[Any], timing: object) -> None:
    """Make `timing` the default of a class."""
    defaults = kind.__init__.__kwdefaults__
    [name] = {"pace", "timing"} & defaults.keys()
    defaults[name] = timing


if __name__ == "__main__":
    shorten(Controller, CONTROLLER)
    shorten(ServiceStatusWriter, STATUSES)
    shorten(StatusWriter, STATUSES)
    shorten(Lease, LEASE)
    shorten(WebhookConfigurationWriter, WEBHOOKS)
    loop.PAUSE_SECONDS_MAX = CERTIFICATES_PAUSE_SECONDS
    main()
