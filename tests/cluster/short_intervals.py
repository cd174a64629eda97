"""Podgate with intervals of seconds instead of minutes, run in place of `python -m webhook`."""

import sys
from typing import Any

from webhook.adapters.policy_process.child import main as check_policy
from webhook.core.document.rules import shares

UNSCHEDULABLE_SECONDS = 1
CERTIFICATES_PAUSE_SECONDS = 0.5
CHECK_POLICY = "check-policy"
"""The first argument of a child process that checks a policy, for which the shorter intervals hold, too."""


def shorten(kind: type[Any], timing: object) -> None:
    """Make `timing` the default of a class."""
    defaults = kind.__init__.__kwdefaults__
    [name] = {"pace", "timing"} & defaults.keys()
    defaults[name] = timing


def run_podgate() -> None:
    """Run Podgate's command line, whose modules a check of a policy does not need."""
    from certs.cluster import loop  # noqa: PLC0415
    from webhook.adapters.kubernetes import Lease, LeaseTiming  # noqa: PLC0415
    from webhook.adapters.policy_process import parent  # noqa: PLC0415
    from webhook.cli import main  # noqa: PLC0415
    from webhook.controller import (  # noqa: PLC0415
        Controller,
        ControllerTiming,
        ServiceStatusWriter,
        StatusTiming,
        StatusWriter,
    )
    from webhook.policy_in_force.webhook_configurations import (  # noqa: PLC0415
        WebhookConfigurationTiming,
        WebhookConfigurationWriter,
    )

    statuses = StatusTiming(round_seconds=0.2, read_seconds=1, first_pause_seconds=0.2, pause_seconds_max=1)
    shorten(
        Controller,
        ControllerTiming(round_seconds=0.2, overdue_seconds=2, skew_seconds=0.2, loss_seconds=1.5, repair_seconds=1),
    )
    shorten(ServiceStatusWriter, statuses)
    shorten(StatusWriter, statuses)
    shorten(Lease, LeaseTiming(duration_seconds=3, renew_seconds=0.3, retry_seconds=0.2))
    shorten(
        WebhookConfigurationWriter,
        WebhookConfigurationTiming(poll_seconds=0.1, check_seconds=0.5, longest_pause_seconds=1),
    )
    loop.PAUSE_SECONDS_MAX = CERTIFICATES_PAUSE_SECONDS
    parent.PolicyProcess.__init__.__defaults__ = (
        (sys.executable, "-P", __file__, CHECK_POLICY),
        parent.TIMEOUT_SECONDS,
    )
    main()


if __name__ == "__main__":
    shares.UNSCHEDULABLE_SECONDS_MIN = UNSCHEDULABLE_SECONDS
    if sys.argv[1:2] == [CHECK_POLICY]:
        check_policy(*sys.argv[2:])
    else:
        run_podgate()
