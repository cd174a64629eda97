"""Podgate with intervals of seconds instead of minutes, run in place of `python -m webhook`."""

import sys
from typing import Any

from certs.cluster import loop
from webhook.adapters.kubernetes import Lease, LeaseTiming
from webhook.adapters.policy_process import parent
from webhook.adapters.policy_process.child import main as check_policy
from webhook.cli import main
from webhook.controller import Controller, ControllerTiming, ServiceStatusWriter, StatusTiming, StatusWriter
from webhook.core.document.rules import shares
from webhook.policy_in_force.webhook_configurations import WebhookConfigurationTiming, WebhookConfigurationWriter

CONTROLLER = ControllerTiming(
    round_seconds=0.2, overdue_seconds=2, skew_seconds=0.2, loss_seconds=1.5, repair_seconds=1
)
STATUSES = StatusTiming(round_seconds=0.2, read_seconds=1, first_pause_seconds=0.2, pause_seconds_max=1)
LEASE = LeaseTiming(duration_seconds=3, renew_seconds=0.3, retry_seconds=0.2)

WEBHOOKS = WebhookConfigurationTiming(poll_seconds=0.1, check_seconds=0.5, longest_pause_seconds=1)

CERTIFICATES_PAUSE_SECONDS = 0.5

UNSCHEDULABLE_SECONDS = 1
CHECK_POLICY = "check-policy"
"""The first argument of a child process that checks a policy, for which the shorter intervals hold, too."""


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
    shares.UNSCHEDULABLE_SECONDS_MIN = UNSCHEDULABLE_SECONDS
    parent.PolicyProcess.__init__.__defaults__ = (
        (sys.executable, "-P", __file__, CHECK_POLICY),
        parent.TIMEOUT_SECONDS,
    )
    if sys.argv[1:2] == [CHECK_POLICY]:
        check_policy(*sys.argv[2:])
    else:
        main()
